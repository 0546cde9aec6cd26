"""The state of a chat, and the commands that change or show it, such as /tools and /model.

The state is the agent, the history, and the totals. It can be undone, saved, and continued with another model.
Commands are recognised on a terminal only: piped text is not trusted.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ...ir.errors import ConfigError, ToolwireError
from ...ir.terminal import count_of, neutralise_line, neutralise_text
from ..terminal.output import table
from .options import add_model_options, announce_model, make_client, make_price

if TYPE_CHECKING:
    from ...ir.request import Message
    from ...net.agent.agent import Agent
    from ...net.agent.answers import Answer
    from ...net.model.client import ModelClient
    from ...net.model.interface import PromptItem
    from ...net.tools.runner import Runner
    from ...run.session.loop import Session
    from .live_loop import AgentThread


_MAX_FILE = 50 * 1024 * 1024  # bytes of a saved chat, which is read into memory; it may have pictures
_MAX_TURNS = 100  # that can be undone


class ChatTurn(NamedTuple):
    """A prompt, and the history before it."""

    prompt: list[PromptItem]
    before: Sequence[Message] | Answer[Any]


class ChatTotals:
    """Tokens, cost and time of all answers so far."""

    def __init__(self) -> None:
        self.answers = 0
        self.input = 0
        self.output = 0
        self.cached = 0
        self.has_usage = False  # an answer came with token counts
        self.cost = 0.0
        self.seconds = 0.0
        self.first_token = 0.0  # seconds until the last answer began
        self.last_seconds = 0.0

    def add(self, session: Session | None, seconds: float, first_token: float) -> None:
        """Add an answer, also one that failed or was interrupted: its requests were made."""
        self.answers += 1
        self.seconds += seconds
        self.last_seconds, self.first_token = seconds, first_token
        if session is None:
            return
        usage = session.state.usage
        if usage is not None and usage.input is not None:
            self.has_usage = True
            self.input += usage.input or 0
            self.output += usage.output or 0
            self.cached += usage.cached or 0
        self.cost += session.state.cost


class ChatSession:
    """A conversation. `runner` has the tools; `arguments` are those of the model and change with it."""

    def __init__(self, runner: Runner, client: ModelClient, arguments: argparse.Namespace) -> None:
        self.runner = runner
        self.client = client
        self.arguments = arguments
        self.system: str = arguments.system
        self.history: Sequence[Message] | Answer[Any] = ()
        self.turns: list[ChatTurn] = []
        self.attached: list[Path] = []
        self.dropped: list[PromptItem] | None = None  # the last prompt, if it has no answer and is not in the history
        self.totals = ChatTotals()
        self._session: Session | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        from ...net.agent.answers import history_messages

        return history_messages(self.history)

    async def stream(self, prompt: list[PromptItem]) -> AsyncGenerator[Any, None]:
        """Yield the events of the answer, and add it to the history. `attached` files are part of the prompt."""
        from ...net.agent.answers import Answer

        items = [*prompt, *self.attached]
        turn = ChatTurn(items, self.history)
        self._session, self.dropped = None, prompt
        started, first = time.monotonic(), 0.0
        try:
            agent = self._make_agent()
            self._session = await agent.session(items, history=self._history_to_send())
            async with aclosing(agent.stream(self._session)) as events:
                async for event in events:
                    first = first or time.monotonic()
                    if isinstance(event, Answer) and event.finished:
                        self.history = event
                    yield event
        finally:
            now = time.monotonic()
            self.totals.add(self._session, now - started, (first or now) - started)
            self._keep_turn(turn)

    def _history_to_send(self) -> Sequence[Message] | Answer[Any]:
        """Return the history, without an earlier system prompt if it was removed; the agent only replaces one."""
        from ...run.session.history import replace_system

        return self.history if self.system else replace_system(self.messages, "")

    def _make_agent(self) -> Agent[None, str]:
        from ...net.agent.agent import Agent
        from ...run.session.state import Budget

        budget = Budget(iterations=self.arguments.max_iterations)
        price = make_price(self.arguments.price)
        return Agent(self.client, self.runner, system=self.system, budget=budget, price=price)

    def _keep_turn(self, turn: ChatTurn) -> None:
        """Add the turn. Without an answer, it is kept only if tools have run: the model must know their results."""
        from ...ir.parts import ToolResult

        if self.history is turn.before:
            state = None if self._session is None else self._session.state
            added = () if state is None else state.request.messages[state.first_message :]
            if state is None or not any(isinstance(part, ToolResult) for one in added for part in one.parts):
                return
            self.history = state.request.messages
        self.attached, self.dropped = [], None
        self.turns = [*self.turns[1 - _MAX_TURNS :], turn]

    def undo(self) -> ChatTurn:
        """Remove the last prompt and its answer, and return them. Effects of its tools are not undone."""
        if not self.turns:
            raise ConfigError("there is nothing to undo")
        turn = self.turns.pop()
        self.dropped = None
        self.history = turn.before
        return turn

    def take_last_prompt(self) -> list[PromptItem]:
        """Return the last prompt, and remove it and its answer, to send it again."""
        if self.dropped is None and not self.turns:
            raise ConfigError("there is no prompt to send again")
        dropped, self.dropped = self.dropped, None
        return self.undo().prompt if dropped is None else dropped

    def clear(self) -> None:
        """Start a new conversation with the same model and tools."""
        self.history, self.turns, self.attached, self.dropped = (), [], [], None

    async def switch_model(self, arguments: argparse.Namespace) -> None:
        """Continue with another model; it gets the whole history on its own wire."""
        make_price(arguments.price)
        client = make_client(arguments)
        old, self.client = self.client, client
        self.arguments = argparse.Namespace(**{**vars(self.arguments), **vars(arguments)})
        await old.aclose()

    def save(self, file: str) -> int:
        """Write the chat to a file that only the user can read; return the number of messages.

        An existing file is replaced only if it is a saved chat.
        """
        import msgspec

        from ...run.session.history import replace_system

        path = Path(file).expanduser()
        messages = replace_system(self.messages, self.system)
        document = {
            "toolwire_chat": 1,
            "model": self.arguments.model,
            "messages": msgspec.to_builtins(messages),
        }
        try:
            if path.exists() and not _is_saved_chat(path):
                raise ConfigError(f"{file} exists and is not a saved chat", hint="choose another name")
            new = path.with_name(f".{path.name}.{os.getpid()}")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(msgspec.json.encode(document))
            new.replace(path)
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}") from None
        return len(messages)

    def load(self, file: str) -> int:
        """Continue a saved chat, or messages of `dump_messages`; return the number of messages."""
        import msgspec

        from ...run.session.history import load_messages
        from ...stream.strict import parse

        path = Path(file).expanduser()
        try:
            if path.stat().st_size > _MAX_FILE:
                raise ConfigError(f"{file} is larger than {_MAX_FILE:,} bytes")
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from None
        try:
            document = parse(data)
            if isinstance(document, dict) and document.get("toolwire_chat") == 1:
                data = msgspec.json.encode(document.get("messages"))
            messages = load_messages(data)
        except ToolwireError as error:
            raise ConfigError(
                f"{file} is not a saved chat: {error.message}", hint="use a file that /save wrote"
            ) from None
        self.clear()
        self.history, self.system = messages, self.system or _system_text(messages)
        return len(messages)


def _system_text(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.text for message in messages if message.role in ("system", "developer"))


def _is_saved_chat(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(17).startswith(b'{"toolwire_chat"')


# The commands of a chat, such as /tools and /model. They are recognised on a terminal only: piped text is not
# trusted.


_MAX_ATTACHED = 50 * 1024 * 1024  # bytes of one file, which is read into memory and sent as base64. Not measured


class CommandInput(NamedTuple):
    """The chat, the thread of its agent, and the text after the name of a command."""

    session: ChatSession
    thread: AgentThread
    rest: str


class ChatCommand(NamedTuple):
    """One command: its arguments and description for /help."""

    usage: str
    about: str
    run: Callable[[CommandInput], list[PromptItem] | None]


def run_command(line: str, session: ChatSession, thread: AgentThread) -> list[PromptItem] | None:
    """Run a command line; return the prompt to send, if it has one. An unknown command is a ConfigError."""
    name, _, rest = line.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise ConfigError(f"unknown command {name}", hint=_suggest(name))
    return command.run(CommandInput(session, thread, rest.strip()))


def _suggest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name[:40], COMMANDS, 1)
    return f"did you mean {near[0]}?" if near else "/help lists the commands"


def _help(_: CommandInput) -> None:
    rows = [(f"{name} {command.usage}".strip(), command.about) for name, command in COMMANDS.items()]
    print("\n".join(table(rows)))
    print('@FILE in a prompt attaches the file. """ starts and ends a prompt of several lines; so does a backslash at')
    print("the end of a line. Ctrl-C stops an answer, Ctrl-D leaves.")


