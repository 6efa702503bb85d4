"""Settings as a recipe in which every line says what it means."""

import inspect
import re
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel

from dsf.experiments.settings import Settings

_COLUMN = 34  # where comments begin


def explain(settings: Settings) -> str:
    """All settings as YAML that ``load_recipe`` reads, each with a comment."""
    return "\n".join(_lines(settings, settings.model_dump(mode="json"), "")) + "\n"


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What the settings of a group mean, by their names: the attributes of its docstring."""
    _, _, section = (inspect.getdoc(model) or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for entry in re.split(r"\n {4}(?=\S)", "\n" + section)[1:]:
        names, _, text = entry.partition(":")
        found |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return found


def _lines(group: BaseModel, values: dict[str, Any], indent: str) -> list[str]:
    model, lines = type(group), []
    meaning = meanings(model)
    for name, value in values.items():
        below = getattr(group, name)
        if isinstance(below, BaseModel):
            about = (inspect.getdoc(type(below)) or "").splitlines()[0]
            lines += [*([] if indent else [""]), f"{indent}{name}:  # {_plain(about)}"]
            lines += _lines(below, value, f"{indent}  ")
            continue
        text = f"{indent}{name}: {_flow(value)}"
        notes = [_plain(meaning[name]) if name in meaning else "", _choices(model, name)]
        comment = "; ".join(filter(None, notes))
        lines.append(f"{text:{_COLUMN}}  # {comment}" if comment else text)
    return lines


def _flow(value: Any) -> str:
    """A value in one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def _plain(text: str) -> str:
    return text.replace("``", "").removesuffix(".")


def _choices(model: type[BaseModel], name: str) -> str:
    kind = model.model_fields[name].annotation
    if get_origin(kind) is not Literal:
        return ""
    return f"one of {', '.join(_flow(choice) for choice in get_args(kind))}"
