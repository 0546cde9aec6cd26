"""A conversation with an agent: each answer becomes part of the next prompt's history."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Generic, Protocol

from ...ir.events import TextDelta
from ...ir.request import Message
from ...run.session.loop import Session
from ...run.session.model_settings import ModelSettings
from ..model.interface import UserPrompt
from ..threads import iterate_blocking, run_blocking
from .answers import Answer, Deps, Output, history_messages
from .loop import StreamItem


class PromptRunner(Protocol[Output]):
    """The methods of an `Agent` that a conversation uses."""

    async def run(
        self,
        prompt: UserPrompt | Session,
        *,
        history: Sequence[Message] | Answer[Any],
        deps: Any,
        settings: ModelSettings | None,
    ) -> Answer[Output]: ...

    def stream(
        self,
        prompt: UserPrompt | Session,
        *,
        history: Sequence[Message] | Answer[Any],
        deps: Any,
        settings: ModelSettings | None,
    ) -> AsyncGenerator[StreamItem | Answer[Output], None]: ...

    async def resume(self, run_id: str, prompt: UserPrompt | None, *, deps: Any) -> Answer[Output]: ...


class AgentConversation(Generic[Deps, Output]):
    """Messages and an agent. A prompt without an answer is dropped unless tools have run: their results are kept.

    A run that waits for approval is added by `resume`, once its calls are decided; without a store, pass its session to
    `run`. Until then the conversation cannot continue: the calls of the run may still be made.
    """

    def __init__(
        self, agent: PromptRunner[Output], history: Sequence[Message] | Answer[Any] = (), *, deps: Deps
    ) -> None:
        self.messages = history_messages(history)
        # an answer is kept: it also has its compacted form, and is tainted if it contains untrusted output
        self._history: Sequence[Message] | Answer[Any] = history if isinstance(history, Answer) else self.messages
        self._agent = agent
        self._deps = deps

    async def run(self, prompt: UserPrompt | Session, *, settings: ModelSettings | None = None) -> Answer[Output]:
        """Answer a prompt, and add both to the conversation."""
        answer = await self._agent.run(prompt, history=self._history, deps=self._deps, settings=settings)
        return self._add(answer)

    async def stream(
        self, prompt: UserPrompt | Session, *, settings: ModelSettings | None = None
    ) -> AsyncGenerator[StreamItem | Answer[Output], None]:
        """Yield the events of the answer, and the answer at the end, as `Agent.stream` does."""
        async for item in self._agent.stream(prompt, history=self._history, deps=self._deps, settings=settings):
            yield self._add(item) if isinstance(item, Answer) else item

    async def stream_text(
        self, prompt: UserPrompt | Session, *, settings: ModelSettings | None = None
    ) -> AsyncGenerator[str, None]:
        """Yield the text of the answer as it arrives."""
        async for item in self.stream(prompt, settings=settings):
            if isinstance(item, TextDelta) and item.text:
                yield item.text

    async def resume(self, run_id: str, prompt: UserPrompt | None = None) -> Answer[Output]:
        """Continue a run of this conversation that waited for approval, and add it, as `Agent.resume` does."""
        return self._add(await self._agent.resume(run_id, prompt, deps=self._deps))

    def resume_sync(self, run_id: str, prompt: UserPrompt | None = None) -> Answer[Output]:
        return run_blocking(self.resume(run_id, prompt))

    def run_sync(self, prompt: UserPrompt | Session, *, settings: ModelSettings | None = None) -> Answer[Output]:
        return run_blocking(self.run(prompt, settings=settings))

    def stream_sync(
        self, prompt: UserPrompt | Session, *, settings: ModelSettings | None = None
    ) -> Iterator[StreamItem | Answer[Output]]:
        return iterate_blocking(self.stream(prompt, settings=settings))

    def _add(self, answer: Answer[Output]) -> Answer[Output]:
        if answer.finished or answer.suspended or answer.results:
            self.messages, self._history = answer.messages, answer
        return answer
