import method_cases
import pytest
import torch
import two_processes


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return two_processes.run(method_cases, tmp_path_factory.mktemp("distributed"))


def in_one_order(values):
    """Two processes enqueue the keys of a batch in another order than one."""
    return values[values.flatten(1)[:, 0].argsort()] if values.dim() > 1 else values.sort().values


@pytest.mark.parametrize("case", method_cases.CASES)
def test_two_processes_equal_one(runs, case):
    names = [name for name in runs["1-0"] if name.startswith(f"{case}/")]
    assert len(names) > method_cases.STEPS
    for name in names:
        for rank in ("2-0", "2-1"):
            ours, expected = runs[rank][name], runs["1-0"][name]
            if "/queue." in name and expected.dim():
                ours, expected = in_one_order(ours), in_one_order(expected)
            torch.testing.assert_close(
                ours, expected, rtol=1e-9, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}"
            )
