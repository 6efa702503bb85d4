import json
import shutil
from pathlib import Path

import browser
import numpy as np
import pytest
import tiny
from pages import CONFIG, charts, everything, metrics, notes, read, section, tips, write_run
from PIL import Image

from dsf.experiments import evaluate, train
from dsf.experiments.page import read_runs
from dsf.experiments.report import write_report

RUNS = Path(__file__).parents[2] / "results" / "runs"
REAL = [RUNS / "cifar10-dsf-60", RUNS / "cifar10-dsf-60-lr0.06", RUNS / "demo"]


@pytest.fixture(scope="module", autouse=True)
def _no_data_sets(tmp_path_factory):
    """None is prepared, whatever the machine has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSF_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two small runs that differ by their seed, with their weights."""
    folder = tmp_path_factory.mktemp("trained")
    for seed in (0, 1):
        settings = tiny.settings("knn.every=1", "knn.k=20", f"seed={seed}")
        train(settings, folder / f"seed{seed}", show=False)
        evaluate(folder / f"seed{seed}", ["knn", "linear"])
    return [folder / "seed0", folder / "seed1"]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The report of three real runs, of which only text files are left."""
    folder = tmp_path_factory.mktemp("real")
    made = write_report(REAL, folder / "report.html", folder / "figures")
    return made, read(made.page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, trained):
    """The report of two runs with their weights, and one without."""
    said = []
    path = tmp_path_factory.mktemp("whole") / "report.html"
    write_report([*trained, RUNS / "cifar10-dsf-60"], path, say=said.append)
    return path, read(path.read_text(encoding="utf-8")), said


def rows(part):
    """The rows of a table by their heads, without what is said beside them."""
    result = {}
    for row in part.find("tbody")[0].find("tr"):
        head = row.find("th")[0]
        name = "".join(c if isinstance(c, str) else "" for c in head.children) or head.text
        result[name] = [cell.text for cell in row.find("td")]
    return result


def results(name):
    return json.loads((RUNS / name / "results.json").read_text())


def test_runs_stand_side_by_side(real):
    _, tree = real
    assert tree.find("h1")[0].text == "3 runs side by side"
    overview = rows(section(tree, "runs"))
    assert overview["demo"] == ["embedded", "moco", "dsf", "resnet-small", "8", "8", "0"]
    assert list(overview) == ["cifar10-dsf-60", "cifar10-dsf-60-lr0.06", "demo"]


def test_settings_that_differ_and_those_that_do_not(real):
    _, tree = real
    part = section(tree, "settings")
    differ = {name.replace(" ", ""): cells for name, cells in rows(part).items()}
    assert differ["optimiser.lr"] == ["0.12", "0.06", "0.12"]
    assert differ["encoder.options.stem"] == ["cifar", "cifar", "\N{EN DASH}"]
    assert "encoder.options" not in differ  # empty beside what others have in it
    same = {d.find("dt")[0].text: d.find("dd")[0].text for d in part.find("dl")[0].find("div")}
    assert same["method"] == "moco"
    assert not same.keys() & differ.keys()


def test_accuracies_are_those_of_the_results(real):
    _, tree = real
    shown = rows(section(tree, "accuracy"))
    for row, name, key in (
        ("kNN, backbone", "knn", "backbone"),
        ("kNN, projection", "knn", "projection"),
        ("linear classifier", "linear", "accuracy"),
    ):
        expected = [f"{100 * results(run.name)[name][key]:.1f} %" for run in REAL]
        before = results("demo")[f"untrained-{name}"][key]
        expected[2] += f"untrained: {100 * before:.1f} %"
        assert shown[row] == expected
    mean = results("cifar10-dsf-60")["finetune@pets:64 budget=0.05"]["mean_per_class"]
    name = "fine-tuned, on pets:64, budget=0.05, mean per class"
    assert shown[name] == [f"{100 * mean:.1f} %", "\N{EN DASH}", "\N{EN DASH}"]
    # CIFAR-10 and the embedded images are no contest.
    assert not section(tree, "accuracy").find("table")[0].find("strong")
    assert section(tree, "accuracy").text.count("Measured in different ways") == 3


def test_the_best_of_those_measured_alike_is_bold(tmp_path):
    for name, accuracy, error in (("one", 0.5, 0.3), ("two", 0.6, 0.2)):
        write_run(tmp_path / name)
        found = {"linear": {"accuracy": accuracy}, "corruption": {"mce": error}}
        (tmp_path / name / "results.json").write_text(json.dumps(found))
    path = tmp_path / "page.html"
    write_report([tmp_path / "one", tmp_path / "two"], path, pictures=False)
    table = section(read(path.read_text()), "accuracy").find("table")[0]
    assert [strong.text for strong in table.find("strong")] == ["60.0 %", "20.0 %"]


def test_curves_of_runs_of_different_lengths(real):
    _, tree = real
    specs = charts(tree)
    last = json.loads((REAL[0] / "metrics.jsonl").read_text().splitlines()[-2])
    assert last["kind"] == "epoch"
    for name, metric in (("loss", "loss"), ("margin", "margin"), ("kappa-mean", "kappa_mean")):
        shown = tips(specs[name])
        assert set(shown[0]) == {"epoch", *(run.name for run in REAL)}
        assert set(shown[-1]) == {"epoch", "cifar10-dsf-60", "cifar10-dsf-60-lr0.06"}
        assert float(shown[-1]["cifar10-dsf-60"]) == pytest.approx(last[metric], rel=1e-3)
    assert tips(specs["knn"])[-1]["cifar10-dsf-60"] == "83.99"
    assert "demo" in tips(specs["images-per-s"])[0] or "demo" in tips(specs["images-per-s"])[1]


def test_cost(real):
    _, tree = real
    shown = rows(section(tree, "cost"))
    assert shown["training time"] == ["3 min 47 s", "4 min 13 s", "2 min 44 s"]
    peak = results("demo")["training"]["peak_memory_bytes"] / 2**30
    assert shown["highest memory"][2] == f"{peak:.2f} GiB"
    assert len(shown["views a second"]) == 3


def test_corruptions_and_confusion_of_those_that_have_them(real):
    _, tree = real
    specs = charts(tree)
    by_type = results("cifar10-dsf-60")["corruption"]["details"]["by_type"]
    bars = {row["group"]: row["value"] for row in specs["corruption"]["data"]["values"]}
    assert bars == {
        name.replace("_", " "): pytest.approx(100 * error, abs=1e-3)
        for name, error in by_type.items()
    }
    assert "mean error 22.4 %" in section(tree, "corruption").text
    assert {name for name in specs if name.startswith("confusion")} == {
        "confusion-cifar10-dsf-60",
        "confusion-demo",
    }
    counts = results("demo")["linear"]["details"]["confusion"]
    cells = specs["confusion-demo"]["data"]["values"]
    assert sum(cell["count"] for cell in cells) == sum(map(sum, counts)) == 1000
    assert [c["count"] for c in cells if c["true"] == "truck"] == [n for n in counts[9] if n]


def test_geometry(real, tmp_path):
    geometry = results("cifar10-dsf-60")["geometry"]
    by_kind = {
        kind.replace("_", " "): entry["kappa"]
        for kind, entry in geometry["details"]["severity"].items()
    }
    _, tree = real
    shown = rows(section(tree, "geometry"))
    assert shown  # a column for the only run that has it
    assert all(len(cells) == 1 for cells in shown.values())
    means = np.mean(list(by_kind.values()), axis=0)
    for tip, mean in zip(tips(charts(tree)["kappa-severity"]), means, strict=True):
        assert float(tip["cifar10-dsf-60"]) == pytest.approx(mean, rel=1e-3)
    write_report(REAL[:1], tmp_path / "one.html", pictures=False)
    tree = read((tmp_path / "one.html").read_text(encoding="utf-8"))
    for severity, tip in enumerate(tips(charts(tree)["kappa-severity"])):
        assert tip.pop("severity") == str(severity)
        assert {kind: float(value) for kind, value in tip.items()} == {
            kind: pytest.approx(values[severity], rel=1e-3) for kind, values in by_kind.items()
        }
    rank = geometry["backbone_effective_rank"]
    cells = [cell.text for cell in section(tree, "geometry").find("td")]
    assert f"{rank:.0f}" in cells


def test_more_runs_than_colours(tmp_path):
    """Every run is in every legend, though there is no room to list its first and last values."""
    folders = [write_run(tmp_path / f"run{number}") for number in range(12)]
    path = tmp_path / "page.html"
    write_report(folders, path, pictures=False)
    tree = read(path.read_text(encoding="utf-8"))
    colour = charts(tree)["loss"]["layer"][0]["encoding"]["color"]
    assert colour["scale"]["domain"] == [folder.name for folder in folders]
    assert not section(tree, "curves").find("span", class_="ends")
    assert "run11 6.60" in charts(tree)["loss"]["description"]
    assert not section(tree, "accuracy").find("table")[0].find("strong")  # they are all the same


def test_what_is_missing_is_said_where_it_would_be(real):
    _, tree = real
    for name in ("neighbours", "maps"):
        absent, without = notes(section(tree, name))
        assert absent.startswith("cifar10-dsf-60, cifar10-dsf-60-lr0.06: Left out: cifar10 is not")
        assert without == f"demo: Left out: {REAL[2]} has no whole checkpoint yet."
    assert section(tree, "views").find("img")  # the embedded images are always there
    confusion = notes(section(tree, "confusion"))
    assert [text.split(":")[0] for text in confusion] == ["cifar10-dsf-60-lr0.06"]
    missing = [text.split(":")[0] for text in notes(section(tree, "corruption"))]
    assert missing == ["cifar10-dsf-60-lr0.06", "demo"]


def test_figures_are_files_too(real):
    made, tree = real
    names = set(charts(tree))
    folder = made.page.parent / "figures"
    assert {path.name for path in folder.iterdir()} == {
        "views.png",
        *(f"{name}.{kind}" for name in names for kind in ("svg", "png")),
    }
    assert sorted(made.figures) == sorted(folder.iterdir())
    for path in folder.glob("*.png"):
        assert Image.open(path).width > 800


def test_it_stays_small(real, whole):
    for path in (real[0].page, whole[0]):
        assert path.stat().st_size < 2.5e6


def test_features_of_runs_that_have_their_weights(whole):
    _, tree, said = whole
    assert said == ["looking at the features of embedded: seed0, seed1"]
    part = section(tree, "neighbours")
    header = [th.text for th in part.find("thead")[0].find("th")]
    assert header == ["test image", "seed0", "seed1"]
    assert len(part.find("li", class_="near")) == 10 * 2 * 5
    specs = charts(tree)
    for name in ("map-seed0", "map-seed1"):
        assert len(specs[name]["layer"][0]["data"]["values"]) == 1000
    assert len(section(tree, "views").find("img")) == 1  # both see the same views
    assert [h.text for h in section(tree, "views").find("h3")] == ["seed0, seed1"]
    cells = specs["confusion-seed0"]["data"]["values"]
    assert {cell["true"] for cell in cells} >= {"airplane", "truck"}
    reasons = notes(section(tree, "maps"))
    assert len(reasons) == 1
    assert reasons[0].startswith("cifar10-dsf-60: Left out: cifar10 is not prepared")


def test_neighbours_are_those_of_the_run(whole, trained):
    """The share of right neighbours, computed once more from the weights."""
    from dsf.experiments.page.features import nearest
    from dsf.experiments.subjects import open_run

    _, tree, _ = whole
    text = section(tree, "neighbours").find("p")[0].text
    for folder in trained:
        subject = open_run(folder).subject
        train_part, test_part = subject.features("train"), subject.features("test")
        found = nearest(train_part.backbone, test_part.backbone, 5)
        right = train_part.labels[found] == test_part.labels[:, None]
        assert f"{100 * right.double().mean():.1f} % {folder.name}" in text


def test_one_run_is_shown_before_and_after(trained, tmp_path):
    write_report(trained[:1], tmp_path / "one.html", title="One & only")
    tree = read((tmp_path / "one.html").read_text(encoding="utf-8"))
    assert tree.find("h1")[0].text == "One & only"
    assert {"map-before-training", "map-after-training", "confusion"} <= set(charts(tree))
    header = [th.text for th in section(tree, "neighbours").find("thead")[0].find("th")]
    assert header == ["test image", "before training", "after training"]
    assert not [s for s in tree.find("section") if s.attributes["aria-labelledby"] == "runs"]


def test_a_run_in_progress(tmp_path):
    steps = [line for line in metrics() if line["kind"] == "step"][:3]
    write_run(tmp_path / "begun", leave_out=["results.json"], lines=steps)
    write_run(tmp_path / "half", leave_out=["results.json"], lines=list(metrics(2)))
    cut = (tmp_path / "half" / "metrics.jsonl").read_text()[:-30]
    (tmp_path / "half" / "metrics.jsonl").write_text(cut)
    path = tmp_path / "page.html"
    write_report([tmp_path / "begun", tmp_path / "half"], path, pictures=False)
    tree = read(path.read_text(encoding="utf-8"))
    said = notes(tree)
    broken = "half: metrics.jsonl has lines that cannot be read: 11. results.json is missing."
    assert broken in said
    assert "begun: The run has 0 of 4 epochs: it is not finished." in said
    assert "half: The run has 2 of 4 epochs: it is not finished." in said
    assert rows(section(tree, "runs"))["begun"][5] == "0 of 4"
    names = {name for tip in tips(charts(tree)["loss"]) for name in tip}
    assert names == {"epoch", "begun", "half"}
    assert said.count("begun: Left out, as asked for.") == 0
    assert said.count("begun, half: Left out, as asked for.") == 3


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    folders = [tmp_path / "one" / "dsf", tmp_path / "two" / "dsf", tmp_path / "two" / "moco"]
    for folder in folders:
        write_run(folder)
    runs = read_runs([*folders, folders[0], tmp_path / "one" / ".." / "one" / "dsf"])
    assert list(runs) == ["one/dsf", "two/dsf", "moco"]
    path = tmp_path / "page.html"
    write_report(folders, path, tmp_path / "figures", pictures=False)
    tree = read(path.read_text(encoding="utf-8"))
    ids = [e.attributes["id"] for e in everything(tree) if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    assert "There is no difference." in section(tree, "settings").text


def test_text_of_others_is_escaped(tmp_path):
    write_run(tmp_path / "<b>run")
    write_run(tmp_path / "other")
    settings = CONFIG.replace("'<script>'", "'</script><script>stolen()'")
    (tmp_path / "other" / "config.yaml").write_text(settings)
    path = tmp_path / "page.html"
    write_report([tmp_path / "<b>run", tmp_path / "other"], path, pictures=False)
    html = path.read_text(encoding="utf-8")
    tree = read(html)
    assert not tree.find("b")
    assert rows(section(tree, "settings"))["name"] == ["<script>", "</script><script>stolen()"]
    assert html.count("stolen()") == 1


def test_a_broken_config_leaves_the_rest(tmp_path, trained):
    shutil.copytree(trained[0], tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text("epochs: many\nnothing: 1\n")
    path = tmp_path / "page.html"
    write_report([tmp_path / "run"], path)
    tree = read(path.read_text(encoding="utf-8"))
    for name in ("views", "neighbours", "maps"):
        (reason,) = notes(section(tree, name))
        assert reason.startswith("Left out: ")
        assert "nothing" in reason or "epochs" in reason
    assert "loss" in charts(tree)


@pytest.mark.gpu
def test_features_on_a_gpu(trained, tmp_path):
    write_report(trained, tmp_path / "page.html", device="cuda")
    tree = read((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert {"map-seed0", "map-seed1"} <= set(charts(tree))
    assert len(section(tree, "neighbours").find("li", class_="near")) == 10 * 2 * 5


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


@pytest.mark.browser
def test_real_runs_in_a_browser(real, whole, tmp_path):
    """Every chart is drawn, nothing is said on the console, nothing is asked of the network."""
    chromium = browser.find(tmp_path)
    for path in (real[0].page, whole[0]):
        assert chromium.console(path) == []
        assert chromium.requests(path) == []
        tree = read("".join(chromium.dom(path).split("<!DOCTYPE html>")))
        places = tree.find("div", class_="chart")
        assert len(places) >= 8
        assert all(place.find("svg") for place in places)
        assert all(place.attributes["aria-label"] for place in places)


@pytest.mark.browser
def test_real_runs_on_a_desktop_and_on_a_phone(whole, tmp_path):
    chromium = browser.find(tmp_path)
    means = {}
    for scheme in ("light", "dark"):
        wide = pixels(chromium.screenshot(whole[0], 1100, 9000, scheme))
        narrow = pixels(chromium.screenshot(whole[0], 390, 16000, scheme))[:, :390]
        for shown in (wide, narrow):
            # Nothing sticks out: the margins are empty.
            assert (shown[:, -8:] == shown[0, -1]).all()
            assert len(np.unique(shown @ (1 << 16, 1 << 8, 1))) > 1000
        means[scheme] = wide.mean()
    assert means["light"] > 200
    assert means["dark"] < 60
