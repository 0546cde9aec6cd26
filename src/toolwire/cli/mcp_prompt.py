"""`toolwire mcp prompt`: get a prompt of an MCP server."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError, ProtocolError
from ..ir.terminal import neutralise_line
from .mcp_arguments import ARGUMENT_HELP, nearest, read_assignments
from .mcp_call import open_client
from .mcp_result import PartPrinter, add_output_option
from .mcp_target import add_target
from .mcp_traffic import add_traffic_options
from .show import json_text, paint

if TYPE_CHECKING:
    from ..ir.pointer import JSON, Object
    from .mcp_arguments import Assignment

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire mcp prompt tools.py review code=@main.py style=strict
  toolwire mcp prompt https://mcp.example.com/ greeting name=Ada --json

`toolwire mcp inspect SERVER` lists the prompts and their arguments, which are texts.
exit codes: 0 done   2 wrong usage, unknown prompt, or no answer
"""
_MAX_LISTED = 20


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "prompt",
        help="get a prompt of a server",
        description="Get a prompt of an MCP server and print its messages.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_target(parser, files=False)
    parser.add_argument("prompt", metavar="NAME", help="name of the prompt")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help=ARGUMENT_HELP)
    add_output_option(parser)
    add_traffic_options(parser)
    parser.add_argument("--json", action="store_true", help="print the prompt as MCP JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    given = read_assignments(arguments.arguments)
    answer = asyncio.run(_get_prompt(arguments, given))
    if arguments.json:
        print(json_text(answer))
    else:
        _print_messages(answer, PartPrinter(arguments.output, show_all=arguments.all))
    return 0


async def _get_prompt(arguments: argparse.Namespace, given: Object | list[Assignment]) -> Object:
    async with open_client(arguments) as client:
        listed = [one for one in await client.prompts() if type(one) is dict]
        declared = next((one for one in listed if one.get("name") == arguments.prompt), None)
        if declared is None:
            names = [name for one in listed if type(name := one.get("name")) is str]
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
        out[one.path] = _as_text(one)
    missing = [name for name, one in known.items() if one.get("required") is True and name not in out]
    if missing:
        example = " ".join(f"{name}=…" for name in missing[:_MAX_LISTED])
        listed_names = ", ".join(missing[:_MAX_LISTED])
        raise ConfigError(f"missing arguments of the prompt {prompt}: {listed_names}", hint=f"add {example}")
    return out


def _as_text(one: Assignment) -> str:
    from ..ir.text import dumps

    return one.value if type(one.value) is str else dumps(one.value)


def _unknown_name(message: str, name: str, known: list[str]) -> ConfigError:
    close = nearest(name, known)
    listed = ", ".join(known[:_MAX_LISTED]) or "none"
    return ConfigError(message, hint=f"available: {listed}" if close is None else f"did you mean {close}?")


def _print_messages(answer: Object, printer: PartPrinter) -> None:
    """Print the messages, each after its role."""
    from ..mcp.protocol.content import decode_content

    messages: JSON = answer.get("messages")
    if type(messages) is not list:
        raise ProtocolError("the prompt has no messages", pointer="/messages", status=502)
    for message in messages:
        raw = message if type(message) is dict else {}
        print(paint(neutralise_line(f"── {str(raw.get('role'))[:40]} ──"), "bold"))
        content = raw.get("content")
        printer.print_parts(decode_content({"content": content if type(content) is list else [content]}))
    printer.finish()
