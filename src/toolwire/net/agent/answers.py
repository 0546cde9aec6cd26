"""The outcome of an agent's run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

from ...ir.errors import ConfigError, ToolwireError
from ...ir.losses import Loss
from ...ir.notebook import html_table
from ...ir.parts import ToolCall, ToolResult
from ...ir.request import Message
from ...ir.response import Response, Usage
from ...ir.value import Value
from ...run.session.compaction import CompactedPrefix
from ...run.session.history import check_history
from ...run.session.loop import Session
from ...run.session.state import RunState, encode_state
from ...run.values.waiting import WaitingCall

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=None)
    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")
    Output = TypeVar("Output")


class NoAnswer(ToolwireError):
    """The run ended without an answer, for example because its budget was exhausted."""


class Answer(Value, Generic[Output], frozen=True):
    """The outcome of a run.

    `text`: the text of the last response. `messages`: the whole conversation, `new_messages`: those of this run; pass
    either to `run(history=…)` to continue. `usage` and `cost` are sums over all model requests of the run. `reason`: why
    there is no answer; empty if there is one. `output_tool`: the name of the final-answer tool, if the run had one; its
    calls are part of the messages, but not of `calls` and `results`. `losses`: the parts of this run's requests and responses
    that a provider or a model could not receive as intended, since the run was started or loaded, including subagents
    and of an auxiliary model; pointers are canonical, such as `/params/seed`. `compacted`: the form of the first messages that
    was sent to the model.
    `auxiliary_usage`: the part of `usage` that an auxiliary model used. `tainted`: the conversation contains untrusted
    tool output; a run that continues it is tainted, too. `offered`: the names of the offered tools, in their order; a
    run that continues the conversation with a retriever offers them again.
    `pending`: the calls that wait for approval or for a result; `run_state` and `state`: the run that waits,
    as a value and as text (`Session.dump`).
    """

    text: str
    value: Output | None
    response: Response | None
    messages: tuple[Message, ...]
    first_message: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    reason: str = ""
    run_id: str = ""
    output_tool: str | None = None
    compacted: CompactedPrefix | None = None
    auxiliary_usage: Usage = Usage()
    pending: tuple[WaitingCall, ...] = ()
    run_state: RunState | None = None
    tainted: bool = False
    offered: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def finished(self) -> bool:
        return not self.reason

    @property
    def suspended(self) -> bool:
        """True if the run waits for decisions about `pending`, and can be continued after them."""
        return bool(self.pending)

    def session(self) -> Session:
        """Return the run that waits: call `approve`, `deny` or `supply` on it, and pass it to `Agent.run`.

        Raise ConfigError if the run does not wait.
        """
        if not self.pending:
            raise ConfigError("the run is not suspended", hint="check answer.suspended first")
        assert self.run_state is not None
        return Session.load(self.run_state, now=time.time)

    @property
    def state(self) -> str:
        """The run that waits as text, for `Session.load`; empty if it does not wait. Made anew on each access."""
        return "" if self.run_state is None else encode_state(self.run_state)

    @property
    def output(self) -> Output:
        """The answer as a value of the agent's output type. Raises NoAnswer if the run ended without one."""
        if self.reason:
            raise NoAnswer(f"the run ended without an answer: {self.reason}", hint="check answer.finished first")
        return self.value  # type: ignore[return-value]  # set in every finished run

    @property
    def new_messages(self) -> tuple[Message, ...]:
        return self.messages[self.first_message :]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of this run, in order."""
        parts = [part for message in self.new_messages for part in message.parts]
        return tuple(part for part in parts if isinstance(part, ToolCall) and part.name != self.output_tool)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results of the calls of this run, in order."""
        parts = [part for message in self.new_messages for part in message.parts]
        return tuple(
            part
            for part in parts
            if isinstance(part, ToolResult) and (part.name is None or part.name != self.output_tool)
        )

    def _repr_html_(self) -> str:
        results = {result.call_id: result.text for result in self.results}
        rows = [(call.name, call.text, results.get(call.id, "")) for call in self.calls]
        return html_table(("call", "arguments", "result"), rows, self.text or self.reason)


def history_messages(history: Sequence[Message] | Answer[Any]) -> tuple[Message, ...]:
    """Return the messages of a history.

    Raise ConfigError for a run that waits: its calls may still be approved and run.
    """
    if not isinstance(history, Answer):
        return tuple(check_history(history))
    if history.suspended:
        hint = "continue it with resume(run_id, prompt), or decide and pass answer.session() to run"
        raise ConfigError(f"the run of this history is {history.reason}", hint=hint)
    return history.messages


def reusable_prefix(history: Sequence[Message] | Answer[Any], messages: tuple[Message, ...]) -> CompactedPrefix | None:
    """Return the compacted form of the history, unless its messages have changed, such as the system prompt."""
    prefix = history.compacted if isinstance(history, Answer) else None
    if prefix is None or messages[: prefix.replaces] != history.messages[: prefix.replaces]:  # type: ignore[union-attr]
        return None
    return prefix
