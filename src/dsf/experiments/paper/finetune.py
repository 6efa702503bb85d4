"""Fine-tuning of the encoders of a plan's runs."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from dsf.experiments.evaluations import Choices, evaluate
from dsf.experiments.paper.configuration import Configuration
from dsf.experiments.paper.outcome import Outcome, read_outcome
from dsf.experiments.paper.plan import Finetuning, Plan
from dsf.experiments.paper.reduce import reduced_finetuning
from dsf.experiments.paper.weights import find_encoder, no_encoder, open_weights
from dsf.experiments.subjects import check_prepared
from dsf.training.signals import stopped_at_once


def finetune(
    asked: Configuration,
    what: Finetuning,
    trained: Outcome,
    runs: Path,
    weights: Path | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Fine-tune the encoder of another run; settings that were tried are not tried again.

    Args:
        asked: the run.
        what: it does.
        trained: the result of the run whose encoder it needs.
        runs: where the run folders lie.
        weights: where exported encoders lie, for those whose run folders are gone.
        say: told what happens next.

    Returns:
        What its result says, beside who it is.
    """
    if trained.failure:
        nothing: dict[str, Any] = {"training": {}, "curve": {}, "knn": {}, "evaluations": {}}
        return {**trained.content, **nothing, "failure": f"{what.of} failed"}
    source = find_encoder(what.of, trained, runs, weights)
    if source is None:
        raise FileNotFoundError(
            f"{no_encoder(what.of, runs)}, and with it the encoder to fine-tune"
        )
    run = source == runs / what.of
    device, seed = asked.settings.device, asked.settings.seed
    with stopped_at_once("fine-tuning"):
        entries = evaluate(
            source if run else open_weights(source, what.data, device, seed),
            ["finetune"],
            device,
            data=what.data if run else None,
            choices=Choices(budget=what.budget),
            folder=runs / asked.name,
            say=say,
        )
    return reduced_finetuning(trained.content["settings"], entries)


def check_finetuning(
    plan: Plan,
    asked: Finetuning,
    results: Path,
    runs: Path,
    weights: Path | None,
    forgotten: Collection[str],
) -> None:
    """Complain before any work of data that are not prepared, and of an encoder that is gone."""
    check_prepared(asked.data)
    trained = None if asked.of in forgotten else read_outcome(results, asked.of)
    if trained is None or trained.failure:
        return
    if find_encoder(asked.of, trained, runs, weights) is None:
        kept = "" if weights is None else f", or its weights to {weights / asked.of},"
        raise ValueError(
            f"{no_encoder(asked.of, runs)}, and with it the encoder to fine-tune on {asked.data}: "
            f"bring it back{kept} or train it again by `dsf reproduce {plan.address(asked.of)} "
            "--again`"
        )
