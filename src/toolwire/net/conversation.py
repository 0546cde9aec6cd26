"""A conversation with an agent: each answer becomes part of the history of the next prompt."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Generic, Protocol

from ..ir.request import Message
from ..run.model_settings import ModelSettings
from .agent_loop import StreamItem
from .answers import Answer, Deps, Output, history_messages
from .blocking import iterate_blocking, run_blocking
from .prompts import UserPrompt

__all__ = ["AgentConversation"]


class PromptRunner(Protocol[Output]):
    """The methods of an `Agent` that a conversation uses."""

    async def run(
        self, prompt: UserPrompt, *, history: Sequence[Message] | Answer[Any], deps: Any, settings: ModelSettings | None
    ) -> Answer[Output]: ...

    def stream(
        self, prompt: UserPrompt, *, history: Sequence[Message] | Answer[Any], deps: Any, settings: ModelSettings | None
    ) -> AsyncGenerator[StreamItem | Answer[Output], None]: ...


class AgentConversation(Generic[Deps, Output]):
    """Messages and an agent. A prompt is dropped if its run ended without an answer and before a call had run.

    If calls have run, they are kept without an answer: the model has to know them. While a run waits for approval, the
    conversation cannot continue; pass the answer of the resumed run to `add`.
    """

    def __init__(
        self, agent: PromptRunner[Output], history: Sequence[Message] | Answer[Any] = (), *, deps: Deps
    ) -> None:
        self.messages = history_messages(history)
        # an answer is kept: it also has its compacted form, and is tainted if it contains untrusted output
        self._history: Sequence[Message] | Answer[Any] = history if isinstance(history, Answer) else self.messages
        self._agent = agent
        self._deps = deps

    async def run(self, prompt: UserPrompt, *, settings: ModelSettings | None = None) -> Answer[Output]:
        """Answer a prompt, and add both to the conversation."""
        answer = await self._agent.run(prompt, history=self._history, deps=self._deps, settings=settings)
        return self.add(answer)

    async def stream(
        self, prompt: UserPrompt, *, settings: ModelSettings | None = None
    ) -> AsyncGenerator[StreamItem | Answer[Output], None]:
        """Yield the events of the answer, and the answer at the end, as `Agent.stream` does."""
        async for item in self._agent.stream(prompt, history=self._history, deps=self._deps, settings=settings):
            yield self.add(item) if isinstance(item, Answer) else item

    def run_sync(self, prompt: UserPrompt, *, settings: ModelSettings | None = None) -> Answer[Output]:
        return run_blocking(self.run(prompt, settings=settings))

    def stream_sync(
        self, prompt: UserPrompt, *, settings: ModelSettings | None = None
    ) -> Iterator[StreamItem | Answer[Output]]:
        return iterate_blocking(self.stream(prompt, settings=settings))

    def add(self, answer: Answer[Output]) -> Answer[Output]:
        """Continue after this answer, such as that of a resumed run. `run` and `stream` add their answers themselves."""
        if answer.finished or answer.suspended or answer.results:
            self.messages, self._history = answer.messages, answer
        return answer