def _tools(given: CommandInput) -> None:
    entries = list(given.session.runner.box)
    if not entries:
        print("no tools; start the chat with -t SOURCE")
        return
    rows = []
    for entry in entries:
        about = (entry.tool.description or "").strip().partition("\n")[0]
        rows.append((f"{entry.name}({_parameter_names(entry.tool)})", entry.tool.effect, about[:300]))
    print("\n".join(table(rows, ("tool", "effect", "description"))))


def _parameter_names(tool: Any) -> str:
    schema = tool.input_schema or {}
    properties, required = schema.get("properties"), schema.get("required")
    names = list(properties)[:12] if isinstance(properties, dict) else []
    needed = required if isinstance(required, list) else []
    return ", ".join(str(name) if name in needed else f"{name}?" for name in names)


def _model(given: CommandInput) -> None:
    """Show or switch the model. A bare name is another model of the same server."""
    if not given.rest:
        print(neutralise_line(given.session.arguments.model))
        return
    parser = _ModelParser(prog="/model", add_help=False)
    parser.add_argument("name")
    add_model_options(parser)
    try:
        chosen = parser.parse_args(shlex.split(given.rest))
    except ValueError as error:
        raise ConfigError(f"cannot read the arguments: {error}") from None
    chosen.model = chosen.name
    if "/" not in chosen.name and chosen.base_url is None and not _provider_of(chosen.name):
        current = given.session.arguments
        chosen.model = _provider_of(current.model) + chosen.name
        chosen.base_url, chosen.key_env = current.base_url, chosen.key_env or current.key_env
    announce_model(chosen.model, base_url=chosen.base_url)  # it refuses an unknown local model
    given.thread.run(given.session.switch_model(chosen))
    print(f"{neutralise_line(chosen.model)} continues with {count_of(len(given.session.messages), 'message')}")


