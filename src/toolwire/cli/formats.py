"""`toolwire formats`: list the wires with their capabilities, the text formats, and the known capabilities of a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import msgspec

from .. import text
from ..ir.errors import ConfigError
from ..ir.parts import ToolCall
from ..text import detect
from ..text.engine.format import Format
from ..wire import get, names
from ..wire.protocol import Wire
from .sources.text_input import TEMPLATE_HELP, format_of_template
from .terminal.options import add_command, add_flag
from .terminal.output import json_text, paint, paragraph, table, terminal_width, text_lines

_HELP = """\
List the wires with their capabilities and limits, and the text formats with their models.

examples:
  toolwire formats
  toolwire formats anthropic
  toolwire formats hermes                           a text format: its models, reasoning markers, a call and a result
  toolwire formats Qwen/Qwen3-8B                    the text format of an open model
  toolwire formats anthropic/claude-opus-5-5        as `toolwire models show`
  toolwire formats --template chat_template.jinja   the text format that a chat template writes
  toolwire formats --json | jq '.wires[].limits'
"""
_SHOWN_FAMILIES = 1  # model patterns of a format in the list; `formats NAME` shows all of them
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
    parser = add_command(commands, "formats", "list wires and text formats with their capabilities", _HELP, run)
    parser.add_argument("name", nargs="?", help="show only this wire, text format or model (MODEL or PROVIDER/MODEL)")
    parser.add_argument("--wire", help="the wire of a model; default: the provider's, or every wire with a row for it")
    parser.add_argument("--template", metavar="FILE", help=TEMPLATE_HELP)
    parser.add_argument("--capabilities", metavar="FILE", help="a JSON file of capability rows for models")
    add_flag(parser, "--json", "print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print all wires and text formats, a named wire or format, or the format and facts of a model.

    Raises `ConfigError` for a name together with --template, and for an unknown name.
    """
    if arguments.template and arguments.name:
        raise ConfigError(f"got both the name {arguments.name!r} and --template", hint="give one of them")
    chosen = format_of_template(arguments.template).name if arguments.template else arguments.name
    in_text = chosen in text.names()
    if chosen and not in_text and chosen.partition("@")[0] not in names():
        return _run_model(chosen, arguments)
    wires = [] if in_text else [get(chosen)] if chosen else [get(name) for name in names()]
    formats = [text.get(chosen)] if in_text else [] if chosen else [text.get(name) for name in text.names()]
    if arguments.json:
        document = {
            "wires": [_wire_as_json(wire) for wire in wires],
            "text": [_format_as_json(form) for form in formats],
        }
        print(json_text(document, sort_keys=True))
        return 0
    lines = _overview_lines(wires) if wires else []
    if in_text:
        lines = _describe_format(formats[0])
    elif formats:
        rows = [(form.name, _format_flags(form), form.title, _first_families(form)) for form in formats]
        lines += ["", "mark: 1 one call per turn   r reasoning   s has stop strings"]
        lines += ["", *table(rows, ("text format", "mark", "calls", "models"), bold=True, hide=("models",)), ""]
        end = "toolwire formats NAME shows a wire or a format and all its models, such as: toolwire formats qwen"
        lines += [paint(line, "dim") for line in paragraph(end)]
    print("\n".join(lines))
    return 0


def _run_model(name: str, arguments: argparse.Namespace) -> int:
    """Print the text format of a model and the known facts about it, or the formats and models of a family.

    Raises `ConfigError` for an unknown name that is similar to a known name.
    """
    from ..net.model.endpoint_settings import load_capability_rows
    from .models_show import find_facts, group_as_json, model_lines, refuse_similar_name

    rows = () if arguments.capabilities is None else load_capability_rows(arguments.capabilities)
    groups = find_facts(name, arguments.wire, rows)
    formats = [] if groups or arguments.wire else _family_formats(name)
    models = [] if groups or arguments.wire else _family_models(name)
    if not groups and not formats and not models:
        refuse_similar_name(name)
    if arguments.json:
        document = {
            "models": [group_as_json(group) for group in groups],
            "text": [_format_as_json(form) for form in formats],
        }
        print(json_text(document, sort_keys=True))
    elif formats or models:
        print("\n".join(_family_lines(name, formats, models)))
    else:
        print("\n".join([*_text_format_lines(name), *model_lines(name, groups)]))
    return 0


def _family_formats(family: str) -> list[Format]:
    """Return the text formats with a model pattern that contains `family`, such as "qwen"."""
    if detect(family) is not None:
        return []  # the name of a model
    wanted = family.lower()
    forms = [text.get(name) for name in text.names()]
    return [form for form in forms if any(wanted in pattern.lower() for pattern in form.families)]


def _family_models(family: str) -> list[str]:
    """Return the patterns of models with known capabilities that contain `family`, such as "claude"."""
    from ..wire.models.rows import ROWS

    patterns = dict.fromkeys(pattern for row in ROWS for pattern in row.models)
    return sorted(pattern for pattern in patterns if family.lower() in pattern.lower())


