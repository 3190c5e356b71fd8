"""Quantities of the Kubernetes API. Pure. Source: apimachinery, resource.Quantity."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil

from tests.kubernetes.emulator.objects import EmulatorError

_FORM = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)\Z")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def parse_quantity(text: str) -> Fraction:
    """Return the number that a quantity stands for."""
    match = _FORM.match(text)
    if match is None or match[3] == "K":
        raise EmulatorError(f"not a quantity: {text!r}")
    number, exponent, suffix = Fraction(match[1]), match[2], match[3] or ""
    if exponent:
        return number * Fraction(10) ** int(exponent[1:])
    if suffix.endswith("i"):
        return number * 1024 ** ("KMGTPE".index(suffix[0]) + 1)
    return number * Fraction(10) ** _DECIMAL[suffix]


def in_units_of(amount: str, divisor: str) -> int:
    """Return how many divisors there are in an amount, rounded up. A divisor of 0 means 1."""
    return ceil(parse_quantity(amount) / (parse_quantity(divisor) or 1))
