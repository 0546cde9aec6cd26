"""The candidates of `toolwire do`: commands of this machine, and the tools of other sources.

APIs, functions and MCP servers run through a toolbox; specifications are only shown.
For a model that invents values, the arguments of a command are restricted to values of the request.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...ir.errors import ConfigError, MissingExtra
from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.terminal import neutralise_text
from ...ir.text import dumps
from ...ir.tools import Tool
from ...ir.value import Value
from ...run.tools.refusal import NOTHING_FITS
from ...run.tools.words import split_words
from ..sources.tool_source import open_source, read_declared, source_kind
from ..terminal.input import has_terminal
from ..terminal.output import ProgressBar, print_note
from ..tools.groups import require_numpy
from .execution import DoOutcome, OutcomeKind, confirm, letter_notes, show_action

if TYPE_CHECKING:
    from ...retrieve.commands.command import SystemCommand
    from ...retrieve.commands.command_index import CommandIndex
    from ...retrieve.index import ToolIndex
    from ...retrieve.vectors import Encoder
    from ...run.calls.steps import Approve


_MAX_PROBLEMS = 10  # a folder of broken specifications must not scroll the command line out of view


class ToolSource(Value, frozen=True):
    """The tools of a source. `is_callable` is False for specifications without an implementation."""

    name: str
    tools: tuple[Tool, ...]
    is_callable: bool


def read_source(source: str, arguments: argparse.Namespace) -> ToolSource:
    """Read the declarations of a source: a file or folder of API specifications, or any source of `toolwire run`."""
    is_folder = Path(source).is_dir()
    kind = "declarations" if is_folder else source_kind(source)
    if is_folder or (kind == "declarations" and Path(source).is_file()):
        return ToolSource(source, _read_specifications(source), is_callable=False)
    return ToolSource(source, read_declared(source, arguments), kind in ("functions", "openapi", "mcp"))


def _read_specifications(source: str) -> tuple[Tool, ...]:
    """Return the tools of a file or folder, each name once, and print a note for entries that cannot be read.

    Raises `ConfigError` if there are none.
    """
    from ...retrieve.api_specs import load_api_specs

    specs = load_api_specs(source)
    for problem in specs.problems[:_MAX_PROBLEMS]:
        print_note(f"skipped: {problem}")
    named: dict[str, Tool] = {}
    for tool in specs.tools:
        named.setdefault(tool.name, tool)
    if not named:
        raise ConfigError(
            f"{source} has no specifications", hint="give a JSON list of tools or of {name, signature, doc}"
        )
    return tuple(named.values())


async def run_source_call(
    request: str, call: ToolCall, source: ToolSource, offered: tuple[str, ...], arguments: argparse.Namespace
) -> DoOutcome:
    """Show a call, run it through its toolbox after confirmation, and return the outcome.

    A specification without implementation is only shown, and so is every call with --dry-run.
    """
    tool = next(tool for tool in source.tools if tool.name == call.name)
    document = {"name": call.name, "arguments": call.arguments, "source": source.name}
    effect = {"kinds": [tool.effect], "read_only": False}
    outcome = DoOutcome(request, "shown", call=document, effect=effect, candidates=offered)
    text = f"{call.name} {dumps(call.arguments)}"
    asks = source.is_callable and not arguments.dry_run and has_terminal()
    notes = [*_make_notes(tool, source, arguments), *letter_notes(text)]
    show_action(text, notes, as_json=arguments.json, asks=asks)
    if not source.is_callable:
        return replace(outcome, message="the specification has no implementation: the call is shown, not run")
    if arguments.dry_run:
        return outcome
    problem = confirm()
    if problem is not None:
        return replace(outcome, kind=problem[0], message=problem[1])
    result = await _run_through_toolbox(call, source, arguments)
    text = "".join(part.text for part in result.parts if isinstance(part, Text)) or dumps(result.structured)
    if not arguments.json:
        print(neutralise_text(text))
    kind: OutcomeKind = "failed" if result.is_error else "ran"
    message = "the call failed" if result.is_error else ""
    return DoOutcome(request, kind, message, call=document, effect=effect, candidates=offered, stdout=text)


async def _run_through_toolbox(call: ToolCall, source: ToolSource, arguments: argparse.Namespace) -> ToolResult:
    """Run the call with the policy of `toolwire run`. The person has confirmed exactly this call."""
    from ...net.tools.runner import Runner
    from ...run.calls.policy import Policy

    def approve(step: Approve) -> bool:
        return step.tool == call.name and step.arguments == call.arguments

    async with open_source(source.name, arguments) as box:
        runner = Runner(box, policy=Policy(approve=("write", "idempotent")), approve=approve)
        return (await runner.run([call]))[0]


def _make_notes(tool: Tool, source: ToolSource, arguments: argparse.Namespace) -> list[str]:
    """Return the effect that the source declares, and the target of a request."""
    from ...openapi.api_tools import ApiTool

    notes = [f"effect: {tool.effect}; {'source' if source.is_callable else 'specification'}: {source.name}"]
    if isinstance(tool, ApiTool) and arguments.api_url:
        base = arguments.api_url.rpartition("@")[2] if "@" in arguments.api_url else arguments.api_url
        notes.append(f"sends: {tool.method} {base.rstrip('/')}{tool.path}")
    return notes


# Restrict the arguments of a command to values of the request, for a model that invents values.
#
# A model of 135 million parameters copies values from its examples or repeats the name of an option. With the
# possible values as an enumeration, the grammar of its answer admits no other. An argument without a possible value
# is not offered.


_QUOTED = re.compile(r"\"([^\"]{1,200})\"|'([^']{1,200})'|`([^`]{1,200})`")
_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"\d{1,9}")
_NAMING = frozenset("named called folder directory container process below branch service image message by".split())
_FREQUENT = "using used currently now please each one ones too here there below above into without make made keep much many left big deep level only let usage"
_NUMERIC = frozenset({"pid", "number", "port", "job", "seconds", "n"})
_QUANTITY = re.compile(r"\b(?:number|lines|bytes|count|size|depth|seconds|levels|days)\b", re.IGNORECASE)
# each may become an enum value in a small model's grammar; a request of one command has fewer. Not measured
_MAX_VALUES = 12


def request_values(request: str, known: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the parts of a request that may be values: quotations, paths, numbers, names.

    `known`: words that describe the task. They are no values, unless they follow a word such as "named" or "folder".
    """
    values = [next(part for part in found.groups() if part) for found in _QUOTED.finditer(request)]
    is_named = False
    for found in _WORD.finditer(_QUOTED.sub(" ", request)):
        word = found.group().strip(",;:!?()").removesuffix(".")
        is_marked = any(char in word for char in "./~_-@*=") or any(map(str.isdigit, word)) or word[1:].isupper()
        words = split_words(word)
        was_named, is_named = is_named, word.lower() in _NAMING
        if is_marked or (words and not is_named and (was_named or known.isdisjoint(words))):
            values.append(word)
    return tuple(dict.fromkeys(value for value in values if value))[:_MAX_VALUES]


