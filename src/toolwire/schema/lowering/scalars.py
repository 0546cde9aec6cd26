"""Emit strings, numbers and enums for a dialect.

Bounds of integers that a dialect cannot express become a pattern for their decimal digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import itemgetter
from typing import TypeAlias

from ...ir.pointer import JSON, Object
from ...ir.text import dumps, shorten
from ..parsing.nodes import EnumNode, Node, NullNode, NumberNode, StringNode, annotate, any_of
from ..validation.patterns import ASSERTED, INCOMPLETE, format_pattern, is_supported, length_pattern
from . import codec as codecs
from .codec import Codec
from .conformance import enum_length_problem, is_enum_value
from .emission import EmitContext, Emitted

# Patterns for the decimal digits of the integers between two bounds.
#
# range_pattern(1, 250) → ^(?:[1-9]|1[0-9]{2}|2[0-4][0-9]|250|[1-9][0-9])$


_MAX_DIGITS = 40
"""The length of a pattern grows with the digits of its bounds; beyond this it would be useless."""


def range_pattern(low: int | None, high: int | None) -> str | None:
    """Return a pattern for the integers from `low` to `high`; None if a bound is too long, or the range is empty.

    A missing bound leaves its side open: any number of digits.

    >>> range_pattern(1, None)
    '^(?:[1-9][0-9]*)$'
    """
    bounds = [bound for bound in (low, high) if bound is not None]
    if any(abs(bound) >= 10**_MAX_DIGITS for bound in bounds) or bounds != sorted(bounds):
        return None
    parts: list[str] = []
    if low is None or low < 0:
        smallest = 1 if high is None else max(1, -high)
        parts += [f"-{part}" for part in _patterns_from(smallest, None if low is None else -low)]
    if high is None or high >= 0:
        parts += _patterns_from(max(0, low) if low is not None else 0, high)
    return f"^(?:{'|'.join(parts)})$"


def _patterns_from(low: int, high: int | None) -> Iterator[str]:
    """Yield patterns for the numbers from `low` to `high`, neither negative; without `high`, for all from `low`."""
    if high is not None:
        yield from _patterns_between(low, high)
        return
    if low <= 1:
        yield from ["0", "[1-9][0-9]*"] if low == 0 else ["[1-9][0-9]*"]
        return
    length = len(str(low))
    yield from _patterns_between(low, 10**length - 1)
    yield f"[1-9][0-9]{{{length},}}"


def _patterns_between(low: int, high: int) -> Iterator[str]:
    """Yield patterns for the numbers from `low` to `high`, neither negative: one length after the other."""
    full: list[int] = []  # lengths with all numbers in the range
    for length in range(len(str(low)), len(str(high)) + 1):
        minimum, maximum = 10 ** (length - 1) if length > 1 else 0, 10**length - 1
        if length > 1 and low <= minimum and maximum <= high:
            full.append(length)
        else:
            yield from _same_length_patterns(str(max(low, minimum)), str(min(high, maximum)))
    if full:
        yield f"[1-9]{_any_digits(full[0] - 1, full[-1] - 1)}"


def _any_digits(minimum: int, maximum: int) -> str:
    """Return a pattern for `minimum` to `maximum` digits."""
    if maximum == 0:
        return ""
    count = (
        "" if (minimum, maximum) == (1, 1) else f"{{{minimum}}}" if minimum == maximum else f"{{{minimum},{maximum}}}"
    )
    return f"[0-9]{count}"


def _same_length_patterns(low: str, high: str) -> Iterator[str]:
    """Yield patterns for the numbers between two bounds of the same length, by their first differing digit.

    They cover the lowest first digit, then all digits between, then the highest, each with its possible rest.
    """
    if not low or (set(low) == {"0"} and set(high) == {"9"}):
        yield _any_digits(len(low), len(low))
        return
    if low[0] == high[0]:
        yield from (f"{low[0]}{rest}" for rest in _same_length_patterns(low[1:], high[1:]))
        return
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    if low[1:].strip("0"):
        yield from (f"{low[0]}{tail}" for tail in _same_length_patterns(low[1:], "9" * rest))
        first += 1
    if high[1:].strip("9"):
        last -= 1
    if first <= last:
        yield _digit_class(str(first), str(last)) + _any_digits(rest, rest)
    if high[1:].strip("9"):
        yield from (f"{high[0]}{tail}" for tail in _same_length_patterns("0" * rest, high[1:]))


def _digit_class(low: str, high: str) -> str:
    return low if low == high else f"[{low}-{high}]"


MAX_LISTED_INTEGERS = 128
"""Integer ranges up to this length are listed as an enum if the dialect has no bounds."""


def emit_string(writer: EmitContext, node: StringNode) -> Emitted:
    """Emit a string; without `minLength` in the dialect, a length becomes a pattern or part of the description.

    A pattern or format that the dialect does not have is stated in the description; unenforced ones are losses.
    """
    can = writer.dialect.keywords
    out: Object = {"type": "string"}
    remarks: list[str] = []
    pattern = node.pattern
    if pattern is not None:
        is_sent = "pattern" in can and is_supported(pattern, writer.dialect.patterns)
        writer.report_pattern(node, pattern, is_sent)
        if not is_sent:
            remarks.append(f"pattern: {short_value(pattern)}")
            pattern = None
    low, high = node.min_length, node.max_length
    if "minLength" not in can and (low or high is not None):
        # a string has one pattern, and its own pattern or its format comes first
        used = pattern or (node.format and format_pattern(node.format))
        generated = None if used or "pattern" not in can else length_pattern(low, high)
        if generated is not None:
            pattern, low, high = generated
        for keyword, value in (("minLength", low or None), ("maxLength", high)):
            if value is not None:
                remarks.append(f"{keyword}: {value}")
                writer.report_unenforced(node, keyword)
    else:
        out.update({k: v for k, v in (("minLength", low or None), ("maxLength", high)) if v is not None})
    if node.format is not None:
        pattern = _emit_format(writer, node, node.format, pattern, out, remarks)
    if pattern is not None:
        out["pattern"] = pattern
    return Emitted(writer.add_description(out, node, remarks))


def _emit_format(
    writer: EmitContext, node: StringNode, name: str, pattern: str | None, out: Object, remarks: list[str]
) -> str | None:
    """Emit a format by name, as a pattern, or in the description; return the pattern to emit."""
    can = writer.dialect.keywords
    if "format" in can and (writer.dialect.formats is None or name in writer.dialect.formats):
        out["format"] = name
        return pattern
    generated = format_pattern(name)
    if (
        generated is not None
        and pattern is None
        and "pattern" in can
        and is_supported(generated, writer.dialect.patterns)
    ):
        if name in INCOMPLETE:
            writer.report_rewrite(
                node, "format", f"sent as a pattern, which does not cover {INCOMPLETE[name]}", "format"
            )
        return generated
    remarks.append(f"format: {name}")
    if name in ASSERTED:
        writer.report_unenforced(node, "format")
    return pattern


def emit_number(writer: EmitContext, node: NumberNode) -> Emitted:
    """Emit a number.

    Where the dialect has no bounds, an integer becomes an enum or a string of digits with a pattern.
    """
    can = writer.dialect.keywords
    bounds = _effective_bounds(node)
    unsupported = [keyword for keyword in bounds if keyword not in can]
    if unsupported and node.integer and (rewritten := _emit_bounded_integer(writer, node, bounds)) is not None:
        return rewritten
    out: Object = {"type": "integer" if node.integer else "number"}
    remarks: list[str] = []
    for keyword, (value, source) in bounds.items():
        inclusive = keyword.replace("exclusiveM", "m")
        if keyword in can:
            out[keyword] = value
            continue
        if inclusive != keyword and inclusive in can and inclusive not in bounds:
            out[inclusive] = value
        remarks.append(f"{keyword}: {value}")
        writer.report_unenforced(node, source)
    if node.format is not None and _allows_number_format(writer, node.format):
        out["format"] = node.format
    elif node.format is not None:
        writer.report_omitted(node, "format", "the dialect does not have this format for numbers")
    return Emitted(writer.add_description(out, node, remarks))


def _allows_number_format(writer: EmitContext, name: str) -> bool:
    row = writer.dialect
    return "format" in row.keywords and (row.formats is None or name in row.number_formats)


def _emit_bounded_integer(writer: EmitContext, node: NumberNode, bounds: Bounds) -> Emitted | None:
    """Emit an integer so that its bounds are enforced by an enum, or by a pattern; None if neither is possible."""
    if (listed := _listed_integers(bounds)) is not None:
        written, codec = _enum_values(writer, node, list(listed))
    elif (digits := _digits_pattern(writer, bounds)) is not None:
        writer.report_rewrite(node, "whole number", "sent as its digits in a string, so that the bounds are enforced")
        written, codec = {"type": "string", "pattern": digits}, codecs.integer_string_codec()
    else:
        return None
    if node.format is not None:
        writer.report_omitted(node, "format", "the bounds are enforced instead")
    remarks = ["a whole number"] if "pattern" in written else []
    return Emitted(writer.add_description(written, node, remarks, codec), codec)


def _digits_pattern(writer: EmitContext, bounds: Bounds) -> str | None:
    """Return a pattern that enforces the bounds, or None if the provider enforces no patterns, and beside `multipleOf`.

    None also for bounds that only keep a number exact in a double: generators write them everywhere, and they are not
    worth another type.
    """
    if not writer.dialect.enforced or "pattern" not in writer.dialect.keywords or "multipleOf" in bounds:
        return None
    low, high = (
        None if (bound := bounds.get(keyword)) is None else int(bound[0]) for keyword in ("minimum", "maximum")
    )
    if all(bound is None or abs(bound) >= _LEAST_EXACT_LIMIT for bound in (low, high)):
        return None
    return range_pattern(low, high)


_LEAST_EXACT_LIMIT = 2**53 - 1
"""The largest integer that JSON parsers with doubles keep exactly (RFC 8259, section 6)."""


def emit_enum(writer: EmitContext, node: EnumNode, depth: int = 0) -> Emitted:
    """Emit an enum.

    With more values than the dialect allows, it is stated in the description instead, as a loss. Where a schema has one
    type only, values of several types become a union. Null becomes a flag in dialects with `nullable`.
    """
    values = list(node.values)
    maximum = writer.dialect.enum_values
    too_many = (
        f"more than {maximum} values"
        if maximum is not None and len(values) > maximum
        else enum_length_problem(values, writer.dialect)
    )
    if too_many is not None:
        writer.report_unenforced(node, "enum", f"{too_many}: stated in the description, checked afterwards")
        kinds = {_type_name(value) for value in values}
        kind = kinds.pop() if len(kinds) == 1 else "string"
        return Emitted(writer.add_description({"type": kind}, node, [f"one of {short_value(values)}"]))
    are_sent = all(is_enum_value(value, writer.dialect) for value in values)
    if are_sent and not writer.dialect.type_lists and (union := _split_by_type(node)) is not None:
        return writer.emit(union, depth)
    null = None in values and len(values) > 1 and writer.dialect.null == "nullable"
    if null:
        values = [value for value in values if value is not None]
    out, codec = _enum_values(writer, node, values)
    if null:
        out["nullable"] = True
    return Emitted(writer.add_description(out, node, [], codec), codec)


def _split_by_type(node: EnumNode) -> Node | None:
    """Return an enum with values of several types as a union of enums with one type each; None if there is one type."""
    by_type: dict[str, list[JSON]] = {}
    for value in node.values:
        by_type.setdefault("number" if type(value) in (int, float) else _type_name(value), []).append(value)
    if len(by_type.keys() - {"null"}) < 2:
        return None
    branches: list[Node] = [
        NullNode(at=node.at) if kind == "null" else EnumNode(tuple(values), at=node.at, origins=node.origins)
        for kind, values in by_type.items()
    ]
    return annotate(any_of(branches, one_of=False, at=node.at), node)


def _enum_values(writer: EmitContext, node: Node, values: list[JSON]) -> tuple[Object, Codec | None]:
    """Return the schema of an enum and no codec; or, if the dialect does not allow a value, names and their codec.

    The names are strings: the values as JSON, with spaces at the end where two would be equal.
    """
    unsupported_values = [value for value in values if not is_enum_value(value, writer.dialect)]
    if not unsupported_values:
        return {"type": _type_names(values), "enum": values} if values else {"type": "string"}, None
    names: dict[str, None] = {}
    for value in values:
        name = value if type(value) is str and value else dumps(value) if value != "" else "(empty)"
        while name in names:
            name += " "
        names[name] = None
    is_enum = isinstance(node, EnumNode)
    writer.report_rewrite(node, "whole number", "the values are sent as strings", "enum" if is_enum else None)
    return {"type": "string", "enum": list(names)}, codecs.enum_codec(values, list(names))


def short_value(value: JSON) -> str:
    return shorten(value if type(value) is str else dumps(value), 300)


Bounds: TypeAlias = dict[str, tuple[float, str]]
"""Bounds by keyword: the value, and the keyword of the source that it comes from."""


def _effective_bounds(node: NumberNode) -> Bounds:
    """Return the bounds with their keywords in the source; an integer's are rounded inwards and made inclusive."""
    pairs: dict[str, float | None] = {
        "minimum": node.minimum,
        "maximum": node.maximum,
        "exclusiveMinimum": node.exclusive_minimum,
        "exclusiveMaximum": node.exclusive_maximum,
        "multipleOf": node.multiple_of,
    }
    bounds = {keyword: (value, keyword) for keyword, value in pairs.items() if value is not None}
    return _integer_bounds(bounds) if node.integer else bounds


