import io

from dsf.training.display import Bar, Lines

STEP = {
    "kind": "step",
    "step": 10,
    "epoch": 1.25,
    "loss": 3.14159,
    "margin": 0.5,
    "kappa_mean": 12.0,
    "images_per_s": 1234.5,
}
KNN = {"kind": "knn", "step": 10, "epoch": 1, "backbone": 0.421, "projection": 0.4}
NUMBERS = "epoch 2/4  loss 3.142  margin 0.500  kappa 12.000  1,234 images/s"


def test_lines():
    stream = io.StringIO()
    lines = Lines(4, 32, 0, stream)
    lines.line(STEP)
    lines.line(STEP | {"step": 11})  # too soon for another
    lines.line(KNN)
    lines.say("hello")
    first, second, third = stream.getvalue().splitlines()
    assert first.startswith(f"step 10/32  {NUMBERS}  -:-- left")
    assert second == "step 10/32  kNN 42.1 %"
    assert third == "hello"


def test_a_loss_without_kappa():
    stream = io.StringIO()
    lines = Lines(4, 32, 0, stream)
    lines.line({name: value for name, value in STEP.items() if name != "kappa_mean"})
    assert "margin 0.500  1,234 images/s" in stream.getvalue()


def test_time_left(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    lines = Lines(4, 7220, 20, io.StringIO())
    assert lines.left() == "-:--"
    clock[0] += 500
    lines.line(KNN | {"step": 20})
    lines.line(STEP | {"step": 30})  # most of the time went into compiling
    assert lines.left() == "-:--"
    clock[0] += 10
    lines.line(STEP | {"step": 40})  # a second a step
    assert lines.left() == "1:59:40"
    lines.line(STEP | {"step": 7220})
    assert lines.left() == "0:00"


def test_bar(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    stream = io.StringIO()
    bar = Bar(4, 32, 0, stream)
    bar.say("[not markup]")
    bar.line(STEP)
    bar.line(KNN)
    bar.close()
    text = stream.getvalue()
    assert "[not markup]" in text
    assert " 31 %" in text
    assert f"{NUMBERS}  kNN 42.1 %" in text
    assert text.endswith(f"step 10/32  {NUMBERS}  kNN 42.1 %\n")  # the bar is gone


def test_epochs_are_counted_to_their_end():
    stream = io.StringIO()
    lines = Lines(2, 6, 0, stream)
    for step in (3, 6):
        lines._said = -1e9
        lines.line(STEP | {"step": step, "epoch": step / 3})
    assert [line.split("  ")[1] for line in stream.getvalue().splitlines()] == [
        "epoch 1/2",
        "epoch 2/2",
    ]
