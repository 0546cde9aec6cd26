"""`toolwire parse`: parse the tool calls in a model's text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..ir.errors import ConfigError, ToolwireError
from ..ir.parts import Part, Reasoning, Text, ToolCall, part_label
from ..schema.validation.validator import validator
from ..text import detect, get
from .sources.text_input import TEMPLATE_HELP, format_of_template, read_text
from .sources.tool_source import SOURCE_HELP, add_source_options, read_declared
from .terminal.options import add_command, add_flag, add_model
from .terminal.output import json_text, paint, print_note, table

if TYPE_CHECKING:
    from ..ir.tools import Tool
    from ..text.engine.format import Format, Parsed

_HELP = """\
Parse the tool calls in a model's text.

examples:
  toolwire parse answer.txt                              the format is detected
  toolwire parse answer.txt --format qwen3_xml --tools tools.py
  ollama run qwen3 "…" | toolwire parse - --model qwen3 --json
  toolwire parse answer.txt --template tokenizer_config.json --spans
  toolwire parse answer.txt --stream-sizes 1,3,7         compare with parsing in chunks

With --tools, the schemas determine names and types: "42" stays a string if the schema requires one. Arguments that do
not match are reported.
exit codes: 0 parsed   1 a call is broken or does not match its tool, or chunks give another result   2 wrong usage or
unreadable input
"""
_BROKEN = frozenset({"malformed", "truncated", "invalid_arguments", "other_format"})


def add_to(commands: Any) -> None:
    """Register `toolwire parse` with its options."""
    parser = add_command(commands, "parse", "parse the tool calls in a model's text", _HELP, run)
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="the text; - is standard input")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--format", default="auto", metavar="FORMAT", help="a name from `toolwire formats`, or auto")
    add_model(choice, "the model that wrote the text; selects the format")
    choice.add_argument("--template", metavar="FILE", help=TEMPLATE_HELP)
    parser.add_argument("--tools", metavar="SOURCE", help=f"the declared tools: {SOURCE_HELP}")
    parser.add_argument("--stream-sizes", metavar="N,N", help="parse in chunks of these sizes too, and compare")
    add_flag(parser, "--cut", "the text was truncated: an unclosed call is incomplete")
    add_flag(parser, "--thinking", "the prompt already opened the reasoning block")
    add_flag(parser, "--spans", "print the positions of calls and reasoning in the text")
    add_flag(parser, "--json", "print JSON")
    add_source_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Parse the text, once as a whole and once per chunk size, and print the parts and differences.

    Returns 1 for a difference or a broken call. Raises `ConfigError` for an empty input.
    """
    text = read_text(arguments.file)
    if not text.strip():
        raise ConfigError("the input is empty", hint="give the text of a model in a file or on standard input")
    chosen = _choose_format(arguments, text)
    form = chosen or get("hermes")  # it separates reasoning from text, whatever the format
    tools = read_declared(arguments.tools, arguments) if arguments.tools else ()
    parsed = form.parse(text, tools, finished=not arguments.cut, reasoning=arguments.thinking, spans=arguments.spans)
    mismatches = _find_mismatches(parsed.parts, tools)
    differing = [
        size
        for size in _chunk_sizes(arguments.stream_sizes)
        if _parse_in_pieces(form, text, tools, size, arguments) != parsed
    ]
    if arguments.json:
        print(
            json_text({**_result_as_json(chosen, parsed, differing), **({"mismatches": mismatches} if tools else {})})
        )
    else:
        _print_result(chosen, parsed, differing, arguments.stream_sizes)
        for text in mismatches:
            print_note(f"mismatch {text}")
    is_broken = differing or mismatches or any(note.code in _BROKEN for note in parsed.diagnostics)
    return 1 if is_broken else 0


