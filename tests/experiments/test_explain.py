import pytest
from pydantic import BaseModel

from dsf.experiments import load_recipe, recipe_names
from dsf.experiments.explain import explain, meanings
from dsf.experiments.settings import Settings


@pytest.mark.parametrize("name", recipe_names())
def test_it_is_the_recipe(tmp_path, name):
    settings = load_recipe(name, ["epochs=70", "data.limit=9000"])
    (tmp_path / "mine.yaml").write_text(explain(settings))
    assert load_recipe(str(tmp_path / "mine.yaml")) == settings


def groups(model):
    yield model
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from groups(field.annotation)


@pytest.mark.parametrize("group", list(groups(Settings)), ids=lambda group: group.__name__)
def test_every_setting_has_a_meaning(group):
    below = {
        name
        for name, field in group.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    found = meanings(group)
    assert found.keys() - below == group.model_fields.keys() - below
    assert all(found.values())


def test_a_line():
    text = explain(load_recipe("demo"))
    assert "\nmethod: moco                        # the training objective; one of moco," in text
    assert "\noptimiser:  # The optimiser\n  name: sgd " in text