def limit_values(tool: Tool, command: SystemCommand, request: str) -> Tool:
    """Return the tool with values of the request only.

    Options that the request does not mention are left out, and arguments without a possible value. The arguments that
    have one are required.
    """
    schema = tool.input_schema or {}
    properties: dict[str, Any] = schema.get("properties", {})
    known = task_words() | frozenset(split_words(f"{command.name} {command.summary} {' '.join(properties)}"))
    values = request_values(request, known)
    texts = tuple(value for value in values if not _NUMBER.fullmatch(value))
    numbers = tuple(value for value in values if _NUMBER.fullmatch(value))
    operands = frozenset(operand.name for operand in command.operands)
    spare = frozenset(operand.name for operand in command.operands[max(1, len(texts)) :])
    asked = frozenset(split_words(request)) - frozenset(split_words(command.name))
    required = schema.get("required", [])
    kept: dict[str, Any] = {}
    for name, declared in properties.items():
        if name in spare and name not in required:
            continue
        if name not in operands and asked.isdisjoint(_option_words(command, name, declared)):
            continue
        if name in operands:
            possible = numbers if name in _NUMERIC else texts
        else:
            possible = numbers if _QUANTITY.search(f"{name} {declared.get('description', '')}") else values
        limited = _limit(declared, possible)
        if limited is not None or name in required:
            kept[name] = declared if limited is None else limited
    named = [name for name in kept if name in operands or name in required]
    if sum(name in operands for name in kept) > 1:  # each operand gets one value
        kept = {
            name: {**old, "maxItems": 1} if name in operands and "items" in old else old for name, old in kept.items()
        }
    return replace(tool, input_schema={**schema, "properties": kept, "required": named})


def _option_words(command: SystemCommand, name: str, schema: dict[str, Any]) -> list[str]:
    """Return the words that mention an option. One that deletes has to be named: a small model sets every option that it sees."""
    from ...retrieve.commands.effects import judge_effect

    option = schema.get("description", "").partition(":")[0].split(", ")
    deletes = any("delete" in judge_effect(command.words, (*command.words, one), [one]).kinds for one in option)
    is_own = "delete" in judge_effect(command.words, command.words).kinds
    return split_words(name if deletes and not is_own else f"{name} {schema.get('description', '')}")


@cache
def task_words() -> frozenset[str]:
    """Return the words that describe tasks of common commands, such as "show", "folder" and "last"."""
    from ...retrieve.commands.common_tasks import COMMON_TASKS

    return frozenset(split_words(" ".join(COMMON_TASKS.values()))) | frozenset(split_words(_FREQUENT))