def _find_mismatches(parts: Sequence[Part], tools: Sequence[Tool]) -> list[str]:
    """Describe the arguments of complete calls that do not match the schema of their tool."""
    schemas = {tool.name: tool.input_schema for tool in tools}
    found: list[str] = []
    for call in parts:
        if isinstance(call, ToolCall) and call.state == "complete" and call.name in schemas:
            try:
                found += [
                    f"{call.name} {problem}" for problem in validator(schemas[call.name]).problems(call.arguments)
                ]
            except ToolwireError as error:  # of the schema: the calls are printed all the same
                found.append(f"{call.name} cannot be checked: {error}")
    return found


def _choose_format(arguments: argparse.Namespace, text: str) -> Format | None:
    """Return the format: as given, by chat template or model name, or detected; None for a text without calls.

    Raises `ConfigError` for a model without a known format.
    """
    if arguments.format != "auto":
        return get(arguments.format)
    if arguments.template:
        return format_of_template(arguments.template)
    name = detect(arguments.model) if arguments.model else detect(f"{text}\n")
    if name is None and arguments.model:
        raise ConfigError(f"no known format for model {arguments.model!r}", hint="choose one with --format")
    return None if name is None else get(name)


def _chunk_sizes(given: str | None) -> list[int]:
    """Parse `1,3,7`; no text has no sizes. Raise ConfigError for any other text."""
    try:
        sizes = [int(size) for size in given.split(",")] if given else []
    except ValueError:
        sizes = [0]
    if any(size < 1 for size in sizes):
        raise ConfigError(f"--stream-sizes must be positive integers, got {given}", hint="use --stream-sizes 1,3,7")
    return sizes


def _parse_in_pieces(
    form: Format, text: str, tools: Sequence[Tool], size: int, arguments: argparse.Namespace
) -> Parsed:
    pieces = (text[start : start + size] for start in range(0, len(text), size))
    return form.parse_pieces(
        pieces, tools, finished=not arguments.cut, reasoning=arguments.thinking, spans=arguments.spans
    )


def _result_as_json(form: Format | None, parsed: Parsed, differing: list[int]) -> dict[str, Any]:
    """Return the parsed parts as JSON; `differing` are the chunk sizes that gave another result."""
    document: dict[str, Any] = {
        "format": None if form is None else form.name,
        "parts": [msgspec.to_builtins(part) for part in parsed.parts],
        "diagnostics": [msgspec.to_builtins(note) for note in parsed.diagnostics],
    }
    if parsed.spans:
        document["spans"] = [msgspec.to_builtins(span) for span in parsed.spans]
    if differing:
        document["differs_in_pieces_of"] = differing
    return document


def _print_result(form: Format | None, parsed: Parsed, differing: list[int], sizes: str | None) -> None:
    """Print the parts and spans as tables, and format, diagnostics and chunk comparison on standard error."""
    no_call = "no tool call of a known format in the text; choose a format with --format, --model or --template"
    if parsed.parts:
        print("\n".join(table([_part_row(part) for part in parsed.parts], ("part", "name", "state", "content"))))
    if parsed.spans:
        rows = [(span.kind, str(span.part), str(span.start), str(span.end)) for span in parsed.spans]
        print("\n" + "\n".join(table(rows, ("span", "part", "start", "end"))))
    sys.stdout.flush()
    print_note(no_call if form is None else f"{form.name}: {form.title}", "dim")
    for note in parsed.diagnostics:
        colour = "red" if note.code in _BROKEN else "yellow"
        print_note(f"{note.code} at character {note.position}: {note.detail}", colour)
    if differing:
        print(f"{paint('different', 'red', sys.stderr)} in chunks of {differing}", file=sys.stderr)
    elif sizes:
        print_note(f"same result in chunks of {sizes}", None)


def _part_row(part: Part) -> tuple[str, str, str, str]:
    """Return the cells of a part: its kind, the name and state of a call, and the text."""
    if isinstance(part, ToolCall):
        return "call", part.name, part.state, part.text
    words = part.text if isinstance(part, (Text, Reasoning)) else ""
    return part_label(part), "", "", words.strip()
