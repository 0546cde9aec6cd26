"""`toolwire mcp call`, `read` and `prompt`: use one tool, resource or prompt of an MCP server.

Results are printed, and their media are saved (`--output`).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError, ProtocolError, ToolwireError
from ...ir.parts import Media, Text, ToolCall, ToolResult
from ...ir.terminal import neutralise_line, neutralise_text
from ...ir.text import dumps
from ..sources.documents import replace_file
from ..sources.targets import add_target, parse_spec
from ..terminal.options import add_command, add_flag
from ..terminal.output import json_text, paint, print_note, text_lines
from .arguments import ARGUMENT_HELP, apply_schema, nearest, read_assignments
from .traffic import TrafficLog, add_traffic_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...ir.pointer import JSON, Object
    from ...mcp.client.client import McpClient
    from ...mcp.protocol.content import Block
    from .arguments import Assignment


# Print results, resources and prompts of MCP servers, and save their media (`--output`).
#
# Text is cut on a terminal, unless `--all` is given: a result may have any size. A pipe or file gets all of it.


_MAX_SHOWN = 100_000  # characters on a terminal


def add_output_option(parser: Any) -> None:
    parser.add_argument(
        "--output", metavar="FILE", help="save images and other media; further ones to FILE with a number: out-2.png"
    )


class PartPrinter:
    """Prints parts in order. Media go to the file of `--output`, or are summarised in one line."""

    def __init__(self, output: str | None, *, show_all: bool, wraps: bool = False) -> None:
        """Without `wraps`, text stays as it is on a terminal, too, to be copied; with it, it is a message, which wraps."""
        self._output = None if output is None else Path(output)
        self._is_cut = sys.stdout.isatty() and not show_all
        self._wraps = wraps
        self._saved = 0

    def print_parts(self, parts: Iterable[Block]) -> None:
        for part in parts:
            if isinstance(part, Text):
                self.print_text(part.text)
            elif isinstance(part, Media):
                print(neutralise_line(self._handle_media(part)))
            else:
                print(neutralise_line(f"[{part.type}]"))

    def print_text(self, text: str) -> None:
        left = len(text) - _MAX_SHOWN if self._is_cut else 0
        if left > 0:
            text = text[:_MAX_SHOWN]
        text = "\n".join(text_lines(text)) if self._wraps else neutralise_text(text)
        print(text, end="" if text.endswith("\n") else "\n")
        if left > 0:
            print(f"… {left:,} more characters; --all shows them")

    def finish(self) -> None:
        """Report that there was nothing to save."""
        if self._output is not None and not self._saved:
            print_note("--output: the answer has no media; nothing was saved", None)

    def _handle_media(self, part: Media) -> str:
        """Save an image, recording or file to --output, and return a text about it; links are only described.

        The second and later files get a number. Raises `ConfigError` if a file cannot be written.
        """
        kind = part.media_type or part.kind
        if part.data is None:
            return f"[{kind}: {part.url or 'no data'}]"
        data = _decode(part.data)
        if data is None:
            return f"[{kind}: not valid base64]"
        if self._output is None:
            return f"[{kind}, {len(data):,} bytes; --output FILE saves it]"
        self._saved += 1
        file = self._output
        if self._saved > 1:
            file = file.with_name(f"{file.stem}-{self._saved}{file.suffix}")
        replace_file(file, data, mode=0o666)
        return f"[{kind}, {len(data):,} bytes, saved as {file}]"


def print_result(result: ToolResult, printer: PartPrinter) -> None:
    """Print the parts of a result, then its structured content unless a part has the same value."""
    printer.print_parts(result.parts)
    if result.structured is not None and not _repeats(result):
        printer.print_text(json_text(result.structured))
    printer.finish()


def _repeats(result: ToolResult) -> bool:
    """Return whether the text repeats the structured content, as the specification recommends.

    A content of only `result` is compared by that value, too, because servers wrap plain values so.
    """
    from ...stream.strict import parse

    value = result.structured
    wrapped = value.get("result") if type(value) is dict and list(value) == ["result"] else value
    if type(wrapped) is str and wrapped == result.text:
        return True
    try:
        return bool(parse(result.text) in (value, wrapped))
    except ToolwireError:
        return False


def _decode(data: str) -> bytes | None:
    try:
        return b64decode(data, validate=True)
    except ValueError:
        return None


_CALL_HELP = """\
Call a tool of an MCP server and print the result.

examples:
  toolwire mcp call "toolwire mcp serve tools.py" forecast city=Oslo days=2
  toolwire mcp call https://mcp.example.com/ search query=tea --header 'Authorization=Bearer ${TOKEN}'
  toolwire mcp call tools.py search tags=a tags=b filter.name=tea      arrays and nested objects
  toolwire mcp call tools.py search filter:='{"name": "tea"}'          a JSON value
  toolwire mcp call tools.py summarise text=@notes.txt                 the content of a file
  toolwire mcp call tools.py add '{"a": 1, "b": 2}'                    all arguments as JSON, sent as they are
  echo '{"a": 1, "b": 2}' | toolwire mcp call tools.py add -
  toolwire mcp call tools.py draw what=cat --output cat.png
  toolwire mcp call tools.py add a=1 b=2 --traffic                     every message, with the latency

