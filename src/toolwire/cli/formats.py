"""`toolwire formats`: the wires, what they can say and what they allow."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..wire.protocol import Wire
from .show import paint, table

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire formats
  toolwire formats anthropic
  toolwire formats --json | jq '.[].limits'
"""
_FLAGS = {
    "freeform": "tools whose input is plain text",
    "strict": "strict schemas per tool",
    "parallel": "a switch for parallel calls",
    "namespaces": "tools in namespaces",
    "examples": "example inputs in declarations",
    "result_error": "a flag for failed results",
    "result_structured": "JSON values as results",
    "object_arguments": "arguments as an object (else as text)",
    "ordered": "text and calls keep their order",
    "developer": "a developer role",
    "system_anywhere": "system messages anywhere",
}


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "formats",
        help="list the wires with their capabilities and limits",
        description="List the wires with their capabilities and limits.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("wire", nargs="?", help="only this one")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..wire import get, names

    wires = [get(arguments.wire)] if arguments.wire else [get(name) for name in names()]
    if arguments.json:
        print(json.dumps([_as_json(wire) for wire in wires], indent=2, sort_keys=True))
        return 0
    for line in _overview(wires):
        print(line)
    return 0


def _as_json(wire: Wire) -> dict[str, Any]:
    import msgspec

    capabilities = msgspec.structs.asdict(wire.capabilities)
    return {
        "name": wire.name,
        "version": wire.version,
        "versions": sorted(getattr(wire, "versions", {})),
        "provider": wire.provider,
        "dialect": wire.dialect,
        "limits": msgspec.structs.asdict(wire.limits),
        "capabilities": {
            name: sorted(value) if isinstance(value, frozenset) else value for name, value in capabilities.items()
        },
    }


def _overview(wires: list[Wire]) -> list[str]:
    headers = ("", *(wire.name for wire in wires))
    rows = [
        ("versions", *(", ".join(sorted(getattr(wire, "versions", {}))) or "-" for wire in wires)),
        ("tool choice", *(_listed(wire.capabilities.choices) for wire in wires)),
        ("media in messages", *(_listed(wire.capabilities.media) for wire in wires)),
        ("media in results", *(_listed(wire.capabilities.result_media) for wire in wires)),
        ("cache marks on", *(_listed(wire.capabilities.cache) for wire in wires)),
    ]
    rows += [(words, *("✓" if getattr(w.capabilities, flag) else "·" for w in wires)) for flag, words in _FLAGS.items()]
    rows += [
        ("length of a tool name", *(str(wire.limits.name_length) for wire in wires)),
        ("length of a call id", *(str(wire.limits.id_length) for wire in wires)),
        ("tools in a request", *(str(wire.limits.tools or "-") for wire in wires)),
    ]
    lines = table(rows, headers)
    return [paint(lines[0], "bold"), *lines[1:]]


def _listed(values: frozenset[str]) -> str:
    return " ".join(sorted(values)) or "-"
