"""Sides with unequal numbers of views, as multi-crop has them."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import normalize

from dsf.losses import CosineLoss, DSFLoss, FeatureAverage, LossAverage, PolyView, info_nce
from dsf.losses.dsf import DSFSimilarity

B, D, K, M0, M1 = 5, 6, 7, 4, 2
SETTINGS = {
    "both": {},
    "cross": {"in_batch": "cross"},
    "queue": {"memory_bank_size": (K, D)},
    "both-blocks": {"block_size": 3},
    "cross-blocks": {"in_batch": "cross", "block_size": 3},
    "queue-blocks": {"memory_bank_size": (K, D), "block_size": 3},
}
LOSSES = {"dsf": DSFLoss, "feature": FeatureAverage, "loss": LossAverage, "poly": PolyView}
every_loss = pytest.mark.parametrize("name", LOSSES)
every_setting = pytest.mark.parametrize("setting", SETTINGS)


def make(name, setting):
    torch.manual_seed(0)
    options = {"views": M1} if name in ("loss", "poly") else {}
    loss = LOSSES[name](**options, **SETTINGS[setting]).double()
    loss(*sides(seed=1))
    loss(*sides(seed=2))  # the queue is full
    return loss.eval()


def sides(seed=0, m0=M0, m1=M1):
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(B, 1, D, generator=generator, dtype=torch.float64)
    return [base + torch.randn(B, m, D, generator=generator, dtype=torch.float64) for m in (m0, m1)]


def expected(loss, similarity, query, keys, bank):
    """InfoNCE of similarities between single entries, row by row."""
    if loss.queue is not None:
        rows = [[query[i], [keys[i], *bank], 0] for i in range(B)]
    elif loss.in_batch == "cross":
        rows = [[query[i], keys, i] for i in range(B)]
    else:
        everyone = [*query, *keys]
        rows = []
        for i, entry in enumerate(everyone):
            others = [other for j, other in enumerate(everyone) if j != i]
            positive = (i + B) % (2 * B)
            rows.append([entry, others, positive - (positive > i)])
    logits = [
        torch.stack([similarity(row, column) for column in columns]) for row, columns, _ in rows
    ]
    each = [
        info_nce(row[None] / loss.temperature, torch.tensor([positive]))
        for row, (_, _, positive) in zip(logits, rows)
    ]
    return torch.stack(each).mean()


@every_setting
def test_dsf(setting):
    loss, (out0, out1) = make("dsf", setting), sides()
    kind = DSFSimilarity()
    query, keys = ([kind.fit(side[i : i + 1]) for i in range(B)] for side in (out0, out1))
    bank = []
    if loss.queue is not None:
        for mu, kappa in zip(loss.queue.mu, loss.queue.kappa):
            one = type(keys[0])(mu[None], torch.zeros_like(kappa)[None], kappa[None])
            bank.append(one)
    value = expected(loss, lambda a, b: kind(a, b).squeeze(), query, keys, bank)
    torch.testing.assert_close(loss(out0, out1), value, rtol=1e-10, atol=0)


@every_setting
def test_feature_average(setting):
    loss, (out0, out1) = make("feature", setting), sides()
    query, keys = (normalize(side, dim=-1).mean(dim=1).unbind() for side in (out0, out1))
    bank = [] if loss.queue is None else loss.queue.features.unbind()
    value = expected(loss, lambda a, b: a @ b, query, keys, bank)
    torch.testing.assert_close(loss(out0, out1), value, rtol=1e-10, atol=0)


@every_setting
def test_loss_average(setting):
    loss, (out0, out1) = make("loss", setting), sides()
    values = []
    for a in range(M0):
        for b in range(M1):
            query, keys = (normalize(x, dim=-1).unbind() for x in (out0[:, a], out1[:, b]))
            bank = [] if loss.queue is None else loss.queue.features[:, b].unbind()
            values.append(expected(loss, lambda x, y: x @ y, query, keys, bank))
    torch.testing.assert_close(loss(out0, out1), torch.stack(values).mean(), rtol=1e-10, atol=0)


@every_loss
@every_setting
class TestEveryLoss:
    def test_gradients(self, name, setting):
        loss = make(name, setting)
        assert gradcheck(loss, [side.requires_grad_() for side in sides()], fast_mode=True)

    def test_diagnostics(self, name, setting):
        loss = make(name, setting)
        value, diagnostics = loss.with_diagnostics(*sides())
        assert torch.equal(value, loss(*sides()))
        margin = diagnostics["positive"] - diagnostics["negative"]
        torch.testing.assert_close(diagnostics["margin"], margin)


@every_loss
@pytest.mark.parametrize("setting", ["queue", "queue-blocks"])
def test_the_queue_takes_keys(name, setting):
    loss, other = make(name, setting).train(), make(name, setting).train()
    before = loss.queue.position.item()
    loss(*sides())
    assert loss.queue.position.item() == (before + B) % K
    other.remember(sides()[1])
    assert all(map(torch.equal, loss.queue.buffers(), other.queue.buffers()))


def test_a_bank_of_other_views():
    for kind in (LossAverage, PolyView):
        loss = kind(memory_bank_size=(K, D), views=M1).double()
        with pytest.raises(ValueError, match=r"holds keys of shape \(2, 6\); got .* \(3, 6\)"):
            loss(*sides(m1=3))


def test_cosine_takes_one_view_a_side():
    out0, out1 = sides(m0=2, m1=1)
    with pytest.raises(ValueError, match="one view a side; got m = 2"):
        CosineLoss()(out0, out1)
