"""`toolwire chat`: chat with a model that can call your functions."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..ir.errors import ToolwireError
from ..ir.terminal import neutralise_line
from .agent_options import add_model_options, make_client
from .live import LivePrinter
from .run import ask_person
from .show import paint
from .tools_file import load_tools

if TYPE_CHECKING:
    from ..net.agent import Agent
    from ..net.answers import Answer
    from ..net.client import ModelClient
    from ..net.conversation import AgentConversation

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire chat                                        a small model in this process: no key, no network
  toolwire chat -m anthropic/claude-sonnet-5 -T tools.py
  toolwire chat -m llama --base-url http://localhost:8080/v1 --text hermes
  echo "Say hello." | toolwire chat                    one message per line; calls go to standard error

/quit or the end of the input ends the chat. Ctrl-C interrupts an answer.
exit codes: 0 done   1 a message got no answer   2 wrong usage
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "chat",
        help="chat with a model that can call your functions",
        description="Chat with a model that can call your functions.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-T", "--tools", metavar="TOOLS.py", help="a file of functions")
    add_model_options(parser, default="local/smollm2")
    parser.add_argument("--system", default="", help="the system prompt")
    parser.add_argument("--yes", action="store_true", help="do not ask before calls with side effects")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the chat on one event loop, because the client keeps its connections between messages."""
    with asyncio.Runner() as runner:
        client = make_client(arguments)
        try:
            return _chat_loop(_make_agent(client, arguments).conversation(), runner)
        finally:
            runner.run(client.aclose())


def _make_agent(client: ModelClient, arguments: argparse.Namespace) -> Agent:
    from ..net.agent import Agent
    from ..run.policy import Policy

    policy = Policy() if arguments.yes else Policy(approve=("write", "idempotent"))
    tools = [load_tools(arguments.tools)] if arguments.tools else []
    return Agent(client, tools, system=arguments.system, policy=policy, approve=ask_person)


def _chat_loop(conversation: AgentConversation, runner: asyncio.Runner) -> int:
    """Answer each line of the input. A failed or interrupted answer is reported, and the chat continues."""
    answered = True
    while (line := _read_line()) is not None:
        if not line.strip():
            continue
        try:
            reason = runner.run(_answer_line(conversation, line))
        except KeyboardInterrupt:
            reason = "interrupted"
        except ToolwireError as error:
            reason = str(error)
        if reason:
            print(paint(f"no answer: {neutralise_line(reason)}", "red", sys.stderr), file=sys.stderr)
            answered = False
    return 0 if answered else 1


def _read_line() -> str | None:
    """Read the next line; return None at the end of the input."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line if line and line.strip() != "/quit" else None
    with suppress(ImportError):  # optional: without it there is no line editing
        import readline  # noqa: F401
    try:
        line = input(paint("> ", "bold"))
    except EOFError:
        print()
        return None
    return None if line.strip() == "/quit" else line


async def _answer_line(conversation: AgentConversation, line: str) -> str:
    """Print the answer while it streams; return the reason if there is none, else an empty string."""
    live = LivePrinter(approval_hint="" if sys.stdin.isatty() and sys.stderr.isatty() else "use --yes")
    answer: Answer | None = None
    async for event in conversation.stream(line.rstrip("\n")):
        answer = live.show(event) or answer
    assert answer is not None
    return answer.reason
