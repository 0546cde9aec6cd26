"""A small real model, in this process, that looks like any other upstream.

    model = open_model("smollm2")
    async for piece in model.stream(body): …      # bodies and answers are bytes of OpenAI's chat protocol
    await model.complete(body)

It has tools, though its template has none: a call is written under a grammar, so that every finished call fits its schema.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from threading import Lock

from ..bridge.emulate_answer import AnswerReader
from ..ir.errors import ConfigError, ProtocolError, UpstreamError
from ..ir.events import CallDelta, CallEnd, Event
from ..ir.losses import Losses
from ..ir.pointer import Object
from ..ir.request import Request
from ..ir.response import Fault
from ..ir.text import to_bytes
from ..stream.strict import parse_object
from ..wire import get
from .chat import Chat, counted, read_body, whole
from .engine import Engine, threads_here
from .plan import Plan, answers_a_result, call, demanded, forbidden, probe, wants_call, words
from .weights import weights_of

__all__ = ["LocalModel", "open_model"]

_SLOTS = 2
_CONTEXT = 4096
_open: dict[str, LocalModel] = {}
_opening = Lock()


class LocalModel:
    """One model; `open_model` makes it."""

    def __init__(self, name: str, threads: int | None) -> None:
        path = weights_of(name).path()
        self.name = name
        self.chat = Chat(
            lambda: Engine(path, name, threads=threads or threads_here(), slots=_SLOTS, context=_CONTEXT), _SLOTS
        )
        """The model alone: what has tools in it is answered as if it had none."""

    async def stream(self, body: bytes, losses: Losses | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes of a stream. Leaving the loop stops the generation; UpstreamError for what cannot be answered.

        `losses` has, before the first piece comes, what the model could not be told.
        """
        document = read_body(body)
        if not document.get("tools") and not _has_calls(document):
            answer = self.chat.stream(to_bytes(document))
        else:
            request = _decoded(document)
            try:
                plan = await self._plan(request)
            except ConfigError as error:  # a call is demanded of a tool that is not there
                raise UpstreamError(Fault("invalid_request", error.message, 400, param="tool_choice")) from None
            if losses is not None:
                losses.extend(plan.losses)
            answer = self.chat.stream(to_bytes(plan.body)) if plan.emulation is None else self._calls(plan, request)
        async with aclosing(answer):
            async for piece in answer:
                yield piece

    async def complete(self, body: bytes, losses: Losses | None = None) -> bytes:
        """A whole answer."""
        return await whole(self.stream(to_bytes(counted(read_body(body))), losses))

    def close(self) -> None:
        """Stops what is being said and gives the memory back; the next `open_model` begins anew."""
        with _opening:
            if _open.get(self.name) is self:
                del _open[self.name]
        self.chat.close()

    async def _plan(self, request: Request) -> Plan:
        if demanded(request):
            return call(request)
        if forbidden(request) or answers_a_result(request) or not await self._wants_call(request):
            return words(request)
        return call(request)

    async def _wants_call(self, request: Request) -> bool:
        async with aclosing(self.chat.chunks(probe(request))) as chunks:
            async for chunk in chunks:
                choice = next(iter(parse_object(chunk).get("choices") or [{}]))
                said = (choice.get("logprobs") or {}).get("content")
                if said:
                    return wants_call(said[0]["top_logprobs"])
        return False

    async def _calls(self, plan: Plan, request: Request) -> AsyncGenerator[bytes, None]:
        assert plan.emulation is not None
        codec = get("openai_chat")
        decoder, reader, encoder = codec.stream_decoder(), plan.emulation.restorer(), codec.stream_encoder(request)
        async with aclosing(self.chat.stream(to_bytes(plan.body))) as pieces:
            async for piece in pieces:
                for made in _restored(reader, decoder.feed(piece)):
                    if data := encoder.feed(made):
                        yield data
        for made in _restored(reader, decoder.close()):
            yield encoder.feed(made)


def _restored(reader: AnswerReader, events: list[Event]) -> Iterator[Event]:
    """What was said, with its call. One that was cut off before its arguments begin is begun: none would mean no arguments."""
    for event in events:
        for made in reader.feed(event):
            if isinstance(made, CallEnd) and made.state == "truncated" and not made.raw:
                yield CallDelta.of(made.key, "{")
            yield made


def open_model(name: str = "smollm2", threads: int | None = None) -> LocalModel:
    """The model of that name, one for the process. It is loaded at the first request, with `threads`, or as many as do good.

    MissingExtra, with the lines to type, where llama.cpp or the weights are not installed.
    """
    if threads is not None and threads < 1:
        raise ConfigError(f"{threads} threads", hint="one or more, or None")
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


def _decoded(document: Object) -> Request:
    try:
        return get("openai_chat").decode_request(document)
    except ProtocolError as error:
        raise UpstreamError(Fault("invalid_request", error.message, 400, param=error.pointer or None)) from None
