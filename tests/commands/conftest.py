"""A run to evaluate, trained once for all tests of ``dsf eval``."""

import shutil

import pytest
import tiny

from dsf.experiments import train


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    settings = tiny.settings("epochs=1", "knn.k=20")
    return train(settings, tmp_path_factory.mktemp("runs") / "run", show=False)


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def quick(monkeypatch):
    """Protocols of seconds: the settings, not what is done with them."""
    from dsf.experiments import evaluations

    class Finetune(evaluations.Finetune):
        def within(self, budget):
            short = super().within(budget)
            return type(self)(
                **vars(short) | {"steps": 2, "batch_size": 16, "learning_rates": (0.01, 0.1)}
            )

    class LinearPaper(evaluations.LinearPaper):
        def __init__(self, labels=1.0):
            super().__init__(labels, epochs=1, learning_rate=1.0)

    class Geometry(evaluations.Geometry):
        def __init__(self, **options):
            super().__init__(views=2, corruptions=(), **options)

    for replacement in (Finetune, LinearPaper, Geometry):
        monkeypatch.setattr(evaluations, replacement.__name__, replacement)
