import shutil
import sys
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError

from dsf.cli import main


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    import exports

    return exports.make_run("small", tmp_path_factory.mktemp("runs"))


def test_exports_and_prints_the_folder(small, tmp_path, capsys):
    assert main(["export", str(small), "--to", "timm", "-o", str(tmp_path / "out")]) == 0
    output, errors = capsys.readouterr()
    assert output == f"{tmp_path / 'out'}\n"
    first, second, third = errors.splitlines()
    assert first == "comparing features with step-00000002"
    assert second == f"how to load it: {tmp_path / 'out' / 'README.md'}"
    assert third.startswith("equal features: they differ by ")
    assert (tmp_path / "out" / "README.md").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "--to", "timm"], "nowhere is not a run: there is no such folder"),
        (["EMPTY", "--to", "timm"], "has no whole checkpoint yet"),
        (["RUN", "--to", "torchvision"], "to: torchvision has no resnet-small, but resnet18"),
        (["RUN", "--to", "timm", "-o", "full"], "full is there and not an empty folder: take"),
        (["RUN", "--to", "timm", "-o", "file"], "file is there and not an empty folder: take"),
        (["RUN", "--to", "timm", "-o", "file/x"], "cannot write to file: File exists"),
        (["RUN", "--to", "timm", "--push", "me"], "push must be user/name; got 'me'"),
    ],
)
def test_errors(small, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("dear")
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    shutil.copy(small / "config.yaml", tmp_path / "empty")
    places = {"RUN": str(small), "EMPTY": "empty"}
    assert main(["export", *(places.get(word, word) for word in words)]) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "full"]


def test_wrong_calls(capsys):
    assert main(["export", "run"]) == 2
    assert "--to" in capsys.readouterr().err
    assert main(["export", "run", "--to", "keras"]) == 2
    assert "invalid choice: 'keras'" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_onnx_that_is_not_installed(small, tmp_path, monkeypatch, capsys, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["export", str(small), "--to", "onnx", "-o", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert f"to: onnx needs the package {package}, which is not installed" in errors
    assert "pip install 'dsf-ssl[onnx]'" in errors
    assert list(tmp_path.iterdir()) == []


class Hub:
    """The Hub, as far as it is talked to."""

    def __init__(self, fail=None):
        self.said, self.fail = [], fail

    def whoami(self):
        return {"name": "me"}

    def create_repo(self, name, **options):
        self.said.append(("create", name, options))

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        if self.fail:
            raise self.fail
        self.said.append(("upload", repo_id, {path.name for path in folder_path.iterdir()}))


def push(small, folder, *more):
    words = ["export", str(small), "--to", "huggingface", "-o", str(folder), "--push", "me/mine"]
    return main([*words, *more])


def test_push(small, tmp_path, monkeypatch, capsys):
    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    assert push(small, tmp_path / "out", "--private") == 0
    create, upload = hub.said
    assert create == ("create", "me/mine", {"private": True, "exist_ok": True})
    assert upload == ("upload", "me/mine", {"README.md", "config.json", "model.safetensors"})
    assert "uploading to me/mine" in capsys.readouterr().err
    assert 'snapshot_download("me/mine")' in (tmp_path / "out" / "README.md").read_text()


def test_a_push_that_fails_leaves_the_folder(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: Hub(fail=OSError("no route\nto host")))
    assert push(small, tmp_path / "out") == 1
    assert f"{tmp_path / 'out'} is whole, but the Hub did not take it: no route\n" in (
        capsys.readouterr().err
    )
    assert (tmp_path / "out" / "README.md").is_file()


def test_push_needs_a_login(small, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    assert push(small, tmp_path / "out") == 2
    assert "nobody is logged in to the Hugging Face Hub: run `hf auth login`" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


def test_push_needs_the_network(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "hf_something")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert push(small, tmp_path / "out") == 1
    assert "push: cannot reach the Hub: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_push_with_a_token_that_is_not_accepted(small, tmp_path, monkeypatch, capsys):
    class Closed(Hub):
        def whoami(self):
            response = SimpleNamespace(headers={}, request=None)
            raise HfHubHTTPError("401 Unauthorized", response=response)

    monkeypatch.setattr(huggingface_hub, "HfApi", Closed)
    assert push(small, tmp_path / "out") == 2
    assert "the Hub does not accept this login: 401 Unauthorized" in capsys.readouterr().err
