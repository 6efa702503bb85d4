import pytest
import torch
from torch import nn

from dsf.data.augment import Recipe, Views
from dsf.evaluation import extract
from dsf.models import create_encoder

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


@pytest.fixture
def images():
    return torch.randint(0, 256, (23, 3, 8, 8), dtype=torch.uint8)


class Flatten(nn.Module):
    """An encoder without parameters, which remembers the batches it saw."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def forward(self, batch):
        self.batches.append(batch)
        return batch.flatten(1)


def normalised(images):
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return ((images / 255 - mean) / std).flatten(1)


@pytest.mark.parametrize("batch_size", [1, 5, 8, 23, 100])
def test_images_are_normalised_and_stay_in_order(images, batch_size):
    encoder = Flatten()
    before = images.clone()
    features = extract(encoder, images, MEAN, STD, batch_size)
    torch.testing.assert_close(features, normalised(images), rtol=1e-5, atol=1e-5)
    assert features.dtype == torch.float32
    assert torch.equal(images, before)
    assert {len(batch) for batch in encoder.batches} == {min(batch_size, 23)}


def test_the_arithmetic_is_that_of_training(images):
    unchanged = Recipe((1.0, 1.0), (1.0, 1.0), flip=0.0, mean=MEAN, std=STD)
    views = Views(unchanged, images.shape[-1])
    expected = views(images, torch.arange(len(images)), 0, torch.arange(1))
    assert torch.equal(extract(Flatten(), images, MEAN, STD), expected.flatten(1))


def test_channels_last_images_stay_channels_last(images):
    encoder = Flatten()
    extract(encoder, images.contiguous(memory_format=torch.channels_last), MEAN, STD, 5)
    for batch in encoder.batches:
        assert batch.is_contiguous(memory_format=torch.channels_last)


def test_evaluation_mode(images):
    encoder = create_encoder("resnet-small", width=4)
    statistics = {name: value.clone() for name, value in encoder.state_dict().items()}
    features = extract(encoder, images, MEAN, STD, batch_size=10)
    encoder.eval()
    expected = encoder(normalised(images).view(images.shape))
    torch.testing.assert_close(features, expected.detach(), rtol=1e-4, atol=1e-5)
    assert not features.requires_grad
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, statistics[name]), name


class TestModes:
    @pytest.fixture
    def encoder(self):
        encoder = nn.Sequential(nn.Flatten(), nn.LazyLinear(4), nn.BatchNorm1d(4)).train()
        encoder(torch.zeros(2, 3, 8, 8))
        encoder[2].eval()  # a frozen layer in a network that trains
        return encoder

    def test_are_restored_one_by_one(self, encoder, images):
        head = nn.BatchNorm1d(4).train()
        extract(encoder, images, MEAN, STD, project=head)
        assert [module.training for module in encoder] == [True, True, False]
        assert encoder.training
        assert head.training
        assert head.num_batches_tracked == 0

    def test_are_restored_after_an_error(self, encoder, images):
        def fail(features):
            assert not encoder.training
            raise RuntimeError("in the head")

        with pytest.raises(RuntimeError, match="in the head"):
            extract(encoder, images, MEAN, STD, project=fail)
        assert [module.training for module in encoder] == [True, True, False]


def test_projection(images):
    head = nn.Linear(192, 5)
    features = extract(Flatten(), images, MEAN, STD, 4, project=head)
    torch.testing.assert_close(features, head(normalised(images)).detach(), rtol=1e-4, atol=1e-4)
    assert not features.requires_grad


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.bfloat16, torch.float32),
    ],
)
def test_precision_is_the_encoders(images, dtype, expected):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).to(dtype)
    features = extract(encoder, images, MEAN, STD)
    assert features.dtype == expected
    exact = encoder.double()(normalised(images.double())).detach()
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-6, torch.bfloat16: 0.1}[dtype]
    torch.testing.assert_close(features.double(), exact, rtol=tolerance, atol=tolerance)


def test_autocast_is_for_the_encoder_only_and_only_when_asked(images):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    seen = []

    def project(features):
        seen.append((features.dtype, torch.is_autocast_enabled("cpu")))
        return features

    full = extract(encoder, images, MEAN, STD)
    half = extract(encoder, images, MEAN, STD, project=project, autocast=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = extract(encoder, images, MEAN, STD)
    assert half.dtype == torch.float32
    assert torch.equal(half, half.bfloat16().float())
    assert not torch.equal(half, full)
    assert torch.equal(again, full)
    assert seen == [(torch.float32, False)]


def test_features_that_are_not_finite_are_counted(images):
    images = images.clamp(max=254)
    images[[7, 15, 22], 1, 2, 3] = 255

    def project(features):
        brightest = torch.tensor((1 - MEAN[1]) / STD[1])
        marked = features[:, 64:128].isclose(brightest).any(dim=1)  # in the green channel
        return features.masked_fill(marked[:, None], torch.inf)

    with pytest.raises(ValueError, match="3 of 23 images are not finite, the first at index 7"):
        extract(Flatten(), images, MEAN, STD, 10, project=project)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": torch.zeros(2, 3, 8, 8)}, "images must be uint8.*got torch.float32"),
        (
            {"images": torch.zeros(2, 1, 8, 8, dtype=torch.uint8)},
            r"\(N, 3, H, W\); got .*\(2, 1, 8, 8\)",
        ),
        ({"images": torch.zeros(0, 3, 8, 8, dtype=torch.uint8)}, "images must not be empty"),
        ({"batch_size": 0}, "batch_size must be >= 1; got 0"),
        ({"mean": (0.5,)}, r"mean must have one number a channel, 3; got \(0.5,\)"),
        ({"std": (0.2, 0.0, 0.2)}, "std must be positive"),
        ({"autocast": torch.float64}, "autocast must be None, .*got torch.float64"),
        ({"encoder": nn.Identity()}, r"encoder must give.*\(23, F\); got \(23, 3, 8, 8\)"),
        ({"project": lambda features: features[:2]}, r"project must give.*got \(2, 192\)"),
        ({"project": lambda features: [features]}, r"project must give.*got list"),
    ],
)
def test_errors(images, arguments, message):
    defaults = {"encoder": Flatten(), "images": images, "mean": MEAN, "std": STD}
    with pytest.raises(ValueError, match=message):
        extract(**(defaults | arguments))


@pytest.mark.gpu
def test_images_may_stay_on_the_cpu(images):
    encoder = create_encoder("resnet-small", width=4)
    expected = extract(encoder, images, MEAN, STD, 10)
    encoder.cuda()
    for where in (images, images.cuda()):
        features = extract(encoder, where, MEAN, STD, 10)
        assert features.device.type == "cuda"
        torch.testing.assert_close(features.cpu(), expected, rtol=1e-2, atol=1e-2)  # TF32
    half = extract(encoder, images.cuda(), MEAN, STD, 10, autocast=torch.bfloat16)
    torch.testing.assert_close(half.cpu(), expected, rtol=0.1, atol=0.1)


@pytest.mark.slow
def test_a_compiled_encoder_is_compiled_once(images, compiler):
    encoder = create_encoder("resnet-small", width=4)
    expected = extract(encoder, images, MEAN, STD, 10)
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    encoder.compile(backend=count)
    torch.testing.assert_close(extract(encoder, images, MEAN, STD, 10), expected)
    assert len(graphs) == 1