def _integer_bounds(bounds: Bounds) -> Bounds:
    """Round the bounds of an integer inwards, and make them inclusive."""
    low = [(math.ceil(value), source) for value, source in _present(bounds, "minimum")]
    low += [(math.floor(value) + 1, source) for value, source in _present(bounds, "exclusiveMinimum")]
    high = [(math.floor(value), source) for value, source in _present(bounds, "maximum")]
    high += [(math.ceil(value) - 1, source) for value, source in _present(bounds, "exclusiveMaximum")]
    out: Bounds = {}
    if low:
        out["minimum"] = max(low, key=itemgetter(0))
    if high:
        out["maximum"] = min(high, key=itemgetter(0))
    if "multipleOf" in bounds and bounds["multipleOf"][0] != 1:  # every integer is a multiple of 1
        out["multipleOf"] = bounds["multipleOf"]
    return out


def _present(bounds: Bounds, keyword: str) -> list[tuple[float, str]]:
    return [bounds[keyword]] if keyword in bounds else []


def _listed_integers(bounds: Bounds) -> list[int] | None:
    """Return the integers within the bounds if they are few enough to be listed."""
    low, high, step = (bounds.get(keyword, (None, ""))[0] for keyword in ("minimum", "maximum", "multipleOf"))
    if low is None or high is None or not 0 <= high - low < MAX_LISTED_INTEGERS * (step or 1):
        return None
    values = [value for value in range(int(low), int(high) + 1) if not step or (value / step).is_integer()]
    return values if 0 < len(values) <= MAX_LISTED_INTEGERS else None


TYPE_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null", list: "array"}


def _type_name(value: JSON) -> str:
    return TYPE_NAMES.get(type(value), "object")


def _type_names(values: list[JSON]) -> JSON:
    kinds = list(dict.fromkeys(_type_name(value) for value in values))
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    return kinds[0] if len(kinds) == 1 else kinds
