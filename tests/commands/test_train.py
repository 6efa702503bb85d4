import resource
import signal
import subprocess
import sys
import time

import pytest
import tiny

from dsf.cli import main
from dsf.experiments import recipe_names


def command(folder, *arguments):
    """The command line of a tiny run."""
    return [
        sys.executable,
        "-m",
        "dsf",
        "train",
        "demo",
        *tiny.SETTINGS,
        *arguments,
        "-o",
        str(folder),
    ]


def test_list(capsys):
    assert main(["train", "--list"]) == 0
    output = capsys.readouterr().out
    for name in recipe_names():
        assert f"{name}\n  reaches: " in output


def test_settings_are_shown(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "demo", "epochs=3", "--settings"]) == 0
    assert (
        "epochs: 3                           # passes over the images\n" in capsys.readouterr().out
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", [[], ["views.local={count: 6, size: 4, crop_scale: [0.1, 0.3]}"]])
def test_train_and_resume(tmp_path, capsys, more):
    folder = tmp_path / "run"
    arguments = ["train", "demo", *tiny.SETTINGS, "epochs=1", *more, "-o", str(folder)]
    assert main(arguments) == 0
    output, errors = capsys.readouterr()
    assert output == f"{folder}\n"
    first, *_, last = errors.splitlines()
    assert first.startswith("note: views of 8 pixels are made of images of 32: ")
    assert "\nstep 4/6  epoch 1/1  loss " in errors
    assert last == f"next: dsf eval {folder} knn linear, or dsf report {folder}"
    assert main(arguments) == 2
    assert "holds a run already: --resume goes on with it" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 0
    assert ": it is complete, nothing is left to train" in capsys.readouterr().err
    assert main(["train", str(folder), "--resume"]) == 2
    assert f"`dsf train -o {folder} --resume` goes on with it" in capsys.readouterr().err
    assert main(["train", str(folder / "config.yaml"), "--resume"]) == 2
    assert f"run in {folder}: dsf train -o {folder} --resume" in capsys.readouterr().err
    assert main(["train", "-o", str(folder), "--resume"]) == 0
    assert main(["train", "checkpoint.keep=3", "-o", str(folder), "--resume"]) == 0


def test_commands_to_copy_are_quoted(tmp_path, capsys):
    folder = tmp_path / "my run"
    assert main(["train", "demo", *tiny.SETTINGS, "epochs=1", "-o", str(folder)]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"next: dsf eval '{folder}' knn linear, or dsf report '{folder}'"
    assert main(["train", str(folder)]) == 2
    assert f"`dsf train -o '{folder}' --resume` goes on with it" in capsys.readouterr().err
    assert main(["train", "demo", "epochs=2", "-o", str(folder), "--resume"]) == 2
    assert f"`dsf train -o '{folder}' --resume` has them all" in capsys.readouterr().err


def test_an_encoder_that_is_not_there(tmp_path, capsys):
    name = "encoder.name=torchvision/nope"
    assert main(["train", "demo", name, "-o", str(tmp_path / "run")]) == 2
    assert "dsf: encoder: torchvision has no classifier 'nope'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


def test_a_recipe_that_is_no_text(tmp_path, capsys):
    (tmp_path / "latin.yaml").write_bytes("# Größe\nepochs: 3\n".encode("latin-1"))
    assert main(["train", str(tmp_path / "latin.yaml")]) == 2
    assert f"dsf: {tmp_path}/latin.yaml is not text in UTF-8: " in capsys.readouterr().err


def test_settings_may_stand_anywhere(tmp_path, capsys):
    folder = tmp_path / "run"
    arguments = ["train", "demo", "epochs=1", "-o", str(folder), *tiny.SETTINGS[:1]]
    arguments += ["--resume", *tiny.SETTINGS[2:]]
    assert main(arguments) == 0
    assert "epochs: 1\n" in (folder / "config.yaml").read_text()
    capsys.readouterr()
    assert main(["train", "demo", "-o", str(folder), "extra"]) == 2
    assert capsys.readouterr().err.startswith("dsf: unrecognized arguments: extra")
    assert main(["data", "list", "a=b"]) == 2


def test_the_default_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "demo", *tiny.SETTINGS, "epochs=1"]) == 0
    assert capsys.readouterr().out == "runs/demo\n"
    assert (tmp_path / "runs" / "demo" / "config.yaml").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "dsf: give a RECIPE, or -o FOLDER --resume"),
        (["--resume"], "dsf: give a RECIPE, or -o FOLDER --resume"),
        (["-o", "none", "--resume"], "dsf: none holds no run to resume: it has no config.yaml"),
        (["dem"], "dsf: there is no recipe 'dem': did you mean demo?"),
        (["nothing"], "dsf: recipe must be one of "),
        (
            ["demo", "-o", "x", "data.limit=8", "--epochs", "3"],
            "dsf: unrecognized arguments: --epochs 3; a setting is given as epochs=VALUE; see ",
        ),
        (
            ["demo", "--lr=1"],
            "dsf: unrecognized arguments: --lr=1; a setting is given as optimiser.lr",
        ),
        (["demo", "head=x"], "dsf: head: must be one of mlp, mlp-bn"),
    ],
)
def test_wrong_calls(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    assert capsys.readouterr().err.startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_beneath_a_file(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["train", "demo", *tiny.SETTINGS, "-o", str(tmp_path / "file" / "run")]) == 2
    assert capsys.readouterr().err == (
        f"dsf: cannot make the run folder {tmp_path}/file/run: Not a directory\n"
    )


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_asked_to_stop(tmp_path, number):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        command(folder, "epochs=500", "log_every=1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text()):
        time.sleep(0.05)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    assert output.startswith(f"stopped by {number.name} after step ")
    assert output.endswith(f"to go on: dsf train -o {folder} --resume\n")
    assert len(list((folder / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize("room", ["one", pytest.param("nothing", marks=pytest.mark.slow)])
def test_a_full_disk(tmp_path, room, capsys):
    """Files may not grow beyond a limit: a checkpoint of these settings is larger than that."""
    folder = tmp_path / "run"
    settings = ["checkpoint.steps=3", "epochs=1", "log_every=1", "--resume"]
    kept = folder / "checkpoints" / "step-00000003"
    if room == "one":
        assert main(command(folder, *settings)[3:]) == 0
        (folder / "checkpoints" / "step-00000006" / "state.json").unlink()
        before = (kept / "tensors.safetensors").read_bytes()

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    run = subprocess.run(
        command(folder, *settings), capture_output=True, text=True, preexec_fn=limit
    )
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    last = run.stderr.splitlines()[-1]
    assert last.startswith("dsf: cannot write ")
    assert "File too large" in last
    if room == "nothing":
        assert not list((folder / "checkpoints").glob("*"))
        assert last.endswith(". Of checkpoints there is none yet")
        return
    assert last.endswith(f". Of checkpoints {kept} is kept: make room and resume")
    assert (kept / "tensors.safetensors").read_bytes() == before
    capsys.readouterr()
    assert main(command(folder, *settings)[3:]) == 0
    assert f"resumed from {kept}" in capsys.readouterr().err


def test_a_dry_run_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "demo", *tiny.SETTINGS, "--dry-run"]) == 0
    output, errors = capsys.readouterr()
    names = [line.split()[0] for line in output.splitlines()]
    assert names == ["data", "step", "speed", "memory", "time", "checkpoint"]
    assert errors == ""
    assert list(tmp_path.iterdir()) == []
    assert main(["train", "demo", "--dry-run", "head=x"]) == 2
    assert main(["train", "demo", "--dry-run", "--resume"]) == 2
    assert "--dry-run estimates a whole run" in capsys.readouterr().err