def _provider_of(model: str) -> str:
    """Return the known provider in the name of a model, with its separator; empty without one."""
    from ...wire.models.vendors import names

    found = re.match(r"([^/:]+)[/:]", model)
    return found[0] if found is not None and found[1].lower() in names() else ""


class _ModelParser(argparse.ArgumentParser):
    """A parser that raises instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(
            message, hint="/model NAME [--base-url URL] [--key-env NAME] [--text FORMAT] [--price INPUT/OUTPUT]"
        )


def _system(given: CommandInput) -> None:
    if given.rest:
        given.session.system = "" if given.rest == "none" else given.rest
    print(neutralise_text(given.session.system) or "no system prompt")


def _attach(given: CommandInput) -> None:
    """Add a file to the next prompt; without a name, list the added files."""
    if given.rest:
        path = Path(_unquote(given.rest)).expanduser()
        if not path.is_file():
            raise ConfigError(f"cannot read {given.rest}: not a file", hint="/attach FILE")
        if path.stat().st_size > _MAX_ATTACHED:
            raise ConfigError(f"{given.rest} has more than {_MAX_ATTACHED:,} bytes")
        given.session.attached.append(path)
    names = ", ".join(neutralise_line(str(path)) for path in given.session.attached)
    print(f"attached to the next prompt: {names}" if names else "no files are attached")


def _save(given: CommandInput) -> None:
    if not given.rest:
        raise ConfigError("a file name is missing", hint="/save FILE")
    count = given.session.save(_unquote(given.rest))
    print(f"{count_of(count, 'message')} saved; continue with /load or toolwire chat --resume")


def _load(given: CommandInput) -> None:
    if not given.rest:
        raise ConfigError("a file name is missing", hint="/load FILE")
    print(f"{count_of(given.session.load(_unquote(given.rest)), 'message')} loaded")


def _unquote(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        return text
    return words[0] if len(words) == 1 else text


def _usage(given: CommandInput) -> None:
    totals = given.session.totals
    cached = f", {totals.cached:,} of them cached" if totals.cached else ""
    rows = [
        ("answers", f"{totals.answers}"),
        ("input tokens", f"{totals.input:,}{cached}" if totals.has_usage else "unknown"),
        ("output tokens", f"{totals.output:,}" if totals.has_usage else "unknown"),
        ("cost", f"{totals.cost:.6f}" if given.session.arguments.price else "unknown; set --price INPUT/OUTPUT"),
        ("time", f"{totals.seconds:.1f} s"),
        ("last answer", f"first event after {totals.first_token:.2f} s, {totals.last_seconds:.1f} s in total"),
        ("conversation", count_of(len(given.session.messages), "message")),
    ]
    print("\n".join(table(rows)))


def _clear(given: CommandInput) -> None:
    given.session.clear()
    print("new conversation")


def _undo(given: CommandInput) -> None:
    given.session.undo()
    print(f"removed the last prompt and its answer; {count_of(len(given.session.messages), 'message')} left")


def _retry(given: CommandInput) -> list[PromptItem]:
    return given.session.take_last_prompt()


def _exit(_: CommandInput) -> None:
    """Do nothing: the chat ends before it runs a command of this name."""


COMMANDS: dict[str, ChatCommand] = {
    "/help": ChatCommand("", "list the commands", _help),
    "/tools": ChatCommand("", "list the tools, their parameters and effects", _tools),
    "/model": ChatCommand("[NAME [OPTIONS]]", "show the model, or continue with another one", _model),
    "/system": ChatCommand("[TEXT|none]", "show or set the system prompt", _system),
    "/attach": ChatCommand("[FILE]", "add an image, a PDF or a text to the next prompt", _attach),
    "/usage": ChatCommand("", "tokens, cost and time so far", _usage),
    "/save": ChatCommand("FILE", "save the conversation", _save),
    "/load": ChatCommand("FILE", "continue a saved conversation", _load),
    "/undo": ChatCommand("", "remove the last prompt and its answer; effects of tools stay", _undo),
    "/retry": ChatCommand("", "send the last prompt again", _retry),
    "/clear": ChatCommand("", "start a new conversation", _clear),
    "/exit": ChatCommand("", "leave; also Ctrl-D", _exit),
    "/quit": ChatCommand("", "leave", _exit),
}
