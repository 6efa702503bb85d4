"""What needs no training: the paper's figure of kappa, its table of InfoNCE, and Theorem 1."""

import math

import torch

from dsf.experiments.page.chart import Series
from dsf.experiments.paper.document.figures import Figures
from dsf.experiments.paper.document.markdown import fixed, join, table
from dsf.vmf import bessel_ratio, inverse_bessel_ratio, kl_divergence
from dsf.vmf.special import banerjee

_DIMENSIONS = (64, 128, 256, 512)
_SHRINK = 0.95
_TEMPERATURES = (1.0, 0.5, 0.2, 0.1)
_NEGATIVES = (256, 4096, 65536)
# The paper's table of InfoNCE at the best similarities, as printed.
_PRINTED = {
    1.0: ("3.573", "6.319", "9.090"),
    0.5: ("1.738", "4.331", "7.091"),
    0.2: ("0.011", "0.170", "1.380"),
    0.1: ("0.000", "0.000", "0.0001"),
}
_KAPPA, _LAMBDA, _TAU = (
    "\N{GREEK SMALL LETTER KAPPA}",
    "\N{GREEK SMALL LETTER LAMDA}",
    "\N{GREEK SMALL LETTER TAU}",
)


def kappa(figures: Figures) -> str:
    """Kappa over the resultant, as estimated and as stabilised."""
    r = torch.arange(100, dtype=torch.float64) / 100
    charts = [
        figures.draw(
            "kappa",
            f"{_KAPPA} as it is estimated",
            [_kappa_line(f"p={p}", r, 1.0, p, 1000) for p in _DIMENSIONS],
            "mean resultant length",
            f"{_KAPPA}, thousands",
            whole=False,
        ),
        figures.draw(
            "kappa-stabilised",
            f"{_KAPPA} / p of the shrunken resultant",
            [_kappa_line(f"p={p}", r, _SHRINK, p, p) for p in _DIMENSIONS],
            "mean resultant length",
            f"{_KAPPA} / p",
            whole=False,
        ),
    ]
    exact = torch.tensor([0.3, 0.6, 0.9, 0.99], dtype=torch.float64)
    rows = [
        [
            f"{float(value):g}",
            fixed(float(inverse_bessel_ratio(value, 128)), 1),
            fixed(float(_estimate(value, 1.0, 128)), 1),
            fixed(float(_estimate(value, 1.0, 128)) / 128, 3),
            fixed(float(_estimate(value, _SHRINK, 128)) / 128, 3),
        ]
        for value in exact
    ]
    return join(
        f"## {_KAPPA} with and without stabilisation",
        f"{_KAPPA} = R (p \N{MINUS SIGN} R\N{SUPERSCRIPT TWO}) / (1 \N{MINUS SIGN} "
        f"R\N{SUPERSCRIPT TWO}) grows with the dimension and without bound as R nears 1. Divided "
        f"by p it hardly depends on p, and with R shrunk by {_LAMBDA} = {_SHRINK} it ends at "
        f"{fixed(_limit(_SHRINK, 128), 2)} (p = 128).",
        " ".join(filter(None, charts)),
        table(
            (
                "R, p = 128",
                f"exact {_KAPPA}",
                f"estimated {_KAPPA}",
                f"{_KAPPA} / p",
                f"{_KAPPA} / p, shrunk",
            ),
            rows,
        ),
    )


def _estimate(r: torch.Tensor, shrink: float, p: int) -> torch.Tensor:
    shrunken = shrink * r
    return banerjee(shrunken, 1 - shrunken.square(), p)


def _limit(shrink: float, p: int) -> float:
    return float(_estimate(torch.ones((), dtype=torch.float64), shrink, p)) / p


def _kappa_line(name: str, r: torch.Tensor, shrink: float, p: int, scale: int) -> Series:
    values = _estimate(r, shrink, p) / scale
    return Series(name, list(zip(r.tolist(), values.tolist(), strict=True)))


def infonce_at_best(tau: float, negatives: int) -> float:
    """log(1 + K exp(-2 / tau)): the least InfoNCE of cosines, one at 1 and the others at -1.

    Example:
        >>> round(infonce_at_best(1.0, 4096), 4)
        6.3196
    """
    return math.log1p(negatives * math.exp(-2 / tau))


def infonce(figures: Figures) -> str:
    """The paper's table of InfoNCE, recomputed."""
    rows, differ = [], 0
    for tau in _TEMPERATURES:
        cells = []
        for negatives, printed in zip(_NEGATIVES, _PRINTED[tau], strict=True):
            value = infonce_at_best(tau, negatives)
            decimals = len(printed.partition(".")[2])
            same = fixed(value, decimals) == printed
            differ += not same
            shown = fixed(value, decimals)
            cells.append(shown if same else f"{shown} (paper: {printed})")
        rows.append([f"{tau:g}", *cells])
    return join(
        "## InfoNCE at the best similarities",
        f"log(1 + K exp(\N{MINUS SIGN}2 / {_TAU})). {differ} of the paper's 12 numbers differ in "
        "the last digit: it cuts them off where they should be rounded up. With K negatives "
        "they cannot all have similarity \N{MINUS SIGN}1; spread as far apart as they can be, at "
        f"\N{MINUS SIGN}1 / K each, the loss at {_TAU} = 1 and K = 4096 is "
        f"{fixed(math.log1p(4096 * math.exp(-1 - 1 / 4096)), 3)}.",
        table((_TAU, *(f"K = {negatives}" for negatives in _NEGATIVES)), rows),
    )


def theorem(figures: Figures) -> str:
    """Theorem 1 and the Proposition, with numbers."""
    p = 128
    rows = []
    for tau in (0.07, 0.1, 0.2, 0.5):
        star = _star(tau, p)
        rows.append([f"{tau:g}", fixed(star, 2), "yes" if _equal(star, tau, p) else "no"])
    shrinks = [
        [
            f"{shrink:g}",
            fixed(_limit(shrink, p), 2),
            fixed(shrink * _limit(shrink, p), 2),
            fixed(1 / (shrink * _limit(shrink, p)), 3),
            fixed(2 * shrink * _limit(shrink, p), 1),
        ]
        for shrink in (0.9, 0.95, 0.97)
    ]
    return join(
        "## Theorem 1 and the Proposition, in numbers",
        f"With one view a side and A({_KAPPA}*) {_KAPPA}* = 1 / {_TAU}, KL differs from the "
        f"cosine divided by {_TAU} by a constant (p = {p}; checked at 41 angles to 1e-9):",
        table((_TAU, f"{_KAPPA}*", "holds"), rows),
        f"As the authors run it, {_LAMBDA} is the temperature. One view gives R = 1, and so the "
        f"same k = {_KAPPA} / p for every image; the similarity is then {_LAMBDA} k cos. So the "
        "margin has a bound, where the Proposition, which knows no stabilisation, has none:",
        table(
            (
                _LAMBDA,
                "largest k",
                f"1 / {_TAU} = {_LAMBDA} k",
                f"{_TAU} it stands for",
                "largest margin",
            ),
            shrinks,
        ),
    )


def _star(tau: float, p: int) -> float:
    """The kappa with A(kappa) kappa = 1 / tau, by bisection."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        at = torch.tensor(middle, dtype=torch.float64)
        if middle * float(bessel_ratio(at, p)) < 1 / tau:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _equal(star: float, tau: float, p: int) -> bool:
    cos = torch.linspace(-1, 1, 41, dtype=torch.float64)
    same = torch.full_like(cos, star)
    constant = -kl_divergence(same, same, cos, p) - cos / tau
    return bool((constant.max() - constant.min()).abs() < 1e-9)
