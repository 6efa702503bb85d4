"""What holds for every protocol."""

import json

import pytest
import torch

from dsf.evaluation import (
    KNN,
    Corruption,
    Finetune,
    Geometry,
    LabelledImages,
    LinearFast,
    LinearPaper,
    Subject,
    Task,
)

PROTOCOLS = {
    "knn": KNN(k=7),
    "linear": LinearFast(),
    "linear labels": LinearFast(labels=0.5),
    "linear-paper": LinearPaper(epochs=2, batch_size=16, learning_rate=1.0),
    "linear-paper labels": LinearPaper(epochs=2, batch_size=16, learning_rate=1.0, labels=0.5),
    "finetune": Finetune(4, 16, (0.01, 0.05), (0.0, 1e-4)),
    "geometry": Geometry(views=3, k=7, corruptions=()),
    "corruption": Corruption(types=("contrast",), severities=(1, 3)),
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
# What looks at test labels by its very meaning.
LABELLED = ("accuracy", "mean_per_class", "top5", "confusion", "per_class", "error", "knn_accuracy")


def trained(result):
    """Everything about a result but the comparison with test labels."""
    details = {
        name: value
        for name, value in result.details.items()
        if not any(word in name for word in LABELLED)
    }
    return json.loads(json.dumps([result.protocol, details]))


@every_protocol
def test_test_labels_play_no_part_in_training(protocol, make_subject):
    """Shuffled test labels: the same weights to the bit, the same choices, other scores."""
    found = protocol.evaluate(make_subject(validation=12), seed=1)
    shuffled = protocol.evaluate(make_subject(validation=12, shuffle=5), seed=1)
    assert found.state.keys() == shuffled.state.keys()
    for name, value in found.state.items():
        assert torch.equal(value, shuffled.state[name]), name
    if protocol.name in ("knn", "corruption"):  # their details are scores, but for the choice
        assert found.protocol == shuffled.protocol
        assert found.details.get("chosen") == shuffled.details.get("chosen")
    else:
        assert trained(found) == trained(shuffled)
    assert found.numbers != shuffled.numbers


@pytest.mark.parametrize("name", ["linear", "linear-paper", "finetune"])
def test_training_labels_do(name, make_subject):
    """The test above would notice: it does when training labels are shuffled."""
    protocol = PROTOCOLS[name]
    subject = make_subject()
    found = protocol.evaluate(subject)
    images, labels = subject.task.train.source, subject.task.train.labels.flip(0)
    other = Task(LabelledImages(images, labels.roll(1)), subject.task.test, 3)
    again = protocol.evaluate(Subject(make_subject().encoder, other))
    assert any(not torch.equal(value, again.state[key]) for key, value in found.state.items())


@every_protocol
def test_repeats_to_the_bit(protocol, make_subject):
    found, again = (protocol.evaluate(make_subject(), seed=3) for _ in range(2))
    assert found.entry() == again.entry()
    for name, value in found.state.items():
        assert torch.equal(value, again.state[name]), name


@every_protocol
def test_results_are_json_and_say_their_protocol(protocol, make_subject):
    subject = make_subject(about={"encoder": {"name": "tiny"}})
    entry = protocol.evaluate(subject, seed=4).entry()
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    described = entry["protocol"]
    assert described == protocol.describe(subject, seed=4)
    assert described["name"] == protocol.name
    assert described["seed"] == 4
    assert described["encoder"] == {"name": "tiny"}
    assert described["data"]["train_samples"] == 48
    assert described["image_size"] == 16
    assert described["precision"] == "float32"


@every_protocol
def test_any_module_will_do(protocol, make_subject):
    encoder = torch.nn.Sequential(torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 8))
    subject = Subject(encoder, make_subject().task)
    assert subject.width == 8
    assert protocol.evaluate(subject).numbers


@every_protocol
def test_wrong_class_counts(protocol, make_subject):
    with pytest.raises(ValueError, match=r"labels of train must be in \[0, 2\).*got 0 to 2"):
        protocol.evaluate(make_subject(classes=2))


class Broken(torch.nn.Module):
    """Gives NaN for dark images."""

    def forward(self, images):
        features = images.float().mean(dim=(2, 3))
        return features.masked_fill(features.mean(dim=1, keepdim=True) < 0, torch.nan)


@pytest.mark.parametrize("name", ["knn", "linear", "linear-paper", "geometry"])
def test_features_that_are_not_finite(name, make_subject):
    task = make_subject().task
    dark = task.test.source.clone()
    dark[[3, 9]] = 0
    test = LabelledImages(dark, task.test.labels, name="test")
    subject = Subject(Broken(), Task(task.train, test, 3), mean=(0.05,) * 3)
    with pytest.raises(ValueError, match="2 of 24 images are not finite, the first at index 3"):
        PROTOCOLS[name].evaluate(subject)