Values get the type that the schema of the tool declares; unknown and missing arguments are reported before the call.
exit codes: 0 done   1 the tool reported an error   2 wrong usage, unknown tool, or no answer
"""
_MAX_LISTED = 20  # names in one error message, about three lines


def add_call(commands: Any) -> None:
    """Register `toolwire mcp call` with its options."""
    parser = add_command(commands, "call", "call a tool of a server", _CALL_HELP, run_call)
    add_target(parser, files=False)
    parser.add_argument("tool", metavar="TOOL", help="name of the tool")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", default=[], help=ARGUMENT_HELP)
    parser.add_argument("--key", help="an idempotency key: toolwire servers run a call with it at most once")
    add_output_option(parser)
    add_traffic_options(parser)
    add_flag(parser, "--json", "print the whole result as MCP JSON")


def run_call(arguments: argparse.Namespace) -> int:
    """Call a tool and print its result. Returns 1 if the result is an error."""
    given = read_assignments(arguments.arguments)
    result = asyncio.run(_call_tool(arguments, given))
    if arguments.json:
        from ...mcp.protocol.calls import encode_result

        print(json_text(encode_result(result)))
    else:
        print_result(result, PartPrinter(arguments.output, show_all=arguments.all, wraps=result.is_error))
    return 1 if result.is_error else 0


def open_client(arguments: argparse.Namespace) -> McpClient:
    """Return the client of the server given on the command line; it prints progress and, with --traffic, messages."""
    from ...mcp.client.client import McpClient
    from ...mcp.client.login import Browser, Login

    spec = parse_spec(arguments.target, arguments)
    log = TrafficLog(show=True, show_all=arguments.all) if arguments.traffic else None
    if log is not None:
        log.add_servers([spec])
    login = Login(Browser()) if arguments.login else None
    return McpClient(spec, watch=_print_progress, login=login, traffic=log)


async def _call_tool(arguments: argparse.Namespace, given: Object | list[Assignment]) -> ToolResult:
    """Call the tool. For an unusable or unknown tool, raise ConfigError with the reason and the available tools."""
    async with open_client(arguments) as client:
        name = arguments.tool
        if name not in client.tools:
            raise _unusable_tool(client, name)
        if isinstance(given, list):
            given = apply_schema(given, client.tools[name].input_schema, name)
        return await client.call(ToolCall("call", name, given), key=arguments.key)


def _unusable_tool(client: McpClient, name: str) -> ConfigError:
    """Return the error for a tool that is missing or was refused, with the reason or a similar name."""
    problem = next((row.reason for row in client.problems if row.tool == name), "")
    if problem:
        return ConfigError(f"the tool {name} cannot be used: {problem}")
    close = nearest(name, list(client.tools))
    names = list(client.tools)[:_MAX_LISTED]
    more = "" if len(client.tools) <= _MAX_LISTED else f" and {len(client.tools) - _MAX_LISTED} more"
    suggestion = "" if close is None else f"did you mean {close!r}? "
    return ConfigError(
        f"the tool {name} does not exist", hint=f"{suggestion}available: {', '.join(names) or 'none'}{more}"
    )


def _print_progress(_: str, progress: Any) -> None:
    of = "" if progress.total is None else f"/{progress.total:g}"
    print_note(f"{progress.progress:g}{of} {progress.message or ''}".rstrip(), None)


_READ_HELP = """\
Read a resource of an MCP server and print its contents.

examples:
  toolwire mcp read tools.py notes://today
  toolwire mcp read https://mcp.example.com/ file:///logo.png --output logo.png
  toolwire mcp read "npx -y @modelcontextprotocol/server-everything" demo://resource/static/document/features.md --json

`toolwire mcp inspect SERVER` lists the resources and templates. Replace each {name} of a template by a value.
exit codes: 0 done   2 wrong usage, unknown resource, or no answer
"""


def add_read(commands: Any) -> None:
    parser = add_command(commands, "read", "read a resource of a server", _READ_HELP, run_read)
    add_target(parser, files=False)
    parser.add_argument("uri", metavar="URI", help="address of the resource")
    add_output_option(parser)
    add_traffic_options(parser)
    add_flag(parser, "--json", "print the contents as MCP JSON")


def run_read(arguments: argparse.Namespace) -> int:
    """Read a resource and print its contents."""
    from ...mcp.protocol.content import decode_content

    contents = asyncio.run(_read_resource(arguments))
    if arguments.json:
        print(json_text({"contents": contents}))
        return 0
    printer = PartPrinter(arguments.output, show_all=arguments.all)
    printer.print_parts(decode_content({"content": [{"type": "resource", "resource": item} for item in contents]}))
    printer.finish()
    return 0


async def _read_resource(arguments: argparse.Namespace) -> list[JSON]:
    """Return the contents of the resource. Raises `ConfigError`, with a suggestion, if the server refuses."""
    from ...mcp.protocol.rpc import RpcError

    async with open_client(arguments) as client:
        try:
            return await client.read(arguments.uri)
        except RpcError as error:
            hint = await _suggest(client, arguments.uri)
            raise ConfigError(f"cannot read {arguments.uri}: {error.message}", hint=hint) from None


async def _suggest(client: McpClient, uri: str) -> str:
    """Return a hint with the most similar address, as far as the server lists its resources.

    Return "" if none is similar.
    """
    try:
        listed = await client.resources()
    except ToolwireError:
        return ""
    addresses = [one.get("uri") or one.get("uriTemplate") for one in listed if type(one) is dict]
    known = [one for one in addresses if type(one) is str]
    if not known:
        return "the server lists no resources"
    close = nearest(uri, known)
    return "toolwire mcp inspect SERVER lists the resources" if close is None else f"did you mean {close!r}?"


_PROMPT_HELP = """\
Get a prompt of an MCP server and print its messages.

