import itertools
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from dsf.data import EpochSampler
from dsf.evaluation import LinearPaper, few_labels
from dsf.evaluation.linear_paper import start_classifier


def by_hand(subject, epochs, batch_size, rate, seed):
    """The same training as everybody writes it: batch after batch through the encoder."""
    train = subject.task.train
    weight, bias = start_classifier(subject, seed)
    optimiser = torch.optim.SGD([weight, bias], lr=rate, momentum=0.9)
    views = subject.views(LinearPaper().recipe(subject), seed)
    subject.encoder.eval()
    for epoch in range(epochs):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * epoch / epochs)) / 2
        order = EpochSampler(len(train), 1, seed).order(epoch)
        for samples in order.split(batch_size):
            pixels = views(train.source[samples], samples, epoch, torch.tensor([0]))
            with torch.no_grad():
                features = subject.encoder(pixels.flatten(0, 1))
            optimiser.zero_grad()
            cross_entropy(features @ weight.T + bias, train.labels[samples]).backward()
            optimiser.step()
    return weight.detach(), bias.detach()


@pytest.mark.parametrize("batch_size", [16, 20, 100])
def test_is_sgd_on_the_features_of_each_batch(make_subject, monkeypatch, batch_size):
    # Two batches at a time, so that there are several chunks, the last of them overlapping.
    monkeypatch.setattr("dsf.evaluation.subject._PIXELS", 2 * batch_size * 16 * 16)
    subject = make_subject(train=50)
    protocol = LinearPaper(epochs=3, batch_size=batch_size, learning_rate=2.0)
    found = protocol.evaluate(subject, seed=3)
    weight, bias = by_hand(make_subject(train=50), 3, batch_size, 2.0, seed=3)
    torch.testing.assert_close(found.state["weight"], weight, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.state["bias"], bias, rtol=1e-4, atol=1e-4)


def test_says_how_far_it_is(make_subject, monkeypatch):
    """A line every ten seconds by a clock that each look moves on by four."""
    from dsf.evaluation import progress

    clock = itertools.count(0, 4)
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    said = []
    subject = make_subject(say=said.append)
    LinearPaper(epochs=9, batch_size=16, learning_rate=1.0).evaluate(subject)
    assert said == [
        "linear-paper: 3 of 9 epochs, about 0:00:24 left",
        "linear-paper: 6 of 9 epochs, about 0:00:12 left",
    ]


def test_tells_colours_apart(make_subject):
    subject = make_subject(train=96)
    found = LinearPaper(epochs=15, batch_size=16, learning_rate=1.0).evaluate(subject)
    assert found.numbers["accuracy"] > 0.9
    assert found.numbers["top5"] == 1
    assert sum(map(sum, found.details["confusion"])) == 24
    assert len(found.details["per_class"]) == 3


def test_leaves_the_encoder_as_it_was(make_subject):
    subject = make_subject()
    subject.encoder.train()
    before = {name: value.clone() for name, value in subject.encoder.state_dict().items()}
    LinearPaper(epochs=1, learning_rate=1.0).evaluate(subject)
    assert subject.encoder.training
    for name, value in subject.encoder.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_repeats_to_the_bit_and_follows_the_seed(make_subject):
    protocol = LinearPaper(epochs=2, learning_rate=1.0)
    first, again, other = (protocol.evaluate(make_subject(), seed) for seed in (1, 1, 2))
    assert torch.equal(first.state["weight"], again.state["weight"])
    assert not torch.equal(first.state["weight"], other.state["weight"])


def test_few_labels(make_subject):
    subject = make_subject(train=60)
    protocol = LinearPaper(epochs=2, learning_rate=1.0, labels=0.1)
    found = protocol.evaluate(subject, seed=4)
    rows = few_labels(subject.task.train.labels, 0.1, seed=4)
    assert found.details["labels_used"] == len(rows) == 6
    # Nothing of the other images has a part in it.
    other = make_subject(train=60)
    hidden = torch.ones(60, dtype=torch.bool)
    hidden[rows] = False
    other.task.train.source[hidden] = 0
    other.task.train.labels[hidden] = 0
    again = LinearPaper(epochs=2, learning_rate=1.0).evaluate(other, seed=4)
    assert not torch.equal(again.state["weight"], found.state["weight"])
    part = other.task.train.part(rows)
    assert torch.equal(protocol._train(other, part, 4)[0], found.state["weight"])


def test_protocol_says_everything(make_subject):
    described = LinearPaper().describe(make_subject(), seed=5)
    assert described["name"] == "linear-paper"
    assert described["learning_rate"] == 30
    assert (described["epochs"], described["batch_size"], described["seed"]) == (30, 256, 5)
    assert described["views"]["jitter"] == 0.8
    assert described["views"]["grayscale"] == 0.2
    large = LinearPaper().describe(make_subject(size=80, train=3, test=3), seed=5)
    assert large["image_size"] == 224
    assert (large["views"]["jitter"], large["views"]["grayscale"]) == (0, 0)
    assert large["views"]["crop_scale"] == [0.08, 1.0]


def test_errors(make_subject):
    with pytest.raises(ValueError, match="epochs must be >= 1; got 0"):
        LinearPaper(epochs=0)
    with pytest.raises(ValueError, match="linear-paper diverged: the classifier is not finite"):
        LinearPaper(epochs=3, batch_size=4, learning_rate=1e38).evaluate(make_subject())


@pytest.mark.gpu
def test_no_step_waits_for_the_device(make_subject):
    subject = make_subject(train=64, device="cuda", autocast=torch.bfloat16)
    protocol = LinearPaper(epochs=2, batch_size=16, learning_rate=1.0)
    protocol.evaluate(subject)  # whatever is made once
    encoded = protocol._encoded
    waits = []

    def watched(self, *arguments):
        chunks = encoded(*arguments)
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield from chunks
        finally:
            torch.cuda.set_sync_debug_mode("default")
            waits.append(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LinearPaper, "_encoded", watched)
        found = protocol.evaluate(subject)
    assert len(waits) == 2
    assert found.numbers["accuracy"] > 1 / 3
