import copy
import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dsf.data import EpochSampler
from dsf.data.augment import Recipe
from dsf.evaluation import Finetune, Scores, Subject, hold_out
from dsf.evaluation.finetune import LEARNING_RATES, WEIGHT_DECAYS, Setting
from dsf.models import split_batch_norm

QUICK = Finetune(steps=4, batch_size=16, learning_rates=(0.01, 0.1), weight_decays=(0.0, 1e-4))


def test_the_grid_is_simclrs():
    assert len(LEARNING_RATES) == 7
    assert LEARNING_RATES[::3] == (1e-4, 3.162e-3, 1e-1)
    assert len(WEIGHT_DECAYS) == 8
    assert WEIGHT_DECAYS[0] == 0
    assert (WEIGHT_DECAYS[1], WEIGHT_DECAYS[-1]) == (1e-6, 1e-3)
    ratios = {round(b / a, 2) for a, b in itertools.pairwise(LEARNING_RATES)}
    assert ratios <= {3.16, 3.17}
    assert (Finetune().steps, Finetune().batch_size, Finetune().momentum) == (20_000, 256, 0.9)


def by_hand(subject, images, labels, setting, steps, batch, seed):
    """The same training as everybody writes it."""
    from dsf.evaluation.linear_paper import start_classifier

    encoder = copy.deepcopy(subject.encoder).train()
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.1  # few steps an epoch
    weight, bias = start_classifier(subject, seed)
    rate, decay = setting
    optimiser = torch.optim.SGD(
        [*encoder.parameters(), weight, bias],
        lr=rate,
        momentum=0.9,
        nesterov=True,
        weight_decay=decay / rate,
    )
    views = subject.views(Recipe(), seed)
    step = epoch = 0
    while step < steps:
        for samples in EpochSampler(len(images), batch, seed).batches(epoch):
            if step == steps:
                break
            for group in optimiser.param_groups:
                group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
            pixels = views(images[samples], samples, step, torch.tensor([0])).flatten(0, 1)
            optimiser.zero_grad()
            logits = encoder(pixels) @ weight.T + bias
            cross_entropy(logits, labels[samples]).backward()
            optimiser.step()
            step += 1
        epoch += 1
    return encoder, weight


def test_trains_all_weights_by_nesterov_and_a_cosine(make_subject):
    subject = make_subject(train=40)
    train = subject.task.train
    setting = Setting(0.05, 1e-3)
    model = Finetune(steps=5, batch_size=16)._train(subject, train, setting, seed=2)
    encoder, weight = by_hand(subject, train.source, train.labels, setting, 5, 16, seed=2)
    torch.testing.assert_close(model.weight, weight, rtol=1e-4, atol=1e-5)
    for (name, value), expected in zip(
        model.encoder.state_dict().items(), encoder.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5, msg=name)
    for before, after in zip(subject.encoder.parameters(), model.encoder.parameters()):
        assert not torch.equal(before, after)


def test_learns(make_subject):
    protocol = Finetune(steps=40, batch_size=16, learning_rates=(1e-7, 0.05), weight_decays=(0.0,))
    found = protocol.evaluate(make_subject(train=96))
    assert found.numbers["accuracy"] > 0.9
    assert found.details["chosen"] == {"learning_rate": 0.05, "weight_decay": 0.0}
    assert [row["learning_rate"] for row in found.details["validation"]] == [1e-7, 0.05]
    assert found.details["validation"][1]["score"] > found.details["validation"][0]["score"]


def test_chooses_on_held_out_images_then_takes_all(make_subject, monkeypatch):
    seen = []
    train = Finetune._train

    def watched(self, subject, images, setting, seed, at):
        seen.append((len(images), tuple(setting)))
        return train(self, subject, images, setting, seed, at)

    monkeypatch.setattr(Finetune, "_train", watched)
    subject = make_subject(train=60)
    QUICK.evaluate(subject, seed=1)
    held, _ = hold_out(subject.task.train.labels, 0.1, seed=1)
    assert len(held) == 6
    assert [count for count, _ in seen] == [54, 54, 54, 54, 60]
    assert len({setting for _, setting in seen[:4]}) == 4
    seen.clear()
    QUICK.evaluate(make_subject(train=60, validation=30))
    assert [count for count, _ in seen] == [60, 60, 60, 60, 90]
    seen.clear()
    Finetune(steps=1, learning_rates=(0.1,), weight_decays=(0.0,)).evaluate(subject)
    assert [count for count, _ in seen] == [60]  # nothing to choose


def test_the_data_set_says_what_is_best(make_subject, monkeypatch):
    metrics = []
    by = Scores.by
    monkeypatch.setattr(
        Scores, "by", lambda self, metric: metrics.append(metric) or by(self, metric)
    )
    found = QUICK.evaluate(make_subject(metric="mean per class"))
    assert metrics == ["mean per class"] * 4
    assert found.protocol["metric"] == "mean per class"
    assert {"accuracy", "mean_per_class"} == found.numbers.keys()


def test_equal_scores_go_to_the_gentler_setting():
    rows = [
        {"learning_rate": 0.1, "weight_decay": 1e-3, "score": 0.5},
        {"learning_rate": 0.01, "weight_decay": 0.0, "score": 0.5},
        {"learning_rate": 0.01, "weight_decay": 1e-3, "score": 0.5},
        {"learning_rate": 0.001, "weight_decay": 0.0, "score": 0.4},
    ]
    from dsf.evaluation.finetune import _best

    assert _best(rows) == (0.01, 1e-3)


