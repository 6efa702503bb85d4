import shutil

import pytest
import tiny_plan

from dsf.experiments.paper.reproduce import reproduce


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The whole way: tuning, runs, evaluations, results."""
    folder, said = tmp_path_factory.mktemp("paper"), []
    plan = tiny_plan.load(folder)
    names = plan.select(["tuning", "table1", "head"])
    reproduce(plan, names, folder / "results", folder / "runs", say=said.append, show=False)
    return plan, folder, said


@pytest.fixture
def copy(finished, tmp_path):
    plan, folder, _ = finished
    for part in ("results", "runs"):
        shutil.copytree(folder / part, tmp_path / part)
    return plan, tmp_path / "results", tmp_path / "runs"
