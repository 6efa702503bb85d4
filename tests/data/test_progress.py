import io
import sys

from dsf.data import progress


def test_lines_say_the_start_the_end_and_little_between(monkeypatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    with progress.Lines(stream).task("set", 1200) as advance:
        for _ in range(6):
            advance(200)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "set: 0 of 1,200 images"
    assert lines[-1] == "set: 1,200 of 1,200 images"
    assert 3 <= len(lines) < 6


def test_a_bar_is_drawn_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    chosen = progress.on_stderr()
    assert isinstance(chosen, progress.Bar)
    with chosen.task("set", 10) as advance:
        advance(10)
    assert "set" in terminal.getvalue()
    assert "10/10" in terminal.getvalue()


def test_elsewhere_lines(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(progress.on_stderr()) is progress.Lines


def test_silence(capsys):
    with progress.Progress().task("set", 3) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")
