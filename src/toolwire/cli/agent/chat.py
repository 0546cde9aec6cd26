"""`toolwire chat`: a conversation with a model that can call your tools. A prompt is a line, or several lines."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError, ToolwireError
from ...ir.hints import translate_hint
from ...ir.terminal import count_of, neutralise_line
from ..terminal.input import (
    ApprovalPrompt,
    LineHistory,
    edit_line,
    has_terminal,
    replace_invalid,
    set_completer,
    state_folder,
)
from ..terminal.options import add_command, add_flag, positive_number
from ..terminal.output import paint, print_note
from .chat_commands import COMMANDS, run_command
from .chat_session import ChatSession
from .live import LivePrinter
from .live_loop import AgentThread, Interrupted, report_waiting
from .options import (
    add_model_options,
    add_tool_options,
    announce_model,
    make_client,
    make_price,
    open_tools,
)
from .output import print_no_answer, report_incomplete_answer

if TYPE_CHECKING:
    from ...net.agent.answers import Answer
    from ...net.model.interface import PromptItem
    from ...net.tools.runner import Runner


# Read the prompts of a chat: one line, or several.
#
# On a terminal, a prompt of several lines is pasted, or written between """ and """, or with a backslash at the end
# of each line but the last. Tab completes commands and file names. In a pipe, every line is a prompt.


_QUOTES = '"""'
_MAX_PROMPT = 1_000_000  # characters; about the largest context windows, so that an open quotation mark ends somewhere
_MAX_MATCHES = 200  # readline prints all completions; more than a few screens help no user
_ATTACHED = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')
_MARKERS = re.compile(r"(\x1b\[[\d;]*m)")


class ChatInput:
    """The prompts of a chat. `commands`: the names to complete, such as `/tools`."""

    def __init__(self, commands: Iterable[str]) -> None:
        """On a terminal, load the input history and install tab completion for `commands`."""
        self.is_terminal = sys.stdin.isatty()
        self._commands = sorted(commands)
        self._history: LineHistory | None = None
        if self.is_terminal:
            with suppress(OSError):  # a home that cannot be written: no history
                self._history = LineHistory(state_folder() / "chat_history")
                self._history.load()
            set_completer(self._complete)

    def read(self) -> str | None:
        """Return the next prompt, which is added to the history on a terminal, or None at the end of the input.

        Invalid characters are replaced. Raises `KeyboardInterrupt` for Ctrl-C on a terminal.
        """
        if not self.is_terminal:
            line = sys.stdin.readline()
            return replace_invalid(line.removesuffix("\n")) if line else None
        try:
            text = self._read_lines()
        except EOFError:
            print(file=sys.stderr)
            return None
        if self._history is not None:
            self._history.add(text)
        return replace_invalid(text)

    def _read_lines(self) -> str:
        """Read a prompt from the terminal.

        It goes on over lines that end with a backslash, or until the closing quotes of a block.
        """
        line = edit_line(_prompt("> "))
        if line.lstrip().startswith(_QUOTES):
            return self._read_block(line.lstrip().removeprefix(_QUOTES))
        lines = [line]
        while lines[-1].endswith("\\") and sum(map(len, lines)) < _MAX_PROMPT:
            lines[-1] = lines[-1].removesuffix("\\")
            lines.append(edit_line(_prompt(". ")))
        return "\n".join(lines)

    def _read_block(self, first: str) -> str:
        """Read lines up to closing quotes, the end of the input or `_MAX_PROMPT` characters."""
        lines, size = [], 0
        line = first
        while not line.rstrip().endswith(_QUOTES) and size < _MAX_PROMPT:
            lines.append(line)
            size += len(line)
            try:
                line = edit_line(_prompt(". "))
            except EOFError:
                line = _QUOTES
        lines.append(line.rstrip().removesuffix(_QUOTES))
        return "\n".join(lines).strip("\n")

    def _complete(self, line: str, word: str) -> list[str]:
        """Complete a command at the start of a line, and a file name after `@` or a command."""
        if line.startswith("/") and " " not in line:
            return [f"{name} " for name in self._commands if name.startswith(word)]
        if word.startswith("@"):
            return [f"@{name}" for name in _matching_files(word[1:])]
        return _matching_files(word) if line.startswith("/") else []