def _limit(schema: dict[str, Any], values: tuple[str, ...]) -> dict[str, Any] | None:
    """Return a property's schema with the possible values only, or None if no value is possible.

    An array takes at most two values. A type list means an optional value, which becomes a flag.
    """
    kind = schema.get("type")
    if "enum" in schema or kind == "boolean":
        return schema
    if kind == "array":
        items = _limit(schema["items"], values)
        return None if items is None else {**schema, "items": items, "minItems": 1, "maxItems": min(2, len(values))}
    if kind == "integer":
        numbers = [int(value) for value in values if _NUMBER.fullmatch(value)]
        return {**schema, "enum": numbers} if numbers else None
    if isinstance(kind, list):
        return {**schema, "type": "boolean"}  # an optional value: as a flag
    return {**schema, "enum": list(values)} if values else None


_OPTIONS = 40  # of one command in a declaration; pages have up to 250
_FEW_OPTIONS = 10  # for a small model, whose context is short
_FEW_COMMANDS = 3  # for a small model, whose prompt takes a second for every 100 tokens


class CandidateOffer:
    """The tools that the model sees, each with its command or its source."""

    def __init__(self) -> None:
        self.tools: list[Tool] = []
        self.labels: list[str] = []
        self.commands: dict[str, SystemCommand] = {}
        self.sources: dict[str, ToolSource] = {}
        self.home = str(Path.home())

    @property
    def is_ranked(self) -> bool:
        """True if the tools are in the order of one search: commands and other tools are searched apart."""
        return not (self.commands and self.sources)

    def add_command(self, tool: Tool, command: SystemCommand) -> None:
        """Add the tool of a command."""
        self.tools.append(tool)
        self.labels.append(command.name)
        self.commands[tool.name] = command

    def add_tool(self, tool: Tool, source: ToolSource) -> None:
        """Add a tool of another source, unless its name is taken."""
        if tool.name not in self.commands and tool.name not in self.sources and tool.name != NOTHING_FITS:
            self.tools.append(tool)
            self.labels.append(tool.name)
            self.sources[tool.name] = source


class Candidates:
    """All candidates. `sources`: the tools of `-t` by their source."""

    def __init__(self, commands: CommandIndex | None, sources: Sequence[ToolSource], tools: ToolIndex | None) -> None:
        self._commands = commands
        self._tools = tools
        self._sources = {source.name: source for source in sources}

    def search(self, request: str, k: int, *, is_small: bool) -> CandidateOffer:
        """Return the best candidates for a request.

        A small model gets fewer of them, with fewer options and only values of the request; no command if the request
        mentions none of them.
        """
        from ...retrieve.commands.command_tool import declare_command, select_options

        limit = _FEW_OPTIONS if is_small else _OPTIONS
        offer = CandidateOffer()
        if self._commands is not None:
            ranked = self._commands.search(request, min(k, _FEW_COMMANDS) if is_small else k)
            if is_small and not self._commands.mentions(request, [command for command, _ in ranked]):
                ranked = []
            for command, _ in ranked:
                tool = declare_command(command, select_options(command, request, limit))
                offer.add_command(limit_values(tool, command, request) if is_small else tool, command)
        for hit in [] if self._tools is None else self._tools.search(request, k):
            offer.add_tool(hit.tool, self._sources[hit.server])
        return offer


def load_candidates(arguments: argparse.Namespace) -> Candidates:
    """Read the commands of this machine, those named by `--learn`, and the sources of `-t`."""
    require_numpy("`toolwire do`")
    from ...retrieve.index import ToolIndex

    sources = [read_source(source, arguments) for source in arguments.tools]
    tools = None
    if sources:
        tools = ToolIndex(_open_encoder(arguments))
        for source in sources:
            tools.add(source.tools, server=source.name)
    return Candidates(None if arguments.no_commands else _load_commands(arguments), sources, tools)


def _load_commands(arguments: argparse.Namespace) -> CommandIndex:
    """Index the commands of this machine from man pages, completion files and --learn.

    A learned command replaces its man page. Raises `ConfigError` if there are none.
    """
    from ...retrieve.commands.catalogue import Catalogue, find_roots
    from ...retrieve.commands.command_index import CommandIndex
    from .command_help import learn_command

    cache = cache_folder()
    catalogue = Catalogue(find_roots(), cache=cache)
    with ProgressBar("reading manuals and completions") as bar:
        commands = catalogue.load(bar)
    if catalogue.problem:
        print_note(catalogue.problem)
    learned = [command for name in arguments.learn for command in learn_command(name)]
    replaced = {command.words for command in learned}
    every = [*learned, *(command for command in commands if command.words not in replaced)]
    if not every:
        hint = "install man pages (man-db), name a command with --learn, or give tools with -t"
        raise ConfigError("no man pages or completion files were found", hint=hint)
    with ProgressBar("encoding common commands") as bar:
        folder = cache / "learned" if learned else cache
        return CommandIndex(every, encoder=_open_encoder(arguments), cache=folder, progress=bar, reader=catalogue.read)


def _open_encoder(arguments: argparse.Namespace) -> Encoder | None:
    """Return the encoder, or None if it is not installed or --words-only is given."""
    if arguments.words_only:
        return None
    from ...retrieve.minilm import open_minilm

    try:
        return open_minilm()
    except MissingExtra:
        return None


def cache_folder() -> Path:
    """Return the folder of toolwire's cache; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "toolwire"
