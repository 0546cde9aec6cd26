"""`toolwire formats MODEL`: the known capabilities of a model on each wire, with the row of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_line
from ..wire.capability_rows import CapabilityRow
from ..wire.profiles import CapabilityMatch, match_capabilities
from ..wire.protocol import Wire
from .show import paint, table

__all__ = ["ModelReport", "model_as_json", "model_lines", "refuse_similar_name", "report_model"]


class ModelReport(NamedTuple):
    """The capabilities of a model on one wire of one vendor."""

    wire: Wire
    vendor: str
    model: str
    match: CapabilityMatch


def report_model(name: str, wire_name: str | None, rows: tuple[CapabilityRow, ...]) -> list[ModelReport]:
    """Look up `name`, or `vendor/name`, on the vendor's wire, on `wire_name`, or on every wire that has a row for it."""
    from ..wire import get, names, vendors

    head, mark, rest = name.partition("/")
    if mark and rest and head in vendors.names():
        vendor = vendors.find(head)
        wire = vendors.vendor_codec(vendor, wire_name)
        return [ModelReport(wire, vendor.name, rest, match_capabilities(wire, rest, vendor=vendor.name, rows=rows))]
    wires = [get(wire_name)] if wire_name else [get(known) for known in names()]
    reports = [ModelReport(wire, wire.provider, name, match_capabilities(wire, name, rows=rows)) for wire in wires]
    return reports if wire_name else [report for report in reports if report.match.rows]


def refuse_similar_name(name: str) -> None:
    """Raise ConfigError if `name` is probably a misspelt wire or text format, and not a model."""
    from difflib import get_close_matches

    from .. import text
    from ..wire import names

    close_matches = get_close_matches(name, [*names(), *text.names()], 1, 0.75)
    if close_matches:
        raise ConfigError(f"unknown wire, text format or model {name!r}", hint=f"did you mean {close_matches[0]!r}?")


def model_lines(name: str, reports: list[ModelReport]) -> list[str]:
    """Return a table per wire: the known fields, and the row that states each."""
    known = [report for report in reports if report.match.rows]
    if not known:
        return [
            f"{neutralise_line(name)}: capabilities unknown. Only the limits of its wire apply; nothing else is dropped or changed.",
            "Describe it in toolwire.toml ([models.NAME.capabilities]) or in a capabilities file.",
        ]
    lines: list[str] = []
    for report in known:
        version = f"@{report.wire.version}" if report.wire.version else ""
        lines += ["", paint(f"{report.model} on {report.wire.name}{version} ({report.vendor})", "bold")]
        fields = report.match.rows.items()
        entries = [
            (field, _show(getattr(report.match.capabilities, field)), row.date, row.source) for field, row in fields
        ]
        lines += table(sorted(entries), ("capability", "value", "date", "source"))
    return lines[1:]


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) or "none" if isinstance(value, tuple) else str(value)


def model_as_json(report: ModelReport) -> dict[str, Any]:
    return {
        "wire": report.wire.name,
        "version": report.wire.version,
        "vendor": report.vendor,
        "model": report.model,
        "capabilities": {
            field: {
                "value": getattr(report.match.capabilities, field),
                "source": row.source,
                "date": row.date,
                "models": list(row.models),
            }
            for field, row in sorted(report.match.rows.items())
        },
    }