def test_a_training_that_diverges_loses(make_subject):
    protocol = Finetune(steps=6, batch_size=16, learning_rates=(1e30, 0.01), weight_decays=(0.0,))
    found = protocol.evaluate(make_subject())
    assert found.details["chosen"]["learning_rate"] == 0.01
    assert found.details["validation"][0]["score"] == 0
    assert all(torch.isfinite(value).all() for value in found.state.values())


def test_a_training_that_diverges_is_no_result(make_subject):
    """Neither of the chosen setting, nor of an encoder that gives NaN: that one is not trained."""
    high = Finetune(steps=6, batch_size=16, learning_rates=(1e30,), weight_decays=(0.0,))
    message = "finetune diverged: the logits of 24 of 24 test images.* learning rate 1e\\+30"
    with pytest.raises(ValueError, match=message):
        high.evaluate(make_subject())
    subject, said = make_subject(train=60), []
    subject.say = said.append
    with torch.no_grad():
        next(subject.encoder.parameters()).fill_(math.nan)
    with pytest.raises(ValueError, match="the features of 6 of 6 images are not finite"):
        QUICK.evaluate(subject)
    assert said == []


def test_leaves_the_encoder_as_it_was(make_subject):
    subject = make_subject()
    subject.encoder.requires_grad_(False)
    before = {name: value.clone() for name, value in subject.encoder.state_dict().items()}
    QUICK.evaluate(subject)
    for name, value in subject.encoder.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not any(parameter.requires_grad for parameter in subject.encoder.parameters())


def test_split_batch_norm_becomes_whole(make_subject):
    """A batch that the splits do not divide, and the same numbers as without splits."""
    plain, split = make_subject(train=23), make_subject(train=23)
    split_batch_norm(split.encoder, 8)
    setting = Setting(0.01, 0.0)
    protocol = Finetune(steps=3, batch_size=11)
    models = [protocol._train(s, s.task.train, setting, 0) for s in (plain, split)]
    assert torch.equal(models[0].weight, models[1].weight)


def test_killed_it_goes_on(make_subject, tmp_path, monkeypatch):
    whole = QUICK.evaluate(make_subject())
    left, calls = [2], []
    train = Finetune._train

    def stops(self, *arguments):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        calls.append(arguments[2])
        return train(self, *arguments)

    monkeypatch.setattr(Finetune, "_train", stops)
    folder = tmp_path / "partial"
    with pytest.raises(KeyboardInterrupt):
        QUICK.evaluate(make_subject(partial=folder))
    left[0] = 1
    with pytest.raises(KeyboardInterrupt):  # another seed knows nothing of it
        QUICK.evaluate(make_subject(partial=folder), seed=1)
    assert len(list(folder.iterdir())) == 2
    left[0], calls[:] = 9, []
    found = QUICK.evaluate(make_subject(partial=folder))
    assert len(calls) == 3  # two settings that were missing, and the last training
    assert found.entry() == whole.entry()
    assert torch.equal(found.state["weight"], whole.state["weight"])
    assert whole.earlier == 0 < found.earlier
    found.forget()
    assert len(list(folder.iterdir())) == 1
    QUICK.evaluate(make_subject(partial=folder), seed=1).forget()
    assert not folder.exists()


def test_says_how_far_it_is(make_subject, tmp_path, monkeypatch):
    """A line every ten seconds by a clock that each look moves on by four."""
    from dsf.evaluation import progress

    clock = itertools.count(0, 4)
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    said = []
    QUICK.evaluate(make_subject(say=said.append))
    lines = [line for line in said if "left" in line]
    # Five trainings of four steps: the fourth look at the clock is 12 seconds after the first.
    assert lines[0] == "finetune: setting 1 of 4, 3 of 4 steps, about 0:01:08 left"
    assert lines[-1] == "finetune: with the chosen setting, 2 of 4 steps, about 0:00:08 left"
    assert len(lines) == 6


def test_dropout_repeats_to_the_bit(make_subject):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.Dropout(0.5))
    subject = Subject(encoder, make_subject().task)
    found = []
    for state in (1, 2):
        torch.manual_seed(state)
        found.append(QUICK.evaluate(subject, seed=9).state["weight"])
        assert torch.initial_seed() == state
    assert torch.equal(*found)


def test_budget(make_subject):
    short = Finetune().within(0.05)
    assert short.steps == 1000
    assert short.learning_rates == LEARNING_RATES[::2]
    assert short.weight_decays == (0.0, WEIGHT_DECAYS[4])
    assert short.changes(Finetune()) == "budget=0.05"
    assert Finetune().within(1) == Finetune()
    assert short.describe(make_subject(), 0)["budget"] == 0.05
    for budget in (0, 1.5):
        with pytest.raises(ValueError, match=r"budget must be in \(0, 1\]"):
            Finetune().within(budget)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be >= 1; got 0"),
        ({"learning_rates": ()}, "learning_rates must be one or more numbers > 0"),
        ({"learning_rates": (0.0,)}, "learning_rates must be one or more numbers > 0"),
        ({"weight_decays": (-1.0,)}, "weight_decays must be one or more numbers >= 0"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        Finetune(**options)


@pytest.mark.gpu
def test_on_a_gpu(make_subject):
    subject = make_subject(train=96, device="cuda", autocast=torch.bfloat16)
    protocol = Finetune(steps=60, batch_size=16, learning_rates=(0.05,), weight_decays=(0.0,))
    assert protocol.evaluate(subject).numbers["accuracy"] > 0.9
