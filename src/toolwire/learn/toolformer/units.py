"""Convert amounts between units of the same quantity."""

from __future__ import annotations

import re

from ...run.calls.context import ToolError
from .calculator import format_number

__all__ = ["UNIT_PATTERN", "convert"]

_QUANTITIES: dict[str, dict[str, float]] = {
    "length": {
        "millimeter": 0.001,
        "centimeter": 0.01,
        "meter": 1.0,
        "kilometer": 1000.0,
        "inch": 0.0254,
        "foot": 0.3048,
        "yard": 0.9144,
        "mile": 1609.344,
    },
    "mass": {
        "milligram": 1e-6,
        "gram": 0.001,
        "kilogram": 1.0,
        "ton": 1000.0,
        "ounce": 0.028349523125,
        "pound": 0.45359237,
    },
    "time": {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0, "week": 604_800.0},
    "volume": {"milliliter": 0.001, "liter": 1.0, "pint": 0.473176473, "gallon": 3.785411784, "cup": 0.2365882365},
    "area": {"square meter": 1.0, "hectare": 10_000.0, "acre": 4046.8564224, "square kilometer": 1e6},
    "speed": {"meter per second": 1.0, "kilometer per hour": 1 / 3.6, "mile per hour": 0.44704},
}
_TEMPERATURES = ("celsius", "fahrenheit", "kelvin")
_PLURALS = {"feet": "foot", "inches": "inch"}
_ABBREVIATIONS = {
    "mm": "millimeter", "cm": "centimeter", "m": "meter", "km": "kilometer", "in": "inch", "ft": "foot", "yd": "yard",
    "mi": "mile", "mg": "milligram", "g": "gram", "kg": "kilogram", "oz": "ounce", "lb": "pound", "lbs": "pound",
    "s": "second", "min": "minute", "h": "hour", "ml": "milliliter", "l": "liter", "km/h": "kilometer per hour",
    "mph": "mile per hour", "m/s": "meter per second", "c": "celsius", "f": "fahrenheit", "k": "kelvin",
}  # fmt: skip
_REQUEST = re.compile(r"(-?[0-9][0-9,]{0,14}(?:\.[0-9]{1,9})?) ?([a-z/ ]{1,30}?) (?:to|in) ([a-z/ ]{1,30})")
UNIT_PATTERN = "|".join(sorted({unit for units in _QUANTITIES.values() for unit in units} | set(_TEMPERATURES)))
"""A regular expression of the unit names, without plurals and abbreviations."""


def convert(request: str) -> str:
    """Return the amount in the other unit.

    >>> convert("26.2 miles to kilometers")
    '42.16 kilometers'
    """
    found = _REQUEST.fullmatch(" ".join(request.lower().split()))
    if not found:
        raise ToolError("the request must be an amount and two units, such as 3 miles to kilometers")
    amount, source, target = float(found[1].replace(",", "")), _unit_name(found[2]), _unit_name(found[3])
    if source in _TEMPERATURES and target in _TEMPERATURES:
        return f"{format_number(_from_kelvin(_to_kelvin(amount, source), target))} {found[3]}"
    for units in _QUANTITIES.values():
        if source in units and target in units:
            return f"{format_number(amount * units[source] / units[target])} {found[3]}"
    raise ToolError(f"cannot convert {found[2]} to {found[3]}")


def _unit_name(text: str) -> str:
    name = _ABBREVIATIONS.get(text, text).removeprefix("degrees ").replace("metre", "meter").replace("litre", "liter")
    head, separator, rest = name.partition(" per ")
    head = _PLURALS.get(head, head)
    known = {unit for units in _QUANTITIES.values() for unit in units} | set(_TEMPERATURES)
    singular = head if head + separator + rest in known else head.removesuffix("s")
    return singular + separator + rest


def _to_kelvin(amount: float, unit: str) -> float:
    return {"celsius": amount + 273.15, "fahrenheit": (amount + 459.67) * 5 / 9, "kelvin": amount}[unit]


def _from_kelvin(kelvin: float, unit: str) -> float:
    return {"celsius": kelvin - 273.15, "fahrenheit": kelvin * 9 / 5 - 459.67, "kelvin": kelvin}[unit]
