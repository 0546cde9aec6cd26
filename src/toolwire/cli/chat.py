"""`toolwire chat`: a conversation with a model that can call your tools."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError, ToolwireError
from ..ir.hints import translate_hint
from ..ir.terminal import neutralise_line
from .agent_options import (
    add_model_options,
    add_tool_options,
    announce_model,
    make_client,
    make_price,
    open_tools,
    positive_number,
)
from .answer_output import print_no_answer, report_incomplete_answer
from .chat_commands import COMMANDS, run_command
from .chat_input import ChatInput, find_attachments
from .chat_session import ChatSession
from .live import LivePrinter
from .live_approval import ApprovalPrompt, has_terminal
from .live_loop import AgentThread, Interrupted, report_waiting
from .show import count_of, paint

if TYPE_CHECKING:
    from ..net.agent.answers import Answer
    from ..net.model.interface import PromptItem
    from ..net.tools.runner import Runner

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire chat                                        a small model in this process: no key, no network
  toolwire chat -m anthropic/claude-sonnet-5 -t tools.py
  toolwire chat -m openai/gpt-5.6 -t mcp.json -t "npx -y some-mcp-server"
  toolwire chat -m llama --base-url http://localhost:8080/v1 --text hermes
  toolwire chat --resume talk.json                     continue a conversation that /save wrote
  echo "Say hello." | toolwire chat                    one prompt per line; calls go to standard error

In the chat, /help lists the commands. Ctrl-C stops an answer and its calls, Ctrl-D leaves. In a pipe every line is a
prompt, and /exit ends the chat; other commands are for terminals.
exit codes: 0 done   1 a piped prompt got no answer   2 wrong usage
"""


_COMMAND_LINE = re.compile(r"\s*/[^/\s]*(?!\S)")  # a path begins a prompt, not a command


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "chat",
        help="chat with a model that can call your tools",
        description="Chat with a model that can call your tools.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_options(parser, default="local/smollm2")
    parser.add_argument("--system", default="", help="the system prompt")
    parser.add_argument("--resume", metavar="FILE", help="continue a conversation that /save wrote")
    parser.add_argument("--yes", action="store_true", help="do not ask before calls with side effects")
    parser.add_argument(
        "--plain", action="store_true", help="print text as the model writes it, without rendering Markdown"
    )
    parser.add_argument("--quiet", action="store_true", help="do not print the notes at the start")
    parser.add_argument(
        "--max-iterations",
        type=positive_number,
        default=16,
        metavar="N",
        help="maximum number of model requests per prompt (16)",
    )
    add_tool_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Open the tools and the model on the event loop of the agent, and answer prompts until the input ends."""
    make_price(arguments.price)
    return _Chat(arguments).run()


class _Chat:
    """The loop of prompts and answers."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._runner: Runner | None = None
        approval = ApprovalPrompt(lambda: None if self._runner is None else self._runner.box)
        self._thread = AgentThread(approval.ask, report_waiting)
        self._hint = "" if has_terminal() else "use --yes"

    def run(self) -> int:
        """Answer the prompts; return 1 if a piped one got no answer."""
        try:
            session = self._thread.open(self._open_session())
            self._runner = session.runner
            if self._arguments.resume:
                session.load(self._arguments.resume)
            reader = ChatInput(COMMANDS)
            self._greet(session, reader)
            is_answered = self._answer_prompts(session, reader)
        finally:
            self._thread.close()
        return 0 if is_answered or reader.is_terminal else 1

    @asynccontextmanager
    async def _open_session(self) -> AsyncIterator[ChatSession]:
        """Open the tools and the model. The model may change during the chat; the last one is closed."""
        from ..net.tools.runner import Runner
        from ..run.calls.policy import Policy

        arguments = self._arguments
        policy = Policy() if arguments.yes else Policy(approve=("write", "idempotent"))
        async with open_tools(arguments) as tools:
            runner = Runner(*tools, policy=policy, approve=self._thread.approve)
            session = ChatSession(runner, make_client(arguments), arguments)
            try:
                yield session
            finally:
                await session.client.aclose()
                runner.close()

    def _greet(self, session: ChatSession, reader: ChatInput) -> None:
        if self._arguments.quiet:
            return
        announce_model(session.arguments.model, base_url=session.arguments.base_url)
        if reader.is_terminal:
            tools = count_of(len(session.runner.box), "tool")
            earlier = f", {count_of(len(session.messages), 'message')}" if session.messages else ""
            model = neutralise_line(session.arguments.model)
            line = f"{model}, {tools}{earlier}. /help lists the commands, Ctrl-D leaves."
            print(paint(line, "dim", sys.stderr), file=sys.stderr)

    def _answer_prompts(self, session: ChatSession, reader: ChatInput) -> bool:
        """Answer each prompt. A failed or stopped answer is reported, and the chat continues."""
        is_answered = True
        while True:
            try:
                text = reader.read()
            except KeyboardInterrupt:  # on a terminal: drop the line
                print(file=sys.stderr)
                continue
            if text is None or text.strip() in ("/exit", "/quit"):
                return is_answered
            if not text.strip():
                continue
            try:
                prompt = self._make_prompt(text, session, reader)
            except ToolwireError as error:  # of a command
                print(paint(_describe(error), "red", sys.stderr), file=sys.stderr)
                continue
            if prompt is None:
                continue
            try:
                self._answer(prompt, session)
            except Interrupted:
                print(paint("stopped", "yellow", sys.stderr), file=sys.stderr)
                is_answered = False
            except ToolwireError as error:
                print_no_answer(_describe(error))
                is_answered = False

    def _make_prompt(self, text: str, session: ChatSession, reader: ChatInput) -> list[PromptItem] | None:
        """Return the prompt with its attachments; run a command, and return its prompt, if it has one."""
        if not reader.is_terminal:
            return [text]
        if _COMMAND_LINE.match(text):
            return run_command(text, session, self._thread)
        attached = find_attachments(text)
        for path in attached:
            print(paint(f"attached {neutralise_line(str(path))}", "dim", sys.stderr), file=sys.stderr)
        return [text, *attached]

    def _answer(self, prompt: list[PromptItem], session: ChatSession) -> None:
        """Print the answer as it arrives. Raises ConfigError with the reason if there is none."""
        live = LivePrinter(markdown=not self._arguments.plain, approval_hint=self._hint)
        answers: list[Answer[Any]] = []

        def show(event: Any) -> None:
            answer = live.show(event)
            answers.extend([] if answer is None else [answer])

        try:
            self._thread.show(session.stream(prompt), show)
        finally:
            live.close()
        (answer,) = answers
        if not answer.finished:
            raise ConfigError(answer.reason)
        report_incomplete_answer(answer)


def _describe(error: ToolwireError) -> str:
    """Return the message of an error, with its hint in terms of options."""
    error.hint = translate_hint(error.hint, "option")
    return neutralise_line(str(error))
