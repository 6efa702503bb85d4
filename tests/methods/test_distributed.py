import method_cases
import pytest
import torch
import two_processes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return two_processes.run(method_cases, tmp_path_factory.mktemp("distributed"))


@pytest.mark.parametrize("case", method_cases.CASES)
def test_two_processes_equal_one(runs, case):
    names = [name for name in runs["1-0"] if name.startswith(f"{case}/")]
    assert len(names) > method_cases.STEPS
    for name in names:
        for rank in ("2-0", "2-1"):
            torch.testing.assert_close(
                runs[rank][name],
                runs["1-0"][name],
                rtol=1e-9,
                atol=1e-10,
                msg=lambda text, name=name: f"{name}: {text}",
            )
