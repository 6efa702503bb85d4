"""Write benchmarks/README.md from the benchmarks and the results in results/benchmarks.

    python benchmarks/readme.py         # or `make results`

A benchmark says itself what it measures, in its documentation. Its results are the files that bear
its name, with an ending such as ``-cpu`` where there are several.
"""

import ast
import json
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from dsf.experiments.paper.document.markdown import join, table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "benchmarks"
README = ROOT / "benchmarks" / "README.md"
HELPERS = ("readme",)  # no benchmarks
LONG = 12  # rows above which a table is folded away

_STEP = """\
What a whole training step of a recipe costs, beside parts of it and plainer forms of it.

    dsf bench step [RECIPE] [KEY=VALUE ...] [--profile] [--json FILE]

The step with data and views, the same on views made before, without a CUDA graph, without
compilation, and in eager fp32; and what part of the speed of a large matrix product it reaches."""


class Benchmark(NamedTuple):
    """What can be measured.

    Args:
        name: of its script, and of its results.
        documentation: one sentence, the command indented, then more.
    """

    name: str
    documentation: str

    @property
    def sentence(self) -> str:
        return self.documentation.splitlines()[0]

    @property
    def command(self) -> str:
        lines = self.documentation.splitlines()
        return "\n".join(line.strip() for line in lines if line.startswith("    "))

    @property
    def rest(self) -> str:
        paragraphs = self.documentation.split("\n\n")
        return "\n\n".join(text for text in paragraphs[1:] if not text.startswith("    "))


def benchmarks(folder: Path = ROOT / "benchmarks") -> list[Benchmark]:
    """All there are, by name."""
    found = [Benchmark("step", _STEP)]
    for path in folder.glob("*.py"):
        if path.stem not in HELPERS:
            documentation = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            if not documentation:
                raise ValueError(f"{path} must begin with what it measures and how it is called")
            found.append(Benchmark(path.stem, documentation))
    return sorted(found)


def results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """The reports by file name."""
    files = sorted(folder.glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


def render(found: list[Benchmark], reports: dict[str, dict[str, Any]]) -> str:
    """The document."""
    owners = {name: _owner(name, found) for name in reports}
    sections = [
        section(benchmark, {name: reports[name] for name in reports if owners[name] == benchmark})
        for benchmark in found
    ]
    overview = [
        (
            f"[{benchmark.name}](#{benchmark.name})",
            benchmark.sentence,
            ", ".join(
                dict.fromkeys(
                    _where(reports[name]) for name in reports if owners[name] == benchmark
                )
            )
            or "not measured yet",
        )
        for benchmark in found
    ]
    head = (
        "Made by `make results` from these scripts and the files in `results/benchmarks`; not to "
        "be edited. `make bench` runs them all. Times are comparable within one file only; a "
        "rival is measured in the same run."
    )
    columns = ("benchmark", "what it measures", "measured on")
    return join("# Benchmarks", head, table(columns, overview, 3), *sections) + "\n"


def section(benchmark: Benchmark, reports: dict[str, dict[str, Any]]) -> str:
    """A benchmark with its results."""
    parts = [f"## {benchmark.name}", benchmark.sentence, f"```sh\n{benchmark.command}\n```"]
    parts.append(benchmark.rest)
    if not reports:
        parts.append("Not measured yet.")
    for name, report in reports.items():
        parts.append(f"### On {_where(report)}")
        parts.append(_provenance(name, report["provenance"]))
        parts += _tables(report)
    return join(*parts)


def _owner(name: str, found: list[Benchmark]) -> Benchmark:
    for benchmark in found:
        if name == benchmark.name or name.startswith(f"{benchmark.name}-"):
            return benchmark
    raise ValueError(f"{name}.json must be named after a benchmark; there is none of that name")


def _where(report: dict[str, Any]) -> str:
    about = report["provenance"]
    device = about.get("gpu") or about.get("device") or "cpu"
    return "a CPU" if device == "cpu" else f"one {device}"


def _provenance(name: str, about: dict[str, Any]) -> str:
    torch = about.get("torch") or about["packages"]["torch"]
    cores = f", {about['cores']} cores" if "cores" in about else ""
    return (
        f"`{about['command']}` at commit {about['commit'][:7]}, torch {torch}{cores}, "
        f"{about['wall_s']:,.0f} s in all: [{name}.json](../results/benchmarks/{name}.json)."
    )


def _tables(report: dict[str, Any]) -> Iterator[str]:
    """All that was measured: numbers as a list, rows as tables."""
    numbers = {key: value for key, value in report.items() if _is_number(value)}
    if numbers:
        yield _list(numbers)
    for key, value in report.items():
        if key == "provenance":
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield _titled("" if key == "rows" else key, value)
        elif isinstance(value, dict):
            inner = {name: entry for name, entry in value.items() if _is_number(entry)}
            inner |= {name: entry for name, entry in value.get("setting", {}).items() if entry}
            yield f"**{key}**" + (f": {_list(inner)}" if inner else "")
            if rows := value.get("rows"):
                yield _titled("", rows)


def _titled(title: str, rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    columns = [name for name in columns if any(row.get(name) not in (None, "") for row in rows)]
    words = takewhile(lambda name: any(isinstance(row.get(name), str) for row in rows), columns)
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    drawn = table([name.replace("_", " ") for name in columns], cells, max(1, len(list(words))))
    if len(rows) <= LONG:
        return join(f"**{title}**" if title else None, drawn)
    what = f"{title}, {len(rows)} rows" if title else f"{len(rows)} rows"
    return f"<details><summary>{what}</summary>\n\n{drawn}\n\n</details>"


def _list(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_cell(value)}" for name, value in numbers.items())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return " and ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")


if __name__ == "__main__":
    README.write_text(render(benchmarks(), results()), encoding="utf-8")
    print(README.relative_to(ROOT))
