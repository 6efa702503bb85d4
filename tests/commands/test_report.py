import pytest
from pages import metrics, notes, read, write_run

from dsf import cli
from dsf.experiments.report import write_report


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda at: None, "is no run folder: there is no such folder"),
        (lambda at: at.write_text(""), "is no run folder: it is a file"),
        (lambda at: at.mkdir(), "it has none of config.yaml, metrics.jsonl, results.json"),
        (lambda at: write_run(at / "below"), "there are runs in it, such as"),
    ],
)
def test_what_is_no_run(tmp_path, capsys, prepare, message):
    prepare(tmp_path / "what")
    page = tmp_path / "page.html"
    assert cli.main(["report", str(tmp_path / "what"), "-o", str(page)]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"dsf: {tmp_path / 'what'} ")
    assert message in errors
    assert errors.count("\n") == 1
    assert not page.exists()


def test_without_runs(capsys):
    assert cli.main(["report"]) == 2
    assert "RUN" in capsys.readouterr().err
    with pytest.raises(ValueError, match="give at least one run folder; got none"):
        write_report([])


def test_where_the_page_cannot_be(tmp_path, capsys):
    write_run(tmp_path / "run")
    assert cli.main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "no" / "a.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "run"), "-o", str(tmp_path)]) == 2
    assert "must be a file" in capsys.readouterr().err


def test_a_device_that_is_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    write_run(tmp_path / "run")
    page = tmp_path / "page.html"
    for device, message in (("cuda", "there is no CUDA device"), ("tpu", "got 'tpu'")):
        assert cli.main(["report", str(tmp_path / "run"), "-o", str(page), "--device", device]) == 2
        assert message in capsys.readouterr().err
    assert not page.exists()


def test_the_command_prints_where_the_page_is(tmp_path, capsys):
    write_run(tmp_path / "run")
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    arguments = ["report", str(tmp_path / "run"), "-o", str(page), "--figures", str(figures)]
    assert cli.main([*arguments, "--no-pictures", "--title", "Mine"]) == 0
    output, errors = capsys.readouterr()
    count = len(list(figures.iterdir()))
    assert output == f"{count} figures in {figures}\n{page}\n"
    assert errors == ""
    assert "<h1>Mine</h1>" in page.read_text()


def test_where_the_page_is_by_default(tmp_path, monkeypatch, capsys):
    """Of one run in its folder, of several in the current one; written anew if it is there."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "one")
    write_run(tmp_path / "two")
    (tmp_path / "one" / "report.html").write_text("old")
    for runs, page in ((["one"], "one/report.html"), (["one", "two"], "report.html")):
        assert cli.main(["report", *runs, "--no-pictures"]) == 0
        assert capsys.readouterr().out == f"{page}\n"
        assert "<h1>" in (tmp_path / page).read_text()
    assert not (tmp_path / "two" / "report.html").exists()


def test_a_run_that_is_not_finished(tmp_path, capsys):
    write_run(tmp_path / "run", lines=list(metrics(2)))
    assert cli.main(["report", str(tmp_path / "run"), "--no-pictures"]) == 0
    errors = capsys.readouterr().err
    assert errors.startswith(f"note: {tmp_path / 'run'} is at step 80 of 160, not at its end; ")
    tree = read((tmp_path / "run" / "report.html").read_text())
    said = "The run has 2 of 4 epochs: it is not finished."
    assert notes(tree).count(said) == 1
    assert not any(said in part.text for part in tree.find("section"))  # above all sections
