import pytest

from dsf.experiments.paper.plan import load_plan, plan_names
from dsf.experiments.paper.selection import select

PLANS = [load_plan(name) for name in plan_names()]


@pytest.mark.parametrize(
    ("word", "plan", "first", "count"),
    [
        ("table1", "cifar10", "table1/dsf", 4),  # names that were there first mean the same
        ("tuning/dsf", "cifar10", "tuning/dsf/lr-0.03", 3),
        ("table1-imagenet100", "imagenet100", "table1/dsf", 4),
        ("imagenet100/table1", "imagenet100", "table1/dsf", 4),
        ("table1-cifar10", "cifar10", "table1/dsf", 4),
        ("table2", "imagenet100", "table2/mocov3/cifar10", 24),
        ("table2/dsf", "imagenet100", "table2/dsf/cifar10", 6),
        ("margin", "imagenet100", "table1/dsf", 1),
        ("imagenette/tuning/dsf", "imagenette", "tuning/dsf/base_lr-0.00015", 4),
        ("imagenette/table2/dsf/pets", "imagenette", "table2/dsf/pets", 1),
        ("tuning-imagenette", "imagenette", "tuning/mocov3/base_lr-0.00015", 16),
        ("large", "imagenette", "large/mocov3", 2),
        ("imagenette/", "imagenette", "tuning/mocov3/base_lr-0.00015", 34),
        ("all", "cifar10", "tuning/moco/lr-0.03-temperature-0.1", 87),
    ],
)
def test_words(word, plan, first, count):
    (found,) = select(PLANS, [word])
    assert (found.plan.name, found.names[0], len(found.names)) == (plan, first, count)


def test_words_of_several_plans():
    found = select(PLANS, ["imagenette/large/dsf", "table1/dsf", "imagenette/table1/dsf"])
    assert [(item.plan.name, item.names) for item in found] == [
        ("imagenette", ["large/dsf", "table1/dsf"]),
        ("cifar10", ["table1/dsf"]),
    ]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tabel2", "of one of the plans cifar10, imagenet100, imagenette, as .* got 'tabel2'"),
        ("imagenette/larg", "must be one of all, tuning, table1, large, table2, or .* mean large?"),
        ("imagenette/tuning/dfs", "got 'tuning/dfs'"),
        ("table1/dfs", "did you mean table1/dsf"),
    ],
)
def test_wrong_words(word, message):
    with pytest.raises(ValueError, match=message):
        select(PLANS, [word])
