"""The state of a chat: the agent, the history, and the totals. It can be undone, saved, and continued with another model."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...ir.errors import ConfigError, ToolwireError
from ..sources.documents import replace_file
from .options import make_client, make_price

if TYPE_CHECKING:
    from ...ir.request import Message
    from ...net.agent.agent import Agent
    from ...net.agent.answers import Answer
    from ...net.model.client import ModelClient
    from ...net.model.interface import PromptItem
    from ...net.tools.runner import Runner
    from ...run.session.loop import Session


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
    """A conversation. `runner` has the tools; `arguments` describe the model and change with it."""

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
        """Yield the events of the answer, then add the turn to the history and the totals.

        `attached` files are part of the prompt. `dropped` is the prompt until the turn is kept.
        """
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
        """Add the turn, and forget the attached files and the dropped prompt.

        Without an answer, the turn is kept only if tools have run: the model must know their results.
        """
        from ...ir.parts import ToolResult

        if self.history is turn.before:
            state = None if self._session is None else self._session.state
            added = () if state is None else state.request.messages[state.first_message :]
            if state is None or not any(isinstance(part, ToolResult) for message in added for part in message.parts):
                return
            self.history = state.request.messages
        self.attached, self.dropped = [], None
        self.turns = [*self.turns[1 - _MAX_TURNS :], turn]

    def undo(self) -> ChatTurn:
        """Remove the last prompt and its answer, and return them. Effects of its tools are not undone.

        Raise ConfigError if there is none.
        """
        if not self.turns:
            raise ConfigError("there is nothing to undo")
        turn = self.turns.pop()
        self.dropped = None
        self.history = turn.before
        return turn

    def take_last_prompt(self) -> list[PromptItem]:
        """Return the last prompt, and remove it and its answer, to send it again.

        Raise ConfigError if there is none.
        """
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

        An existing file is replaced only if it is a saved chat. Raises `ConfigError` if it is not, or cannot be
        written.
        """
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
            if path.is_file() and os.access(path, os.W_OK):
                path.chmod(0o600)
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}") from None
        replace_file(path, msgspec.json.encode(document))
        return len(messages)

    def load(self, file: str) -> int:
        """Replace the chat by a saved chat, or by messages of `dump_messages`; return the number of messages.

        The system prompt of this chat takes precedence. Raises `ConfigError` for an unreadable, too large or invalid
        file.
        """
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
        system = "\n\n".join(message.text for message in messages if message.role in ("system", "developer"))
        self.history, self.system = messages, self.system or system
        return len(messages)


def _is_saved_chat(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(17).startswith(b'{"toolwire_chat"')
