"""The canonical request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from .parts import Extra, Part, Text, ToolResult
from .pointer import JSON, Object
from .tools import Tool, ToolChoice
from .value import Value

# Tool results are parts of user messages, because they come from outside the model. A wire with a separate role for
# them maps it in its codec.
Role: TypeAlias = Literal["system", "developer", "user", "assistant"]


class Message(Value, frozen=True):
    """One message of the conversation."""

    role: Role
    parts: tuple[Part, ...] = ()
    extra: Extra = {}

    @property
    def text(self) -> str:
        """The text of the message, without results, reasoning and media."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results of calls in the message."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


class Params(Value, frozen=True):
    """Sampling and bookkeeping parameters that more than one wire supports. None means unset."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    user: str | None = None
    metadata: Object | None = None
    store: bool | None = None
    service_tier: str | None = None
    cache_key: str | None = None
    safety_identifier: str | None = None
    verbosity: str | None = None
    include_usage: bool | None = None


class ReasoningConfig(Value, frozen=True):
    """The amount of reasoning (`mode`, `effort`, `budget` in tokens) and its visibility (`visible`)."""

    mode: Literal["off", "auto", "budget"] | None = None
    effort: str | None = None
    budget: int | None = None
    visible: bool | None = None
    extra: Extra = {}


class OutputFormat(Value, frozen=True):
    """The required form of the final answer: prose, any JSON object, or JSON that matches `schema`.

    `strict` is true if the provider has to enforce the schema; some wires always do.
    """

    kind: Literal["text", "json", "json_schema"]
    schema: JSON = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    extra: Extra = {}


class Request(Value, frozen=True):
    """A whole request. `parallel` has three values; unset differs from false."""

    model: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice | None = None
    parallel: bool | None = None
    params: Params = Params()
    reasoning: ReasoningConfig | None = None
    output: OutputFormat | None = None
    stream: bool | None = None
    extra: Extra = {}


def found_in_history(messages: Iterable[Message]) -> tuple[str, ...]:
    """Return the names of the tools that searches of the caller have loaded, in order and without repetitions."""
    results = (part for message in messages for part in message.parts if isinstance(part, ToolResult))
    return tuple(dict.fromkeys(name for result in results for name in result.found))
