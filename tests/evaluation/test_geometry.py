import pytest
import torch

from dsf.data.augment import Recipe
from dsf.evaluation import Geometry, LabelledImages, Subject, Task, measures
from dsf.vmf import fit_views

QUICK = Geometry(views=4, k=5, corruptions=())


def test_of_backbone_and_projection(make_subject):
    subject = make_subject()
    found = QUICK.evaluate(subject)
    for kind, features in subject.features("test").kinds().items():
        assert found.numbers[f"{kind}_uniformity"] == measures.uniformity(features)
        assert found.numbers[f"{kind}_effective_rank"] == measures.effective_rank(features)
        assert 0 < found.numbers[f"{kind}_class_separation"] <= 1
        assert 0 < found.numbers[f"{kind}_alignment"] < 4
    assert found.details["kappa_of"] == "projection"
    assert len(found.details["kappa_deciles"]) == 11
    without = QUICK.evaluate(make_subject(project=False))
    assert without.details["kappa_of"] == "backbone"
    assert not any(name.startswith("projection") for name in without.numbers)


def test_kappa_is_that_of_the_views(make_subject, monkeypatch):
    subject = make_subject()
    views = subject.views(subject.recipe, seed=7)
    kappa, alignment = QUICK._kappa(subject, subject.task.test, views)
    pixels = views(subject.task.test.source, torch.arange(24), 0, torch.arange(4)).flatten(0, 1)
    subject.encoder.eval()
    subject.project.eval()
    with torch.no_grad():
        features = subject.project(subject.encoder(pixels)).unflatten(0, (24, 4))
    torch.testing.assert_close(kappa, fit_views(features).kappa, rtol=1e-3, atol=1e-3)
    expected = measures.pair_distances(features).mean().item()
    assert alignment["projection"] == pytest.approx(expected, rel=1e-3)
    monkeypatch.setattr("dsf.evaluation.subject._PIXELS", 5 * 4 * 16 * 16)  # five at a time
    again, _ = QUICK._kappa(subject, subject.task.test, views)
    torch.testing.assert_close(again, kappa, rtol=1e-3, atol=1e-3)


class Colours(torch.nn.Module):
    """Features that do not change with the view for some images, and do for others."""

    def forward(self, images):
        mean = images.float().mean(dim=(2, 3))
        spread = images.float().std(dim=(2, 3))
        return torch.cat([mean, spread, torch.ones_like(mean[:, :1])], dim=1)


def test_low_kappa_predicts_errors():
    """Plain images keep their feature in every view; half of the test images are chaos."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    plain = torch.where(labels == 0, 40, 220).to(torch.uint8)[:, None, None, None]
    images = plain.expand(-1, 3, 16, 16).clone()
    images[:, 0] = 128
    test = images.clone()
    halves = torch.randint(0, 2, (20, 3, 1, 2), generator=generator) * 255
    test[:20] = halves.repeat_interleave(8, 3).expand(-1, -1, 16, -1).to(torch.uint8)
    task = Task(LabelledImages(images, labels), LabelledImages(test, labels), 2)
    crops = Recipe(crop_scale=(0.2, 0.5), mean=(0.4,) * 3, std=(0.3,) * 3)
    subject = Subject(Colours(), task, mean=crops.mean, std=crops.std, recipe=crops)
    found = QUICK.evaluate(subject)
    assert 0.5 < found.details["knn_accuracy"] < 1
    assert found.numbers["error_auroc"] > 0.7


def test_when_nothing_is_wrong_there_is_nothing_to_predict(make_subject):
    subject = make_subject()
    train = subject.task.train
    task = Task(train, train, 3)
    found = Geometry(views=2, k=1, corruptions=()).evaluate(Subject(subject.encoder, task))
    assert "error_auroc" not in found.numbers
    assert "right or wrong about all" in found.details["error_auroc"]


def test_neighbours_are_lowered_and_it_says_so(make_subject):
    protocol = Geometry(views=2, corruptions=()).evaluate(make_subject()).protocol
    assert (protocol["k"], protocol["lowered_from"]) == (48, 200)
    assert "lowered_from" not in QUICK.describe(make_subject(), 0)


def test_kappa_falls_with_severity(make_subject):
    subject = make_subject()
    protocol = Geometry(views=3, k=5, corruptions=("contrast", "gaussian_noise"), images=10)
    found = protocol.evaluate(subject)
    rows = found.details["severity"]
    assert list(rows) == ["contrast", "gaussian_noise"]
    assert all(len(row["kappa"]) == 6 for row in rows.values())
    mean = sum(row["spearman"] for row in rows.values()) / 2
    assert found.numbers["severity_spearman"] == pytest.approx(mean)
    assert -1 <= mean <= 1
    views = subject.views(subject.recipe, 0)
    kappa, _ = protocol._kappa(subject, subject.task.test, views)
    assert rows["contrast"]["kappa"][0] == pytest.approx(kappa[:10].mean().item())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"views": 1}, "views must be >= 2"), ({"images": 0}, "images must be >= 1")],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        Geometry(**options)
