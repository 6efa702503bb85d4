import json
import shutil

import browser
import pytest
import tiny
from pages import charts, notes, read

from dsf import cli
from dsf.experiments import demo, evaluate, load_recipe
from dsf.training import Interrupted

# The test split is whole: small views keep its 1,000 images cheap.
SETTINGS = [*tiny.SETTINGS, "knn.every=1", "knn.k=20"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    said = []
    folder = tmp_path_factory.mktemp("demo") / "run"
    return demo.run_demo(folder, SETTINGS, said.append, show=False), folder, said


def test_it_evaluates_trains_and_evaluates(finished):
    made, folder, said = finished
    assert [text.split()[0] for text in said] == ["evaluating", "training", "evaluating"]
    kept = json.loads((folder / "results.json").read_text())
    names = {"untrained-knn", "untrained-linear", "knn", "linear"}
    assert kept.keys() == names | {"training"}
    assert {name: kept[name] for name in names} == made.results
    assert all(kept[name]["protocol"] for name in names)
    assert kept["knn"]["protocol"]["checkpoint"] == "step-00000012"


def test_before_and_after_are_what_the_monitor_saw(finished):
    made, folder, _ = finished
    lines = tiny.lines(folder, "knn")
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    for line, name in ((lines[0], "untrained-knn"), (lines[-1], "knn")):
        for part in ("backbone", "projection"):
            assert made.results[name][part] == line[part]
    assert made.results["knn"] != made.results["untrained-knn"]


def test_the_page_shows_the_run(finished):
    made, folder, _ = finished
    assert made.page == folder / "report.html"
    tree = read(made.page.read_text(encoding="utf-8"))
    assert tree.find("h1")[0].text == "DSF demo"
    script, *missing = notes(tree)
    assert "JavaScript" in script
    assert [text.split(":")[0] for text in missing] == [
        "results.json holds no errors on corrupted images"
    ]
    lead = tree.find("header")[0].find("p")[0].text
    assert "(resnet-small) was trained on 96 small photographs for 2 epochs, with 4" in lead
    shown = [cell.text for cell in tree.find("tbody")[0].find("td")]
    assert shown[0] == f"{100 * made.results['untrained-knn']['backbone']:.1f} %"
    assert shown[1] == f"{100 * made.results['knn']['backbone']:.1f} %"
    assert set(charts(tree)) == {
        "loss",
        "knn",
        "margin",
        "kappa-mean",
        "images-per-s",
        "map-before-training",
        "map-after-training",
        "confusion",
    }
    assert len(tree.find("li", class_="near")) == 10 * 2 * 5


@pytest.mark.browser
def test_the_page_opens_in_a_browser(finished, tmp_path):
    made, _, _ = finished
    chromium = browser.find(tmp_path)
    assert chromium.console(made.page) == []
    assert "<h1>DSF demo</h1>" in chromium.dom(made.page)


def test_the_same_command_goes_on(finished, tmp_path, monkeypatch):
    """Stopped after an epoch and called again, it ends as if it had never been."""
    whole, _, _ = finished
    interrupting = True
    train = demo.train

    def stop(settings, folder, **options):
        train(settings, folder, **options)
        if interrupting:  # as if the second epoch had not been
            shutil.rmtree(folder / "checkpoints" / "step-00000012")
            assert (folder / "checkpoints" / "step-00000006").is_dir()
            raise Interrupted("stopped")

    monkeypatch.setattr(demo, "train", stop)
    settings = [*SETTINGS, "checkpoint.steps=6"]
    with pytest.raises(Interrupted):
        demo.run_demo(tmp_path, settings, show=False)
    assert not (tmp_path / "report.html").exists()
    interrupting = False
    again = demo.run_demo(tmp_path, settings, show=False)
    assert again.results["knn"] == whole.results["knn"]
    assert again.results["linear"] == whole.results["linear"]
    assert again.page.is_file()


def test_a_finished_demo_is_only_evaluated_again(finished):
    made, folder, _ = finished
    before = (folder / "metrics.jsonl").read_bytes()
    assert demo.run_demo(folder, SETTINGS, show=False).results == made.results
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_its_evaluations_need_not_be_run_again(finished):
    made, folder, _ = finished
    said = []
    found = evaluate(folder, ["knn", "linear"], say=said.append)
    found |= evaluate(folder, ["knn", "linear"], random=True, say=said.append)
    assert found == made.results
    assert all(text.endswith("kept, as it is there already") for text in said)
    assert len(said) == 4


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(FileExistsError, match="is not empty and holds no run"):
        demo.run_demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_path_beneath_a_file(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "-o", str(tmp_path / "file" / "run")]) == 2
    assert capsys.readouterr().err == f"dsf: {tmp_path / 'file' / 'run'}: Not a directory\n"


def test_the_command_prints_accuracies_and_the_path_last(finished, capsys, monkeypatch):
    made, folder, _ = finished
    monkeypatch.setattr(
        "dsf.experiments.demo.load_recipe", lambda name, overrides: load_recipe(name, SETTINGS)
    )
    assert cli.main(["demo", "-o", str(folder)]) == 0
    *rows, last = capsys.readouterr().out.splitlines()
    assert last == str(made.page)
    assert [row.split("  ")[0] for row in rows] == [
        "kNN, backbone",
        "kNN, projection",
        "linear classifier",
    ]
    linear = made.results["untrained-linear"]["accuracy"], made.results["linear"]["accuracy"]
    assert f"{100 * linear[0]:.1f} % before, {100 * linear[1]:.1f} % after" in rows[-1]


def test_an_interrupted_command_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    def stop(*arguments, **options):
        raise Interrupted("stopped by SIGINT after step 3 of 12")

    monkeypatch.setattr("dsf.experiments.demo.run_demo", stop)
    assert cli.main(["demo", "-o", str(tmp_path)]) == 75
    message = f"stopped by SIGINT after step 3 of 12; to go on: dsf demo -o {tmp_path}\n"
    assert capsys.readouterr().out == message


@pytest.mark.gpu
def test_it_runs_on_a_gpu(tmp_path):
    options = [*SETTINGS, "device=cuda", "compile=false"]
    made = demo.run_demo(tmp_path, options, show=False)
    lines = tiny.lines(tmp_path, "knn")
    assert made.results["untrained-knn"]["backbone"] == lines[0]["backbone"]
    assert made.results["knn"]["backbone"] == lines[-1]["backbone"]
    tree = read(made.page.read_text(encoding="utf-8"))
    assert {"map-before-training", "map-after-training"} <= set(charts(tree))
