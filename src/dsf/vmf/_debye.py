"""Exact coefficients of the logarithmic Debye expansion, combined for one order.

The uniform expansion of the modified Bessel function for large order v reads, with
h = sqrt(kappa^2 + v^2) and x = v / h in (0, 1],

    log I_v(kappa) = h + v log(kappa / (v + h)) - 1/2 log(2 pi h) + sum_{k>=1} D_k(x) / v^k.

The D_k are polynomials with rational coefficients. Their derivatives E_k = D_k' obey a
recursion of their own (the Riccati form of DLMF 10.41.10, found by inserting
U = exp(sum D_k / v^k) into the recursion of the U_k):

    E_1     = (1 - 5 x^2) / 8
    E_{k+1} = x^2 (1 - x^2) / 2 * (E_k' + sum_{i+j=k} E_i E_j) + (x - 2 x^3) E_k.

Everything here is rational arithmetic on the host, done once for an order and a precision;
what comes out are Python floats for Horner's scheme.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import torch

Polynomial = list[Fraction]
Coefficients = tuple[float, ...]

# Below this order the expansion needs too many terms, or never gets there; smaller orders are
# reached from it by backward recurrence.
_LOWEST_ORDER = {torch.float64: 24, torch.float32: 12}


class Expansion(NamedTuple):
    """The expansion at order ``v = nu + steps``, with S = sum E_k / v^k and D = sum D_k / v^k."""

    v: float
    steps: int
    c: Coefficients  # 2 (nu + 1) of every step, from the highest order down
    D: Coefficients
    Q: Coefficients  # (D(x) - D(1)) / (1 - x)
    S: Coefficients
    H: Coefficients  # x + x^2 S - (1 - x^2)(2 S + x S')
    J: Coefficients  # 1 - 3 x H - x^2 H'


def expansion(nu: float, dtype: torch.dtype) -> Expansion:
    """Return the coefficients for order ``nu >= 0`` that reach the precision of ``dtype``."""
    return _expansion(float(nu), _LOWEST_ORDER[dtype], torch.finfo(dtype).eps)


@cache
def _expansion(nu: float, lowest_order: int, eps: float) -> Expansion:
    steps = max(0, math.ceil(lowest_order - nu))
    v = Fraction(nu) + steps
    terms = _number_of_terms(float(v), eps)
    S = _combine(terms, v)
    D = [Fraction(0), *(coefficient / (j + 1) for j, coefficient in enumerate(S))]
    Q = [-sum(D[j + 1 :], Fraction(0)) for j in range(len(D) - 1)]
    # A further derivative wants further terms for the same accuracy.
    longer = _H(_combine(terms + 2, v))
    J = _add(
        [Fraction(1)], _scale(_shift(longer, 1), -3), _scale(_shift(_derivative(longer), 2), -1)
    )
    c = tuple(float(2 * (v - step)) for step in range(steps))
    return Expansion(float(v), steps, c, *(_floats(poly) for poly in (D, Q, S, _H(S), J)))


def _combine(terms: int, v: Fraction) -> Polynomial:
    return _add(*([coefficient / v**k for coefficient in _E(k)] for k in range(1, terms + 1)))


def _H(S: Polynomial) -> Polynomial:
    inner = _add(_scale(S, 2), _shift(_derivative(S), 1))
    return _add(_shift([Fraction(1)], 1), _shift(S, 2), _scale(inner, -1), _shift(inner, 2))


def _number_of_terms(v: float, eps: float) -> int:
    terms = 1
    while _effect(terms + 1) / v ** (terms + 2) > eps / 2:
        terms += 1
    return terms


@cache
def _effect(k: int) -> float:
    """Largest relative change, times v^(k+1), that E_k makes to A_p or A_p'."""
    E, slope = _E(k), _derivative(_E(k))
    largest = Fraction(0)
    for x in (Fraction(i, 16) for i in range(1, 17)):
        value = _evaluate(E, x)
        on_ratio = x * value
        on_derivative = x**2 * value - (1 - x**2) * (2 * value + x * _evaluate(slope, x))
        largest = max(largest, x * (1 + x) * max(abs(on_ratio), abs(on_derivative)))
    return float(largest)


def _evaluate(polynomial: Polynomial, x: Fraction) -> Fraction:
    total = Fraction(0)
    for coefficient in reversed(polynomial):
        total = total * x + coefficient
    return total


@cache
def _E(k: int) -> Polynomial:
    if k == 1:
        return [Fraction(1, 8), Fraction(0), Fraction(-5, 8)]
    last = _E(k - 1)
    bracket = _derivative(last)
    for i in range(1, k - 1):
        bracket = _add(bracket, _multiply(_E(i), _E(k - 1 - i)))
    half = _scale(bracket, Fraction(1, 2))
    first = _add(_shift(half, 2), _scale(_shift(half, 4), -1))
    return _add(first, _shift(last, 1), _scale(_shift(last, 3), -2))


def _add(*polynomials: Polynomial) -> Polynomial:
    length = max(len(polynomial) for polynomial in polynomials)
    return [
        sum((poly[j] for poly in polynomials if j < len(poly)), Fraction(0)) for j in range(length)
    ]


def _scale(polynomial: Polynomial, factor: Fraction | int) -> Polynomial:
    return [factor * coefficient for coefficient in polynomial]


def _shift(polynomial: Polynomial, powers: int) -> Polynomial:
    return [Fraction(0)] * powers + polynomial


def _derivative(polynomial: Polynomial) -> Polynomial:
    return [j * coefficient for j, coefficient in enumerate(polynomial)][1:]


def _multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    product = [Fraction(0)] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            if a and b:  # every other coefficient is zero
                product[i + j] += a * b
    return product


def _floats(polynomial: Sequence[Fraction]) -> Coefficients:
    return tuple(float(coefficient) for coefficient in polynomial)