examples:
  toolwire mcp prompt tools.py review code=@main.py style=strict
  toolwire mcp prompt https://mcp.example.com/ greeting name=Ada --json

`toolwire mcp inspect SERVER` lists the prompts and their arguments, which are texts.
exit codes: 0 done   2 wrong usage, unknown prompt, or no answer
"""


def add_prompt(commands: Any) -> None:
    """Register `toolwire mcp prompt` with its options."""
    parser = add_command(commands, "prompt", "get a prompt of a server", _PROMPT_HELP, run_prompt)
    add_target(parser, files=False)
    parser.add_argument("prompt", metavar="NAME", help="name of the prompt")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", default=[], help=ARGUMENT_HELP)
    add_output_option(parser)
    add_traffic_options(parser)
    add_flag(parser, "--json", "print the prompt as MCP JSON")


def run_prompt(arguments: argparse.Namespace) -> int:
    given = read_assignments(arguments.arguments)
    answer = asyncio.run(_get_prompt(arguments, given))
    if arguments.json:
        print(json_text(answer))
    else:
        _print_messages(answer, PartPrinter(arguments.output, show_all=arguments.all))
    return 0


async def _get_prompt(arguments: argparse.Namespace, given: Object | list[Assignment]) -> Object:
    """Return a prompt of the server.

    Assignments are checked against its declaration; an object is sent as it is. Raises `ConfigError` for an unknown
    prompt or unsuitable arguments.
    """
    async with open_client(arguments) as client:
        listed = [entry for entry in await client.prompts() if type(entry) is dict]
        declared = next((entry for entry in listed if entry.get("name") == arguments.prompt), None)
        if declared is None:
            names = [name for entry in listed if type(name := entry.get("name")) is str]
            raise _unknown_name(f"the prompt {arguments.prompt} does not exist", arguments.prompt, names)
        if isinstance(given, list):
            given = _check_arguments(given, declared, arguments.prompt)
        return await client.get_prompt(arguments.prompt, given)


def _check_arguments(given: list[Assignment], declared: Object, prompt: str) -> Object:
    """Return the arguments as texts. Raise ConfigError for unknown, repeated and missing ones."""
    listed = declared.get("arguments")
    known = {one["name"]: one for one in listed or () if type(one) is dict and type(one.get("name")) is str}
    out: Object = {}
    for one in given:
        if one.path not in known:
            raise _unknown_name(f"the prompt {prompt} has no argument {one.path!r}", one.path, list(known))
        if one.path in out:
            raise ConfigError(f"{one.path} is given twice")
        out[one.path] = one.value if type(one.value) is str else dumps(one.value)
    missing = [name for name, one in known.items() if one.get("required") is True and name not in out]
    if missing:
        example = " ".join(f"{name}=…" for name in missing[:_MAX_LISTED])
        listed_names = ", ".join(missing[:_MAX_LISTED])
        raise ConfigError(f"missing arguments of the prompt {prompt}: {listed_names}", hint=f"add {example}")
    return out


def _unknown_name(message: str, name: str, known: list[str]) -> ConfigError:
    close = nearest(name, known)
    listed = ", ".join(known[:_MAX_LISTED]) or "none"
    return ConfigError(message, hint=f"available: {listed}" if close is None else f"did you mean {close!r}?")


def _print_messages(answer: Object, printer: PartPrinter) -> None:
    """Print the messages, each after its role. Raises `ProtocolError` if the answer has none."""
    from ...mcp.protocol.content import decode_content

    messages: JSON = answer.get("messages")
    if type(messages) is not list:
        raise ProtocolError("the prompt has no messages", pointer="/messages", status=502)
    for message in messages:
        raw = message if type(message) is dict else {}
        print(paint(neutralise_line(f"── {str(raw.get('role'))[:40]} ──"), "bold"))
        content = raw.get("content")
        printer.print_parts(decode_content({"content": content if type(content) is list else [content]}))
    printer.finish()
