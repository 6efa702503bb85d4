"""From the words of a command to runs, when there are several plans."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from dsf.experiments.paper.plan import ALL, Plan


class Selection(NamedTuple):
    """Some runs of a plan."""

    plan: Plan
    names: list[str]


def select(plans: Sequence[Plan], words: Sequence[str]) -> list[Selection]:
    """The runs that words ask for, by plan, the plans in the order in which they are asked for.

    A word is PLAN/NAME, where NAME is a run, a group or the beginning of names; PLAN, for all of
    it; GROUP-PLAN, as in table1-imagenet100; or NAME alone, for the first plan that knows it.

    Args:
        plans: in the order in which names are looked up.
        words: of a command.
    """
    asked: dict[str, list[str]] = {}
    for word in words:
        plan, name = _place(plans, word.strip("/"))
        asked.setdefault(plan.name, []).append(name)
    known = {plan.name: plan for plan in plans}
    return [Selection(known[name], known[name].select(own)) for name, own in asked.items()]


def _place(plans: Sequence[Plan], word: str) -> tuple[Plan, str]:
    for plan in plans:
        if word == plan.name:
            return plan, ALL
        if word.startswith(f"{plan.name}/"):
            return plan, word.removeprefix(f"{plan.name}/")
        group = word.removesuffix(f"-{plan.name}")
        if group != word and group in plan.parts:
            return plan, group
    for plan in plans:
        if plan.knows(word):
            return plan, word
    every = [plan.address(name) for plan in plans for name in (*plan.parts, *plan.every)]
    close = difflib.get_close_matches(word, every, 1)
    names = ", ".join(plan.name for plan in plans)
    raise ValueError(
        f"a run or group must be of one of the plans {names}, as `dsf reproduce --list` shows "
        f"them; got {word!r}" + (f": did you mean {close[0]}?" if close else "")
    )
