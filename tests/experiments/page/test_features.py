import pytest
import torch

from dsf.experiments.page.features import (
    class_separation,
    first_of_each_class,
    look,
    nearest,
    principal_plane,
)


def test_the_plane_holds_the_directions_of_most_variance():
    angles = torch.linspace(0.1, 1.3, 50, dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    features = 3 * (angles.cos()[:, None] * basis[0] + angles.sin()[:, None] * basis[1])
    plane = principal_plane(features)
    assert plane.share == pytest.approx(1.0)
    # A circle stays a circle: distances in the plane are those of the directions.
    directions = features / features.norm(dim=1, keepdim=True)
    torch.testing.assert_close(
        torch.cdist(plane.coordinates, plane.coordinates), torch.cdist(directions, directions)
    )


def test_the_plane_agrees_with_a_singular_value_decomposition():
    features = torch.randn(40, 7)
    directions = torch.nn.functional.normalize(features.double(), dim=1)
    centred = directions - directions.mean(dim=0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    plane = principal_plane(features)
    torch.testing.assert_close(plane.coordinates.abs(), (u * s)[:, :2].abs())
    assert plane.share == pytest.approx(((s[:2] ** 2).sum() / (s**2).sum()).item())


def test_the_plane_is_the_same_again_and_its_signs_are_fixed():
    features = torch.randn(40, 7)
    one, other = principal_plane(features), principal_plane(features)
    assert torch.equal(one.coordinates, other.coordinates)
    order = torch.randperm(40)
    torch.testing.assert_close(principal_plane(features[order]).coordinates, one.coordinates[order])


def test_features_that_are_all_the_same():
    plane = principal_plane(torch.ones(5, 3))
    assert plane.coordinates.abs().max() < 1e-12
    assert plane.share == 0


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(4), r"features must be \(N, F\), both >= 2; got \(4,\)"),
        (torch.zeros(4, 1), r"got \(4, 1\)"),
        (torch.full((4, 3), torch.nan), "features must be finite"),
    ],
)
def test_wrong_features(features, message):
    with pytest.raises(ValueError, match=message):
        principal_plane(features)


def test_nearest_by_cosine_whatever_the_length():
    train = torch.tensor([[1.0, 0.0], [0.0, 5.0], [3.0, 3.0], [-1.0, 0.0]])
    assert nearest(train, torch.tensor([[0.1, 0.0], [0.2, 9.0]]), 3).tolist() == [
        [0, 2, 1],
        [1, 2, 0],
    ]
    with pytest.raises(ValueError, match=r"k must be in \[1, 4\]; got 5"):
        nearest(train, train, 5)


def test_an_image_is_not_its_own_neighbour():
    """Though a copy of it is, which is as near as itself."""
    train = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    own = torch.tensor([1, 3])
    assert nearest(train, train[own], 3, own)[0].tolist() == [0, 2, 3]
    assert nearest(train, train[own], 1, own).tolist() == [[0], [2]]
    with pytest.raises(ValueError, match=r"k must be in \[1, 3\]; got 4"):
        nearest(train, train[own], 4, own)
    many = torch.randn(1500, 8)  # more than are compared at a time
    found = nearest(many, many, 4, torch.arange(1500))
    cosines = torch.nn.functional.cosine_similarity(many[:, None], many[None], dim=2)
    expected = cosines.fill_diagonal_(-2).topk(4).values
    torch.testing.assert_close(cosines.gather(1, found), expected)


def test_a_look_counts_right_neighbours_of_all_test_images():
    train = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    test = torch.tensor([[1.0, 0.05], [0.05, 1.0]])
    seen = look(train, torch.tensor([0, 0, 1, 1]), test, torch.tensor([0, 0]), torch.tensor([1]), 2)
    assert seen.agreement == 0.5
    assert sorted(seen.neighbours[0].tolist()) == [2, 3]
    assert seen.plane.coordinates.shape == (2, 2)


def test_the_first_of_each_class():
    assert first_of_each_class(torch.tensor([2, 2, 0, 1, 0])).tolist() == [2, 3, 0]
    assert first_of_each_class(torch.arange(50)).tolist() == list(range(10))


def test_separation_is_the_variance_that_classes_explain():
    labels = torch.arange(60) % 3
    centres = torch.randn(3, 8)
    assert class_separation(centres[labels], labels) == pytest.approx(1.0)
    assert class_separation(torch.ones(60, 8), labels) == 0
    features = torch.randn(60, 8)
    directions = torch.nn.functional.normalize(features.double(), dim=1)
    within = sum(directions[labels == label].var(dim=0, correction=0).sum() for label in range(3))
    total = 3 * directions.var(dim=0, correction=0).sum()
    assert class_separation(features, labels) == pytest.approx((1 - within / total).item())