def find_attachments(text: str) -> list[Path]:
    """Return the existing files that a prompt names as `@path`, or `@"path with spaces"`.

    Anything else after @ is text: an address, a user name. Text that was pasted may name a file that its author wants to
    read: prompts of several lines attach nothing, and hidden files need /attach.
    """
    if "\n" in text:
        return []
    found: dict[Path, None] = {}
    for quoted, plain in _ATTACHED.findall(text[:_MAX_PROMPT]):
        for name in (quoted,) if quoted else (plain, plain.rstrip(".,;:!?)")):
            path = Path(name).expanduser()
            if name and not _is_hidden(path) and _is_file(path):
                found[path] = None
                break
    return list(found)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") and part not in (".", "..") for part in path.parts)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or has a null character
        return False


def _matching_files(start: str) -> list[str]:
    """Return up to `_MAX_MATCHES` paths that begin with `start`, in its own form; folders end with a slash.

    Hidden files need a name that begins with a dot; an unreadable folder has none.
    """
    folder, slash, name = start.rpartition("/")
    parent = Path(f"{folder}{slash}" or ".").expanduser()
    try:
        entries = sorted(entry for entry in parent.iterdir() if entry.name.startswith(name))
    except (OSError, RuntimeError):
        return []
    visible = [entry for entry in entries if name or not entry.name.startswith(".")]
    return [f"{folder}{slash}{entry.name}{'/' if entry.is_dir() else ''}" for entry in visible[:_MAX_MATCHES]]


def _prompt(text: str) -> str:
    """Return a bold prompt; readline must not count its escape sequences as columns."""
    return _MARKERS.sub("\x01\\1\x02", paint(text, "bold"))


_HELP = """\
Chat with a model that can call your tools.

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
    """Register `toolwire chat` with its options."""
    parser = add_command(commands, "chat", "chat with a model that can call your tools", _HELP, run)
    add_model_options(parser)
    parser.add_argument("--system", default="", help="the system prompt")
    parser.add_argument("--resume", metavar="FILE", help="continue a conversation that /save wrote")
    add_flag(parser, "--yes", "do not ask before calls with side effects")
    add_flag(parser, "--plain", "print text as the model writes it, without rendering Markdown")
    add_flag(parser, "--quiet", "do not print the notes at the start")
    parser.add_argument(
        "--max-iterations",
        type=positive_number,
        default=16,
        metavar="N",
        help="maximum number of model requests per prompt (16)",
    )
    add_tool_options(parser)


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
        """Answer the prompts; return 1 if a piped prompt got no answer.

        Raises `ToolwireError` if the tools, the model or the chat of --resume cannot be opened.
        """
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
        """Yield a session with the tools and the model.

        Calls with side effects need approval unless --yes is given. The model may change during the chat; the last
        model is closed.
        """
        from ...net.tools.runner import Runner
        from ...run.calls.policy import Policy

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
        """Print the model's notes and, on a terminal, a line with the numbers of tools and messages.

        Silent with --quiet.
        """
        if self._arguments.quiet:
            return
        announce_model(session.arguments.model, base_url=session.arguments.base_url)
        if reader.is_terminal:
            tools = count_of(len(session.runner.box), "tool")
            earlier = f", {count_of(len(session.messages), 'message')}" if session.messages else ""
            model = neutralise_line(session.arguments.model)
            line = f"{model}, {tools}{earlier}. /help lists the commands, Ctrl-D leaves."
            print_note(line, "dim")

    def _answer_prompts(self, session: ChatSession, reader: ChatInput) -> bool:
        """Answer prompts until the end of the input or /exit, and return whether all got an answer.

        A failed or stopped answer is reported, and the chat continues.
        """
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
                print_note(_describe(error), "red")
                continue
            if prompt is None:
                continue
            try:
                self._answer(prompt, session)
            except Interrupted:
                print_note("stopped")
                is_answered = False
            except ToolwireError as error:
                print_no_answer(_describe(error))
                is_answered = False

    def _make_prompt(self, text: str, session: ChatSession, reader: ChatInput) -> list[PromptItem] | None:
        """Return the prompt with its attachments, or run a command and return the prompt that it asks for, or None.

        Piped text is never a command and attaches nothing. Raises `ToolwireError` for a failed command.
        """
        if not reader.is_terminal:
            return [text]
        if _COMMAND_LINE.match(text):
            return run_command(text, session, self._thread)
        attached = find_attachments(text)
        for path in attached:
            print_note(f"attached {neutralise_line(str(path))}", "dim")
        return [text, *attached]

    def _answer(self, prompt: list[PromptItem], session: ChatSession) -> None:
        """Print the answer as it arrives, and report if it was cut off.

        Raises `ConfigError` with the reason if there is no answer.
        """
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
