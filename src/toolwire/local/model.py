"""A small real model in this process with the interface of an upstream.

    model = open_model("smollm2")
    async for piece in model.stream(body): …      # bodies and answers are bytes of OpenAI's chat protocol
    await model.complete(body)

It supports tools, though its chat template does not: an adapter is trained to choose one, and a grammar constrains the call,
so that every finished call is valid.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from threading import Lock

from msgspec.structs import replace

from ..bridge.emulation.answers import AnswerReader
from ..ir.errors import ConfigError, ProtocolError, SchemaError
from ..ir.events import CallDelta, CallEnd, CallStart, Event
from ..ir.losses import Losses
from ..ir.pointer import Object, join
from ..ir.request import Request
from ..ir.response import Fault, UpstreamError
from ..ir.text import to_bytes
from ..run.tools.refusal import NOTHING_FITS
from ..stream.strict import parse_object
from ..wire import get
from .choice import NameChoice, choose, score_names
from .engine import ChatEngine, Engine, default_threads, fold_stream, read_body, request_usage
from .grammar import check_call
from .plan import (
    Plan,
    declares_nothing,
    ends_with_result,
    forbids_calls,
    plan_call,
    plan_text,
    requires_call,
    shorten_results,
)
from .weights import find_weights

_SLOTS = 2  # requests at a time; each slot keeps a key-value cache in memory; not measured
_CONTEXT = 4096  # tokens of each slot: short conversations in little memory; not measured
_open: dict[str, LocalModel] = {}
_opening = Lock()


class LocalModel:
    """One model. Use `open_model` to create it."""

    def __init__(self, name: str, threads: int | None) -> None:
        weights = find_weights(name)
        path, adapter = weights.path(), weights.adapter_path()
        self.name = name
        # For the choice of a call alone, so that the bare model writes the texts.
        self._adapted: Object = {} if adapter is None else {"lora": [{"id": 0, "scale": 1.0}]}
        self.chat = ChatEngine(
            lambda: Engine(
                path, name, threads=threads or default_threads(), slots=_SLOTS, context=_CONTEXT, adapter=adapter
            ),
            _SLOTS,
        )
        """The bare model, which ignores tools."""

    async def stream(
        self, body: bytes, losses: Losses | None = None, confidence: Confidence | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a stream. Leaving the loop stops the generation.

        `losses` is filled before the first piece, `confidence` before the first piece of a call. Raises UpstreamError
        for a request that cannot be answered.
        """
        document = read_body(body)
        document.pop("lora", None)  # a field of llama.cpp, which is ours
        refuse_media(document, self.name)
        if not document.get("tools") and not _has_calls(document):
            answer = self.chat.stream(to_bytes(document))
        else:
            answer = self._stream_request(
                decode_request(document),
                Losses() if losses is None else losses,
                Confidence() if confidence is None else confidence,
            )
        async with aclosing(answer):
            async for piece in answer:
                yield piece

    async def complete(self, body: bytes, losses: Losses | None = None) -> bytes:
        """Return a complete response. With a call it has the field `margin`; see `Confidence`."""
        confidence = Confidence()
        whole = await fold_stream(self.stream(to_bytes(request_usage(read_body(body))), losses, confidence))
        return whole if confidence.margin is None else whole[:-1] + b',"margin":%.3f}' % confidence.margin

    def close(self) -> None:
        """Stop all generations and free the memory; the next `open_model` loads the model again."""
        with _opening:
            if _open.get(self.name) is self:
                del _open[self.name]
        self.chat.close()

    async def _stream_request(
        self, request: Request, losses: Losses, confidence: Confidence
    ) -> AsyncGenerator[bytes, None]:
        """Stream the call that the model chooses, or a text if it chooses none."""
        shortened = Losses()
        request = replace(request, messages=shorten_results(request.messages, shortened))
        if requires_call(request) or not (forbids_calls(request) or ends_with_result(request)):
            try:
                plan = await asyncio.to_thread(plan_call, request)  # it may encode declarations
            except ConfigError as error:  # a call is required, but no such tool is declared
                raise UpstreamError(Fault("invalid_request", error.message, 400, param="tool_choice")) from None
            except SchemaError as error:  # arguments without a valid value, such as a minimum above the maximum
                raise UpstreamError(Fault("invalid_request", error.message, 400, param="tools")) from None
            choice = await self._choose(plan)
            has_call = False
            async with aclosing(self._stream_call(plan, request, choice.name)) as pieces:
                async for piece in pieces:
                    if not has_call:
                        losses.extend(shortened)
                        losses.extend(plan.losses)
                        confidence.margin = choice.margin if self._adapted and not requires_call(request) else None
                    has_call = True
                    yield piece
            if has_call:
                return
        plan = plan_text(request)
        losses.extend(shortened)
        losses.extend(plan.losses)
        async with aclosing(self.chat.stream(to_bytes(plan.body))) as pieces:
            async for piece in pieces:
                yield piece

    async def _choose(self, plan: Plan) -> NameChoice:
        """Choose the function to call; see `choice`."""
        names = plan.functions
        if len(names) == 1:
            return NameChoice(names[0])
        usual = await score_names(names, lambda group: self._read_tokens(plan.name_body(group, without_request=True)))
        scores = await score_names(names, lambda group: self._read_tokens(plan.name_body(group)))
        return choose(scores, usual, plan.priors)

    async def _read_tokens(self, body: Object) -> list[Object]:
        """Return the tokens of an answer with their alternatives."""
        async with aclosing(self.chat.chunks({**body, **self._adapted})) as chunks:
            choices = [choice async for chunk in chunks for choice in parse_object(chunk).get("choices") or ()]
        return [token for choice in choices for token in (choice.get("logprobs") or {}).get("content") or ()]

    async def _stream_call(self, plan: Plan, request: Request, name: str) -> AsyncGenerator[bytes, None]:
        """Stream a constrained answer, with the call in the model's text as a native call.

        Nothing is yielded for `nothing_fits`, unless the client declares it, and if a token limit ends the answer before
        the name of the function.
        """
        if name == NOTHING_FITS and not declares_nothing(request):
            return
        encoder = get("openai_chat").stream_encoder(request)
        held: list[Event] | None = []  # until the name of the function is written
        async with aclosing(self._call_events(plan, name)) as events:
            async for event in events:
                if held is None:
                    if data := encoder.feed(event):
                        yield data
                    continue
                held.append(event)
                if isinstance(event, CallStart):
                    ready, held = held, None
                    for data in filter(None, map(encoder.feed, ready)):
                        yield data
        if held is not None and requires_call(request):
            for data in filter(None, map(encoder.feed, held)):
                yield data

    async def _call_events(self, plan: Plan, name: str) -> AsyncGenerator[Event, None]:
        """Yield the events of a constrained answer, with the calls in its text restored.

        Raises `UpstreamError` before the last event of an answer to which the engine did not apply the grammar.
        """
        assert plan.emulation is not None
        decoder, reader = get("openai_chat").stream_decoder(), plan.emulation.make_restorer()
        text = ""
        async with aclosing(self.chat.chunks({**plan.call_body(name), **self._adapted})) as chunks:
            async for chunk in chunks:
                for choice in parse_object(chunk).get("choices") or ():
                    text += choice["delta"].get("content") or ""
                    if choice.get("finish_reason") == "stop":
                        check_call(plan.shape(name), text)
                for event in _restore_events(reader, decoder.feed(b"data: " + chunk + b"\n\n")):
                    yield event
        for event in _restore_events(reader, [*decoder.feed(b"data: [DONE]\n\n"), *decoder.close()]):
            yield event


class Confidence:
    """The certainty of the model about a call that it was free not to make.

    `margin` is the logarithm of the ratio between the probability of the chosen function and of all other choices,
    `nothing_fits` included; None without a call, and for a model without an adapter.
    """

    def __init__(self) -> None:
        self.margin: float | None = None


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


def refuse_media(document: Object, name: str) -> None:
    """Raise UpstreamError for content that is not text: llama.cpp would reject it without naming the model."""
    messages = document.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") not in ("text", "refusal"):
                text = f"{name} reads text only, got {str(part.get('type'))[:50]!r}"
                raise UpstreamError(Fault("invalid_request", text, 400, param=join("messages", index, "content")))


def decode_request(document: Object) -> Request:
    """Decode a request document; raise UpstreamError with status 400 if it is invalid."""
    try:
        return get("openai_chat").decode_request(document)
    except ProtocolError as error:
        raise UpstreamError(Fault("invalid_request", error.message, 400, param=error.pointer or None)) from None
