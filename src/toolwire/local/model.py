"""A small real model in this process with the interface of an upstream.

    model = open_model("smollm2")
    async for piece in model.stream(body): …      # bodies and answers are bytes of OpenAI's chat protocol
    await model.complete(body)

It supports tools, though its chat template does not: a grammar constrains calls, so that every finished call is valid.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from threading import Lock

from msgspec.structs import replace

from ..bridge.emulation.answers import AnswerReader
from ..ir.errors import ConfigError, ProtocolError
from ..ir.events import CallDelta, CallEnd, Event
from ..ir.losses import Losses
from ..ir.pointer import Object, join
from ..ir.request import Request
from ..ir.response import Fault, UpstreamError
from ..ir.text import to_bytes
from ..stream.strict import parse_object
from ..wire import get
from .engine import ChatEngine, Engine, default_threads, fold_stream, read_body, request_usage
from .plan import (
    Plan,
    ends_with_result,
    forbids_calls,
    make_probe,
    may_need_call,
    mentions_tool,
    plan_call,
    plan_text,
    requires_call,
    shorten_results,
    wants_call,
)
from .weights import find_weights

_SLOTS = 2  # requests at a time; each slot keeps a key-value cache in memory; not measured
_CONTEXT = 4096  # tokens of each slot: short conversations in little memory; not measured
_open: dict[str, LocalModel] = {}
_opening = Lock()


class LocalModel:
    """One model. Use `open_model` to create it."""

    def __init__(self, name: str, threads: int | None) -> None:
        path = find_weights(name).path()
        self.name = name
        self.chat = ChatEngine(
            lambda: Engine(path, name, threads=threads or default_threads(), slots=_SLOTS, context=_CONTEXT), _SLOTS
        )
        """The bare model, which ignores tools."""

    async def stream(self, body: bytes, losses: Losses | None = None) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a stream. Leaving the loop stops the generation.

        `losses` is filled before the first piece. Raises UpstreamError for a request that cannot be answered.
        """
        document = read_body(body)
        _refuse_media(document, self.name)
        if not document.get("tools") and not _has_calls(document):
            answer = self.chat.stream(to_bytes(document))
        else:
            request, shortened = _decode_request(document), Losses()
            request = replace(request, messages=shorten_results(request.messages, shortened))
            try:
                plan = await self._make_plan(request)
            except ConfigError as error:  # a call is required, but no such tool is declared
                raise UpstreamError(Fault("invalid_request", error.message, 400, param="tool_choice")) from None
            if losses is not None:
                losses.extend(shortened)
                losses.extend(plan.losses)
            answer = (
                self.chat.stream(to_bytes(plan.body)) if plan.emulation is None else self._stream_calls(plan, request)
            )
        async with aclosing(answer):
            async for piece in answer:
                yield piece

    async def complete(self, body: bytes, losses: Losses | None = None) -> bytes:
        """Return a complete response."""
        return await fold_stream(self.stream(to_bytes(request_usage(read_body(body))), losses))

    def close(self) -> None:
        """Stop all generations and free the memory; the next `open_model` loads the model again."""
        with _opening:
            if _open.get(self.name) is self:
                del _open[self.name]
        self.chat.close()

    async def _make_plan(self, request: Request) -> Plan:
        if requires_call(request):
            return plan_call(request)
        if forbids_calls(request) or ends_with_result(request) or not await self._wants_call(request):
            return plan_text(request)
        return plan_call(request)

    async def _wants_call(self, request: Request) -> bool:
        """Return whether the answer should be a call: by the text of the prompt, and else by the model.

        It is asked for one token with its alternatives.
        """
        if mentions_tool(request):
            return True
        if not may_need_call(request):
            return False
        async with aclosing(self.chat.chunks(make_probe(request))) as chunks:
            async for chunk in chunks:
                choice = next(iter(parse_object(chunk).get("choices") or [{}]))
                tokens = (choice.get("logprobs") or {}).get("content")
                if tokens:
                    return wants_call(tokens[0]["top_logprobs"])
        return False

    async def _stream_calls(self, plan: Plan, request: Request) -> AsyncGenerator[bytes, None]:
        """Stream a constrained answer: decode the model's text, and encode the call in it as a native call."""
        assert plan.emulation is not None
        codec = get("openai_chat")
        decoder, reader, encoder = codec.stream_decoder(), plan.emulation.make_restorer(), codec.stream_encoder(request)
        async with aclosing(self.chat.stream(to_bytes(plan.body))) as pieces:
            async for piece in pieces:
                for restored in _restore_events(reader, decoder.feed(piece)):
                    if data := encoder.feed(restored):
                        yield data
        for restored in _restore_events(reader, decoder.close()):
            yield encoder.feed(restored)


def _restore_events(reader: AnswerReader, events: list[Event]) -> Iterator[Event]:
    """Restore the calls in the events.

    A call truncated before its arguments gets a `{`, because empty arguments would mean a call without arguments.
    """
    for event in events:
        for restored in reader.feed(event):
            if isinstance(restored, CallEnd) and restored.state == "truncated" and not restored.raw:
                yield CallDelta.of(restored.key, "{")
            yield restored


def open_model(name: str = "smollm2", threads: int | None = None) -> LocalModel:
    """Return the model of that name, one per process. It is loaded at the first request.

    `threads` defaults to a number suited to the machine. Raises MissingExtra, with the commands to run, if llama.cpp or
    the weights are not installed.
    """
    if threads is not None and threads < 1:
        raise ConfigError(f"threads must be positive, got {threads}", hint="use a positive number, or None")
    with _opening:
        found = _open.get(name)
        if found is None:
            found = _open[name] = LocalModel(name, threads)
        return found


@atexit.register
def _close_all() -> None:
    for model in tuple(_open.values()):
        model.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open.clear)  # threads do not survive a fork


def _has_calls(document: Object) -> bool:
    messages = document.get("messages")
    return isinstance(messages, list) and any(isinstance(one, dict) and one.get("role") == "tool" for one in messages)


def _refuse_media(document: Object, name: str) -> None:
    """Raise UpstreamError for content that is not text: llama.cpp would reject it without naming the model."""
    messages = document.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") not in ("text", "refusal"):
                text = f"{name} reads text only, got {str(part.get('type'))[:50]!r}"
                raise UpstreamError(Fault("invalid_request", text, 400, param=join("messages", index, "content")))


def _decode_request(document: Object) -> Request:
    try:
        return get("openai_chat").decode_request(document)
    except ProtocolError as error:
        raise UpstreamError(Fault("invalid_request", error.message, 400, param=error.pointer or None)) from None
