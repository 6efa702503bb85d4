import exports
import pytest


@pytest.fixture(scope="session")
def run_of(tmp_path_factory):
    """The run of a kind of encoder, trained when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def find(kind):
        if kind not in made:
            made[kind] = exports.make_run(kind, folder)
        return made[kind]

    return find
