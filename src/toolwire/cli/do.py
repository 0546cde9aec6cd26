"""`toolwire do`: turn a request into one command line, show it with its effect, and run it after confirmation."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..ir.errors import ConfigError
from .agent_options import add_model_options, announce_model, make_client, positive_number
from .do_call import NothingFits, ask_model
from .do_candidates import Candidates, load_candidates
from .do_outcome import DoOutcome, print_outcome
from .do_run import run_command_line
from .do_tools import run_source_call
from .line_editor import replace_invalid
from .tool_source import add_source_options

if TYPE_CHECKING:
    from ..net.model.interface import Model

__all__ = ["add_to", "run_request"]

_MAX_REQUEST = 4_000  # characters
_LOCAL_WITH_YES = (
    "not run: --yes does not apply to the local model, which is often wrong;"
    " use a stronger model with -m, or leave out --yes and confirm the command"
)
_EXAMPLES = """\
examples:
  toolwire do "list all my running containers"                    a small model in this process: no key, no network
  toolwire do "show the last 20 lines of app.log" -m openai/gpt-5.6
  toolwire do "how much disk space is left" --yes -m openai/gpt-5.6   runs without a question: the command only reads
  toolwire do "pack the folder site into site.tar.gz" --dry-run   show the command, run nothing
  toolwire do "list the pods" --learn kubectl                     runs `kubectl --help` to learn its options
  toolwire do "which pets are available" -t pets.json --api-url https://api.example.com
  toolwire do "order a pizza" -t zoo.json                         a list of API specifications: the call is shown
  toolwire do "free the port 8080" --json | jq -r .shown

The candidates are commands of this machine, read from man pages and completion files without running anything. The
command runs as a list of arguments, never through a shell: patterns, pipes and variables have no effect. --yes
applies to a fixed list of commands that only read; other commands need a confirmation on the terminal. The local model
is often wrong: with --yes, its command is shown and not run (exit code 1).
exit codes: 0 done, or shown with --dry-run   1 nothing fits, not confirmed, refused, or the command failed
            2 wrong usage, or the model is unreachable   130 interrupted
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "do",
        help="turn a request into a command, and run it after confirmation",
        description="Turn a request into one command of this machine or one API call, and run it after confirmation.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("request", nargs="?", help="what to do, in quotes; - is standard input")
    add_model_options(parser, default="local/smollm2")
    parser.add_argument(
        "--yes", action="store_true", help="do not ask before commands of the read-only list; others still need you"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the command and its effect, and run nothing")
    parser.add_argument("--json", action="store_true", help="print the command, its effect and its output as JSON")
    parser.add_argument(
        "--learn",
        action="append",
        default=[],
        metavar="COMMAND",
        help="run COMMAND --help, restricted, to learn about a command without a man page; repeatable",
    )
    parser.add_argument(
        "-k", type=positive_number, default=6, metavar="N", help="number of commands that the model sees (6)"
    )
    parser.add_argument(
        "--words-only", action="store_true", help="search by words only, without the encoder of the extra retrieve"
    )
    parser.add_argument("--no-commands", action="store_true", help="use only the tools of -t")
    parser.add_argument(
        "-t",
        "--tools",
        action="append",
        default=[],
        metavar="SOURCE",
        help="also search an OpenAPI document, a list or folder of API specifications, functions, or an MCP server; repeatable",
    )
    add_source_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Find candidates, let the model fill a call, and run it after confirmation."""
    request = _read_request(arguments)
    if not arguments.json:
        announce_model(arguments.model, base_url=arguments.base_url)
    candidates = load_candidates(arguments)
    return asyncio.run(_run_with_client(request, candidates, arguments))


async def _run_with_client(request: str, candidates: Candidates, arguments: argparse.Namespace) -> int:
    async with make_client(arguments) as client:
        outcome = await run_request(client, request, candidates, arguments)
    return print_outcome(outcome, as_json=arguments.json)


async def run_request(model: Model, request: str, candidates: Candidates, arguments: argparse.Namespace) -> DoOutcome:
    """Return the outcome of a request: at most one command or call has run."""
    is_local = arguments.model.startswith("local/") and arguments.base_url is None
    offer = candidates.search(request, arguments.k, is_small=is_local)
    if not offer.tools:
        return DoOutcome(request, "nothing_fits", message="no known command or tool fits this request")
    call = await ask_model(model, request, offer, is_small=is_local)
    offered = tuple(offer.labels)
    if isinstance(call, NothingFits):
        return DoOutcome(
            request, "refused" if call.is_refusal else "nothing_fits", message=call.reason, candidates=offered
        )
    # The local model is right in less than half of the cases, so nothing of it runs without a person (bench/do.py).
    is_only_shown = is_local and arguments.yes and not arguments.dry_run
    if is_only_shown:
        arguments = argparse.Namespace(**{**vars(arguments), "dry_run": True})
    if call.source is not None:
        outcome = await run_source_call(request, call.call, call.source, offered, arguments)
    else:
        assert call.line is not None
        outcome = run_command_line(request, call.line, offered, arguments)
    if is_only_shown and not outcome.message:
        return replace(outcome, kind="refused", message=_LOCAL_WITH_YES)
    return outcome


def _read_request(arguments: argparse.Namespace) -> str:
    usage = 'toolwire do "what to do" -m PROVIDER/MODEL'
    if arguments.request is None and sys.stdin.isatty():
        raise ConfigError("a request is missing", hint=usage)
    text = sys.stdin.read(_MAX_REQUEST + 1) if arguments.request in (None, "-") else arguments.request
    text = replace_invalid(text).strip()
    if not text:
        raise ConfigError("the request is empty", hint=usage)
    if len(text) > _MAX_REQUEST:
        raise ConfigError(f"the request is longer than {_MAX_REQUEST} characters", hint="describe one command")
    if not arguments.model:
        raise ConfigError("a model (-m) is missing", hint=usage)
    if arguments.no_commands and not arguments.tools:
        raise ConfigError("--no-commands needs tools", hint="add -t SOURCE")
    return text
