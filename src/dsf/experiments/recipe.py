"""Recipes: YAML files of settings, and overrides by dotted path."""

import difflib
from pathlib import Path
from shlex import quote
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from dsf.experiments.catalogue import recipe_names, recipe_text
from dsf.experiments.settings import Settings


def load_recipe(name: str, overrides: list[str] | tuple[str, ...] = ()) -> Settings:
    """The settings of a recipe, or of a YAML file such as a run's config.yaml.

    Args:
        name: of a recipe, or the path of a file that ends in .yaml.
        overrides: ``key=value`` each, the key a dotted path such as ``optimiser.lr``, the value
            in YAML.

    Example:
        >>> load_recipe("cifar10-dsf", ["optimiser.lr=0.03", "head=mlp"]).optimiser.lr
        0.03
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        try:
            where, text = str(path), path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not text in UTF-8: {error}") from None
    elif name in recipe_names():
        where, text = f"recipe {name}", recipe_text(name)
    else:
        raise ValueError(_unknown(name))
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{where} must hold settings, `name: value` a line; got {values!r}")
    if where.startswith("recipe "):
        values = {"recipe": name} | values
    for override in overrides:
        _set(values, override)
    return make_settings(values)


def _unknown(name: str) -> str:
    if (Path(name) / "config.yaml").is_file():
        return (
            f"{name} is a run: `dsf train -o {quote(name)} --resume` goes on with it, and its "
            f"settings are the recipe {name}/config.yaml"
        )
    close = difflib.get_close_matches(name, recipe_names(), 1)
    if close:
        return f"there is no recipe {name!r}: did you mean {close[0]}?"
    return f"recipe must be one of {', '.join(recipe_names())}, or a .yaml file; got {name!r}"


def make_settings(values: dict[str, Any]) -> Settings:
    """Settings from plain values; a ``ValueError`` names each field that is wrong."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        lines = list(dict.fromkeys(_explain(item) for item in error.errors(include_url=False)))
        raise ValueError("\n".join(lines)) from None


def dump(settings: Settings) -> str:
    """All settings as YAML; what :func:`load_recipe` reads back."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)


def _set(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    path = key.split(".")
    if not equals or not all(path):
        raise ValueError(f"an override is KEY=VALUE, such as optimiser.lr=0.03; got {override!r}")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(
            f"{key}: must be UTF-8, as config.yaml keeps it; got {text!r}: rename the folder, or "
            "give a link to it"
        )
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError(f"{key}: the value is not YAML; got {text!r}") from None
    for place, part in enumerate(path[:-1]):
        below = values.setdefault(part, {})
        if not isinstance(below, dict):
            owner = ".".join(path[: place + 1])
            raise ValueError(f"{key}: no such setting; {owner} has none below it")
        values = below
    values[path[-1]] = value


def _explain(item: Any) -> str:
    """One of pydantic's errors, as field, what it takes, what it got."""
    path = ".".join(map(str, item["loc"]))
    kind, got = item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"{path}: no such setting; {_meant(path)}"
    if kind in ("model_type", "dict_type") and item["loc"]:
        model = _model_at(item["loc"])
        if model is _model_at(item["loc"][:-1]):  # a mapping of any names, such as views.options
            return f"{path}: must be a mapping, such as {{name: value}}; got {got!r}"
        names = ", ".join(f"{path}.{name}" for name in model.model_fields)
        return f"{path}: has settings of its own ({names}); got {got!r}"
    if kind == "value_error":
        message = str(item["ctx"]["error"])
        return f"{path}: {message}; got {got!r}" if message.startswith("must be") else message
    if kind == "multiple_of":
        return f"{path}: must be even, as half of the views make each side; got {got!r}"
    message = item["msg"].replace("Input should be", "must be", 1)
    return f"{path}: {message[0].lower()}{message[1:]}; got {got!r}"


def _meant(path: str) -> str:
    """Where the setting is that someone may have meant, or which there are."""
    above, _, name = path.rpartition(".")
    known = list(_model_at(tuple(filter(None, above.split(".")))).model_fields)
    found = setting_paths(name)
    if not found:
        close = difflib.get_close_matches(name.lower(), known, 1)
        found = [".".join(filter(None, (above, *close)))] if close else []
    return f"did you mean {' or '.join(found)}?" if found else f"there are {', '.join(known)}"


def setting_paths(name: str) -> list[str]:
    """The settings that end in a name, by their dotted paths.

    Example:
        >>> setting_paths("lr")
        ['optimiser.lr']
    """
    return [path for path in _paths(Settings) if path.split(".")[-1] == name.lower()]


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """All settings by their dotted paths."""
    found = []
    for name, field in model.model_fields.items():
        found.append(f"{prefix}{name}")
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += _paths(field.annotation, f"{prefix}{name}.")
    return found


def _model_at(location: tuple[str | int, ...]) -> type[BaseModel]:
    model: type[BaseModel] = Settings
    for name in location:
        field = model.model_fields.get(str(name))
        if field is None or not (
            isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        ):
            break
        model = field.annotation
    return model