def _family_lines(family: str, formats: list[Format], models: list[str]) -> list[str]:
    """List the text formats of a model family and its models with known capabilities, by their patterns."""
    rows = []
    for form in formats:
        patterns = [pattern for pattern in form.families if family.lower() in pattern.lower()]
        rows.append((form.name, form.title, ", ".join(patterns)))
    lines = [*table(rows, ("text format", "calls", "models"), bold=True), ""] if rows else []
    if models:
        lines += [paint("models with known capabilities", "bold"), *paragraph(", ".join(models)), ""]
    end = f"toolwire formats NAME shows a format, and toolwire formats MODEL the capabilities of one {family} model."
    return [*lines, *paragraph(end)]


def _text_format_lines(model: str) -> list[str]:
    """Name the text format in which the model writes calls, if its name is known."""
    found = detect(model)
    return [] if found is None else [f"calls in text: {found} (toolwire formats {found})", ""]


def _first_families(form: Format) -> str:
    """Return the first model pattern of a format: all of them would be most of the list."""
    more = len(form.families) - _SHOWN_FAMILIES
    return ", ".join(form.families[:_SHOWN_FAMILIES]) + (f", {more} more" if more > 0 else "") or "any"


def _format_flags(form: Format) -> str:
    marks = (("1", form.one_call), ("r", bool(form.reasoning)), ("s", bool(form.stops)))
    return "".join(mark if is_set else "·" for mark, is_set in marks)


def _describe_format(form: Format) -> list[str]:
    """Describe a text format with an example of a call and its result."""
    call = ToolCall("call00000", "get_weather", {"city": "Paris", "days": 2})
    return [
        f"{form.name}: {form.title}",
        *paragraph(f"models: {', '.join(form.families) or 'any, with instructions in the prompt'}"),
        *paragraph(f"reasoning: {', '.join(_reasoning_markers(form)) or 'messages on a channel of their own'}"),
        "",
        "a call:",
        *text_lines(form.render_call(call).text),
        "",
        "its result:",
        *text_lines(form.render_result(call.result("12 degrees"))),
    ]


def _reasoning_markers(form: Format) -> list[str]:
    """Return each pair of markers once; some differ only in white space."""
    pairs = (" ".join(f"{opener} … {closer}".split()) for opener, closer in form.reasoning)
    return list(dict.fromkeys(pairs))


def _format_as_json(form: Format) -> dict[str, Any]:
    """Return a text format as a JSON object."""
    return {
        "name": form.name,
        "title": form.title,
        "families": list(form.families),
        "one_call": form.one_call,
        "reasoning": [list(pair) for pair in form.reasoning],
        "stops": list(form.stops),
        "needs_tools": form.needs_tools,
    }


def _wire_as_json(wire: Wire) -> dict[str, Any]:
    """Return a wire with its limits and capabilities as a JSON object; sets become sorted lists."""
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


def _overview_lines(wires: list[Wire]) -> list[str]:
    """Return a table with one column per wire and one row per capability or limit."""
    headers = ("", *(wire.name for wire in wires))
    rows = [
        ("versions", *(", ".join(sorted(getattr(wire, "versions", {}))) or "-" for wire in wires)),
        ("tool choice", *(_join_values(wire.capabilities.choices) for wire in wires)),
        ("media in messages", *(_join_values(wire.capabilities.media) for wire in wires)),
        ("media in results", *(_join_values(wire.capabilities.result_media) for wire in wires)),
        ("cache marks on", *(_join_values(wire.capabilities.cache) for wire in wires)),
    ]
    rows += [(words, *("✓" if getattr(w.capabilities, flag) else "·" for w in wires)) for flag, words in _FLAGS.items()]
    rows += [
        ("length of a tool name", *(str(wire.limits.name_length) for wire in wires)),
        ("length of a call id", *(str(wire.limits.id_length) for wire in wires)),
        ("tools in a request", *(str(wire.limits.tools or "-") for wire in wires)),
    ]
    if sum(max(map(len, column)) + 2 for column in zip(headers, *rows, strict=True)) > terminal_width() + 2:
        return table([(row[0], _as_sentence(headers[1:], row[1:])) for row in rows], ("capability", "wires"), bold=True)
    return table(rows, headers, bold=True)


def _as_sentence(wires: Sequence[str], values: Sequence[str]) -> str:
    """Return a row for a terminal that is too narrow for a column per wire: the wires of each value."""
    by_value: dict[str, list[str]] = {}
    for wire, value in zip(wires, values, strict=True):
        by_value.setdefault(value, []).append(wire)
    if by_value.keys() <= {"✓", "·"}:
        return ", ".join(by_value.get("✓", ["none"]))
    return "; ".join(f"{', '.join(names)}: {value}" for value, names in by_value.items() if value != "-")


def _join_values(values: frozenset[str]) -> str:
    return ", ".join(sorted(values)) or "-"