def test_official_validation_images_are_chosen_on(make_subject):
    subject = make_subject(train=48, validation=12)
    assert len(subject.task.train) == 60
    official = "the 12 official validation images"
    assert LinearFast().describe(subject, 0)["chosen_on"] == official
    assert Finetune().describe(subject, 0)["chosen_on"] == official
    few = LinearFast(labels=0.5).describe(subject, 0)["chosen_on"]
    assert few == "0.1 of those training images whose labels are used"
    held = LinearFast().evaluate(subject).details["held_out"]
    assert {round(12 * row["accuracy"], 6) % 1 for row in held} == {0}
    by_chance = make_subject(train=60)
    assert by_chance.task.chosen_on(0.1) == "0.1 of the training images, stratified"


def test_k_larger_than_the_bank(make_subject):
    message = r"k must be in \[1, 48\], the number of training images in the bank; got 49"
    with pytest.raises(ValueError, match=message):
        KNN(k=49).evaluate(make_subject())
    assert KNN(k=48).at_most(48) == KNN(k=48)
    lowered = KNN(k=200).at_most(48)
    assert (lowered.k, lowered.lowered_from) == (48, 200)
    described = lowered.describe(make_subject(), 0)
    assert (described["k"], described["lowered_from"]) == (48, 200)
    assert "lowered_from" not in KNN(k=9).describe(make_subject(), 0)


@pytest.mark.parametrize(
    ("size", "message"),
    [(3, r"size must be in \[4, 1024\] pixels; got 3"), (2000, "size must be in .*got 2000")],
)
def test_sizes_of_images(make_subject, size, message):
    subject = make_subject()
    with pytest.raises(ValueError, match=message):
        Subject(subject.encoder, subject.task, size=size)


def test_a_transformer_has_a_size_of_its_own(make_subject):
    import timm

    encoder = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=32, depth=1)
    task = make_subject().task
    assert Subject(encoder, task).size == 32
    assert Subject(encoder, task).features("test").backbone.shape == (24, 192)
    with pytest.raises(ValueError, match="takes images of 32 pixels and no others; got 16"):
        Subject(encoder, task, size=16)


def test_a_transformer_that_takes_others_sees_the_size_of_its_training(make_subject):
    import timm

    options = {"img_size": 48, "depth": 1, "dynamic_img_size": True}
    encoder = timm.create_model("vit_tiny_patch16_224", num_classes=0, **options)
    for stored in (32, 65):
        assert Subject(encoder, make_subject(size=stored).task).size == 48
    assert Subject(encoder, make_subject().task, size=16).size == 16


def test_default_sizes(make_subject):
    assert make_subject(size=16).size == 16
    assert make_subject(size=64, train=3, test=3).size == 64
    assert make_subject(size=65, train=3, test=3).size == 224


def test_one_class_is_none(make_subject):
    task = make_subject().task
    same = LabelledImages(task.train.source, torch.zeros(48, dtype=torch.int64), name="train")
    with pytest.raises(ValueError, match="train must have images of two classes or more; got one"):
        Task(same, task.test, 3)
    with pytest.raises(ValueError, match="classes must be >= 2; got 1"):
        Task(same, task.test, 1)


def test_modes_are_restored_after_an_error(make_subject):
    class Failing(torch.nn.Module):
        def forward(self, features):
            raise RuntimeError("in the head")

    subject = make_subject()
    head = Failing().train()
    broken = Subject(subject.encoder.train(), subject.task, project=head)
    with pytest.raises(RuntimeError, match="in the head"):
        broken.features("train")
    assert head.training
    assert subject.encoder.training


def test_streamed_and_resident_images_give_the_same(make_subject):
    import numpy as np

    from dsf.data import Split

    task = make_subject().task

    def split(name, part):
        pixels = np.ascontiguousarray(part.source.permute(0, 2, 3, 1).numpy())
        return Split(name, [pixels[:10], pixels[10:]], part.labels.numpy(), classes="abc")

    train, test = (LabelledImages(split(p.name, p)) for p in (task.train, task.test))
    streamed = Task(train, test, 3)
    for name in ("knn", "linear-paper", "finetune", "geometry"):
        resident, other = (
            PROTOCOLS[name].evaluate(Subject(make_subject().encoder, images)).numbers
            for images in (task, streamed)
        )
        assert other == pytest.approx(resident, rel=1e-5), name


@pytest.mark.slow
def test_compiled(make_subject, compiler):
    protocol = PROTOCOLS["linear-paper"]
    eager, compiled = (
        protocol.evaluate(make_subject(compile=compile)).state["weight"]
        for compile in (False, True)
    )
    torch.testing.assert_close(compiled, eager, rtol=1e-3, atol=1e-3)
    found = PROTOCOLS["finetune"].evaluate(make_subject(compile=True))
    assert found.details["validation"]


@pytest.mark.gpu
@every_protocol
def test_on_a_gpu(protocol, make_subject):
    expected = protocol.evaluate(make_subject())
    found = protocol.evaluate(make_subject(device="cuda", autocast=torch.bfloat16))
    assert found.numbers.keys() == expected.numbers.keys()
    assert found.protocol["precision"] == "bfloat16"
    if protocol.name in ("knn", "linear", "linear-paper"):
        first = next(iter(expected.numbers))
        assert abs(found.numbers[first] - expected.numbers[first]) <= 0.2
    json.dumps(found.entry(), allow_nan=False)
