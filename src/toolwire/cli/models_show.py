"""`toolwire models show NAME`: the known facts about a model, each with its source and date.

Facts that hold everywhere come first, then the facts of single wires and vendors, which take precedence over them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_line
from ..wire import get, names
from ..wire.models.capabilities import CapabilityRow
from ..wire.models.profiles import known_rows, match_capabilities, normalise_model
from ..wire.models.rows import ROWS
from .terminal.output import json_text, paint, paragraph, table, terminal_width


class FactGroup(NamedTuple):
    """The facts about a model on some wires of some vendors, each with the row that states it. Empty: all of them."""

    wires: tuple[str, ...]
    vendors: tuple[str, ...]
    facts: Mapping[str, CapabilityRow]


def show_model(name: str, wire: str | None, capability_file: str | None, *, as_json: bool) -> int:
    """Print the facts about a model. Return 1 if there are none."""
    from ..net.model.endpoint_settings import load_capability_rows

    groups = find_facts(name, wire, () if capability_file is None else load_capability_rows(capability_file))
    if as_json:
        print(json_text({"model": name, "facts": [group_as_json(group) for group in groups]}, sort_keys=True))
    else:
        print("\n".join(model_lines(name, groups)))
    return 0 if groups else 1


def find_facts(name: str, wire_name: str | None, rows: tuple[CapabilityRow, ...]) -> list[FactGroup]:
    """Find the facts about `name`, or about `vendor/name` on the vendor's wire. `rows` come before the built-in ones."""
    from ..wire.models import vendors
    from ..wire.models.vendor_codecs import vendor_codec

    head, mark, rest = name.partition("/")
    if mark and rest and head in vendors.names():
        wire = vendor_codec(vendors.find(head), wire_name)
        facts = match_capabilities(wire, rest, vendor=head, rows=rows).rows
        return [FactGroup((wire.name,), (head,), facts)] if facts else []
    if wire_name is not None:
        wire = get(wire_name)
        facts = match_capabilities(wire, name, rows=rows).rows
        return [FactGroup((wire.name,), (wire.provider,), facts)] if facts else []
    return _group_by_scope(name, rows)


def _group_by_scope(name: str, rows: tuple[CapabilityRow, ...]) -> list[FactGroup]:
    """Group the capabilities of a model by wires and vendors, the general groups first.

    The first matching row sets a field, so `rows` take precedence over the built-in rows. There are no groups if only
    built-in rows about every model match, because they do not make a name known.
    """
    names = (name.lower(), normalise_model(name))
    matching = [row for row in known_rows(rows) if row.matches(names)]
    if not any(row in rows or not row.is_about_every_model for row in matching):
        return []
    scopes: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, CapabilityRow]] = {}
    for row in matching:
        vendors = () if row.vendors == ("*",) else row.vendors
        facts = scopes.setdefault((row.wires, vendors), {})
        for field in row.capabilities.__struct_fields__:
            if getattr(row.capabilities, field) is not None:
                facts.setdefault(field, row)
    groups = [FactGroup(wires, vendors, facts) for (wires, vendors), facts in scopes.items()]
    return sorted(groups, key=lambda group: (bool(group.vendors), -len(group.wires or range(99))))


def refuse_similar_name(name: str) -> None:
    """Raise ConfigError if `name` is probably a misspelt wire or text format, and not a model."""
    from .. import text

    close_matches = get_close_matches(name, [*names(), *text.names()], 1, 0.75)
    if close_matches:
        raise ConfigError(f"unknown wire, text format or model {name!r}", hint=f"did you mean {close_matches[0]!r}?")


def model_lines(name: str, groups: list[FactGroup]) -> list[str]:
    """Return a table of facts per group, and the list of their sources."""
    if not groups:
        return _unknown_lines(name)
    width = terminal_width()
    sources: dict[tuple[str, str], int] = {}
    lines: list[str] = []
    for group in groups:
        lines += [paint(line, "bold") for line in textwrap.wrap(_title(name, group), width)]
        entries = [
            (field, f"[{_number(row, sources)}]", _show(getattr(row.capabilities, field)))
            for field, row in sorted(group.facts.items())
        ]
        lines += [*table(entries, ("fact", "source", "value")), ""]
    for (date, source), number in sources.items():
        head, addresses = f"[{number}] {date}", source.split("; ")
        if len(head) + len(addresses[0]) + 2 <= width:
            head = neutralise_line(f"{head}  {addresses.pop(0)}")
        lines += [head, *(line for address in addresses for line in paragraph(address, "  "))]
    return lines


def _number(row: CapabilityRow, sources: dict[tuple[str, str], int]) -> int:
    return sources.setdefault((row.date, row.source), len(sources) + 1)


def _title(name: str, group: FactGroup) -> str:
    wires = f" on {', '.join(group.wires)}" if group.wires else ""
    vendors = f" at {', '.join(group.vendors)}" if group.vendors else ", at every vendor" if group.wires else ""
    return neutralise_line(f"{name}{wires}{vendors}")


def _unknown_lines(name: str) -> list[str]:
    """Return the lines for a model without capability rows, with similar names that have some."""
    patterns = {pattern.rstrip("*-"): None for row in ROWS for pattern in row.models if "[" not in pattern}
    close_matches = get_close_matches(normalise_model(name), patterns, 3, 0.7)
    lines = [
        f"{name}: not a wire or a text format; as a model, capabilities unknown.",
        "Only the limits of its wire apply; nothing else is dropped or changed.",
        *([f"similar names that are known: {', '.join(close_matches)}"] if close_matches else []),
        "Describe it in toolwire.toml ([models.NAME.capabilities]) or in a file of rows.",
    ]
    return [part for line in lines for part in paragraph(line)]


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return " ".join(value) or "none" if isinstance(value, tuple) else str(value)


def group_as_json(group: FactGroup) -> dict[str, Any]:
    """Return a group of facts as JSON, each with its source and date."""
    return {
        "wires": list(group.wires),
        "vendors": list(group.vendors),
        "capabilities": {
            field: {
                "value": getattr(row.capabilities, field),
                "source": row.source,
                "date": row.date,
                "models": list(row.models),
            }
            for field, row in sorted(group.facts.items())
        },
    }
