"""Encode Chat Completions streams.

The official clients require (measured on them): a call's id and name once, in its first chunk, with `arguments: ""`;
indexes dense from 0 for each choice; then fragments. Usage is a chunk of its own, sent only on request. Fields that
only this wire has are written at the end of their text, their call or the answer.
"""

from __future__ import annotations

from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseEnd,
    ResponseStart,
    StreamFault,
    TextDelta,
    TextEnd,
    TextStart,
    UsageUpdate,
    WholePart,
)
from ...ir.parts import Extra, part_label
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.text import to_line
from ..codec import report_search_call
from ..fields import write_extra
from ..openai_fault import write_fault
from ..streaming.encoder import BaseStreamEncoder
from .content import NAME, write_part
from .message_writer import SECOND_FUNCTION_CALL, is_own_part
from .response import write_stop, write_usage
from .tools import declares_functions

_TAIL = b'},"finish_reason":null}]}\n\n'
_FIELD = b'"%b":"', b'"'  # the bytes before and after a fragment of text
_THINKING = b'"content":[{"type":"thinking","thinking":[{"type":"text","text":"', b'"}]}]'  # Mistral's
_JOINED_DETAIL = "joined, because a message has one string"
_RANKS = {b"content": 1, b"refusal": 2}  # in the order of the fields of a message; reasoning is before them


class ChatStreamEncoder(BaseStreamEncoder):
    """Encoder of a Chat Completions stream."""

    def __init__(self, request: Request | None = None) -> None:
        """Create the encoder; `request` decides about usage and the legacy `function_call`."""
        super().__init__()
        self._wants_usage = request is None or bool(request.params.include_usage)
        self._is_legacy = request is not None and declares_functions(request)
        self._hidden: set[int] = set()  # keys of calls after the first one, which a `function_call` cannot hold
        self._head = b""  # the beginning of every chunk, up to its choices
        self._choices: dict[int, int] = {}  # number of calls by choice
        self._heads: dict[int, bytes] = {}  # by key: all of a delta chunk before the fragment
        self._signed: dict[int, bytes] = {}  # by key: all of a chunk before a signature
        self._calls: dict[int, tuple[int, int, str]] = {}  # by key: choice, index in it, kind
        self._tails: dict[int, bytes] = {}  # by key: all of a delta chunk after the fragment
        self._around: dict[int, tuple[bytes, bytes]] = {}  # both, of open texts and calls that have begun
        self._last_usage = b""
        self._refused: set[int] = set()  # choices with a refusal
        self._last: dict[tuple[int, bytes], int] = {}  # by choice and field: the last item that was written there

    def feed(self, event: Event) -> bytes:
        """Return the bytes of an event. A delta of a text or a call that has begun takes a short path."""
        if type(event) is CallDelta or type(event) is TextDelta:
            around = self._around.get(event.key)
            if around is not None:
                return around[0] + event.escaped + around[1]
        return super().feed(event)

    def find_frame(self, key: int) -> tuple[bytes, bytes] | None:
        """Return the bytes around a fragment of a text or a call that has begun."""
        return self._around.get(key)

    def _start(self, event: ResponseStart) -> bytes:
        """Keep the fields that every chunk repeats (`_head`), and open the first choice."""
        fields: Object = {
            "id": event.id,
            "object": "chat.completion.chunk",
            "created": event.created or 0,
            "model": event.model,
        }
        fields.update(event.extra.get(NAME, {}))
        self._head = b"data: " + to_line(fields)[:-1] + b',"choices":['
        return self._open_choice(0)

    def _open_choice(self, choice: int) -> bytes:
        if choice in self._choices:
            return b""
        self._choices[choice] = 0
        return self._chunk(choice, b'{"role":"assistant","content":null}')

    def _chunk(self, choice: int, delta: bytes) -> bytes:
        return b'%b{"index":%d,"delta":%b,"finish_reason":null}]}\n\n' % (self._head, choice, delta)

    def _text_start(self, event: TextStart) -> bytes:
        if event.refusal:
            self._refused.add(event.choice)
        return self._begin_item(event, b"refusal" if event.refusal else b"content")

    def _reasoning_start(self, event: ReasoningStart) -> bytes:
        form = event.extra.get(f"{NAME}~", {})
        if ":place" in form:
            return self._begin_item(event, b"thinking", _THINKING)
        return self._begin_item(event, (form.get(":field", "reasoning_content") or "reasoning").encode())

    def _begin_item(
        self, event: TextStart | ReasoningStart, field: bytes, wrapper: tuple[bytes, bytes] | None = None
    ) -> bytes:
        """Prepare the bytes around each fragment of an item; `wrapper` replaces the plain string field."""
        opening = self._open_choice(event.choice)
        self._report_order(event, field)
        before, after = wrapper or (_FIELD[0] % field, _FIELD[1])
        self._heads[event.key] = b'%b{"index":%d,"delta":{%b' % (self._head, event.choice, before)
        self._tails[event.key] = after + _TAIL
        return opening + self._own_fields(event.key, event.extra)

    def _report_order(self, event: TextStart | ReasoningStart, field: bytes) -> None:
        """Report an item that a Chat message moves before earlier ones or joins with the last one of its field.

        The item is then the last one of its field.
        """
        path = self._part_path(event.key)
        is_reasoning = isinstance(event, ReasoningStart)
        rank = 0 if is_reasoning else _RANKS.get(field, 1)
        if self._choices[event.choice] or any(
            (event.choice, name) in self._last for name, other in _RANKS.items() if other > rank
        ):
            detail = "a Chat message holds reasoning, text and calls in this order"
            self.losses.add(path, "order of text and calls", "moved", detail, "info")
        before = self._last.get((event.choice, field))
        self._last[event.choice, field] = event.key
        if before is not None:
            kind = "reasoning" if is_reasoning else "refusal" if field == b"refusal" else "text"
            self.losses.add(self._part_path(before), kind, "rewritten", _JOINED_DETAIL, "info")
            self.losses.add(path, kind, "rewritten", _JOINED_DETAIL, "info")

    def _text_delta(self, event: TextDelta | CallDelta) -> bytes:
        head, tail = self._heads[event.key], self._tails[event.key]
        if event.escaped:
            self._around[event.key] = head, tail
        return head + event.escaped + tail

    def _reasoning_delta(self, event: ReasoningDelta) -> bytes:
        """Write a reasoning fragment; a new section of a summary begins after a blank line."""
        gap = self._begin_section(event, "Chat reasoning is plain text")
        return b"".join((self._heads[event.key], gap, event.escaped, self._tails[event.key]))

    def _text_end(self, event: TextEnd | ReasoningEnd) -> bytes:
        self._around.pop(event.key, None)
        if event.artefacts:
            self.losses.add(
                f"{self._part_path(event.key)}/artefacts", "artefact", "dropped", "Chat has no field for it"
            )
        self._report_empty(event)
        return self._own_fields(event.key, event.extra)

    _reasoning_end = _text_end

    def _own_fields(self, key: int, extra: Extra) -> bytes:
        """Write the fields of a text or of reasoning that only this wire has, as a content element without text."""
        fields = extra.get(NAME)
        if not fields:
            return b""
        is_thinking = self._tails[key].startswith(_THINKING[1])
        element = {"type": "thinking", "thinking": []} if is_thinking else {"type": "text", "text": ""}
        return self._chunk(self._positions[key][0], to_line({"content": [{**element, **fields}]}))

    def _call_start(self, event: CallStart) -> bytes:
        """Write the first chunk of a call, and prepare the bytes before its fragments and its signature.

        A namespace, the kind of a search and a freeform call are losses.
        """
        opening = self._open_choice(event.choice)
        index = self._choices[event.choice]
        self._choices[event.choice] += 1
        if event.namespace is not None:
            self.losses.add(
                f"{self._part_path(event.key)}/namespace", "namespace", "dropped", "Chat calls have no namespace"
            )
        report_search_call(event, self._part_path(event.key), self.losses)
        if event.kind == "freeform":
            detail = "Chat's documented stream has no such delta; clients may not read it"
            self.losses.add(self._part_path(event.key), "freeform call", "rewritten", detail)
        kind, field = ("custom", "input") if event.kind == "freeform" else ("function", "arguments")
        inner = write_extra({"name": event.name, field: ""}, {NAME: event.extra.get(f"{NAME}/function", {})}, NAME)
        if self._is_legacy:
            return opening + self._function_call_start(event, index, inner)
        call: Object = {"index": index, "id": event.id, "type": kind, kind: inner}
        self._calls[event.key] = event.choice, index, kind
        self._heads[event.key] = b'%b{"index":%d,"delta":{"tool_calls":[{"index":%d,"%b":{"%b":"' % (
            self._head,
            event.choice,
            index,
            kind.encode(),
            field.encode(),
        )
        self._signed[event.key] = b'%b{"index":%d,"delta":{"tool_calls":[{"index":%d,"function":{"arguments":""},' % (
            self._head,
            event.choice,
            index,
        )
        self._tails[event.key] = b'"}}]' + _TAIL
        call = write_extra(call, {NAME: event.extra.get(NAME, {})}, NAME)
        return opening + self._chunk(event.choice, to_line({"tool_calls": [call]}))

    def _function_call_start(self, event: CallStart, index: int, function: Object) -> bytes:
        """Write the first chunk of the deprecated `function_call`, which has no id."""
        if index:
            self._hidden.add(event.key)
            self.losses.add(self._part_path(event.key), "call", "dropped", SECOND_FUNCTION_CALL, "error")
            return b""
        self._heads[event.key] = b'%b{"index":%d,"delta":{"function_call":{"arguments":"' % (self._head, event.choice)
        self._tails[event.key] = b'"}' + _TAIL
        return self._chunk(event.choice, to_line({"function_call": function}))

    def _call_delta(self, event: CallDelta) -> bytes:
        return b"" if event.key in self._hidden else self._text_delta(event)

    def _call_end(self, event: CallEnd) -> bytes:
        """Write `{}` for a call without arguments, then its signature and the fields that only this wire has.

        Artefacts of other providers than Google are losses.
        """
        self._around.pop(event.key, None)
        out = b""
        if event.key in self._empty and event.raw is None:
            out = self._call_delta(CallDelta(event.key, b"{}"))
        for artefact in event.artefacts:
            if artefact.provider == "google" and not self._is_legacy:
                content = to_line({"google": {"thought_signature": artefact.data}})
                out += b'%b"extra_content":%b}]%b' % (self._signed[event.key], content, _TAIL)
            else:
                self.losses.add(
                    f"{self._part_path(event.key)}/artefacts", "artefact", "dropped", "Chat has no field for it"
                )
        return out + self._own_call_fields(event)

    def _own_call_fields(self, event: CallEnd) -> bytes:
        """Write the fields of a call that only this wire has, in a delta without arguments."""
        outer, inner = event.extra.get(NAME), event.extra.get(f"{NAME}/function")
        if (not outer and not inner) or self._is_legacy:
            return b""
        choice, index, kind = self._calls[event.key]
        call: Object = {"index": index, kind: {"input" if kind == "custom" else "arguments": "", **(inner or {})}}
        return self._chunk(choice, to_line({"tool_calls": [{**call, **(outer or {})}]}))

    def _whole_part(self, event: WholePart) -> bytes:
        """Write a part of Chat's content array; any other whole part has no field here and is reported."""
        if is_own_part(event.part):
            opening = self._open_choice(event.choice)
            part = write_part(event.part, self.losses, self._part_path(event.key))
            return opening + self._chunk(event.choice, to_line({"content": [part]}))
        self.losses.add(
            self._part_path(event.key), part_label(event.part), "dropped", "a Chat answer has no field for it", "error"
        )
        return b""

    def _update_usage(self, event: UsageUpdate) -> bytes:
        if self._wants_usage:
            self._last_usage = to_line(write_usage(event.usage))
        return b""

    def _fail(self, event: StreamFault) -> bytes:
        return b"data: " + to_line({"error": write_fault(event.fault, NAME)}) + b"\n\n"

    def _end(self, event: ResponseEnd) -> bytes:
        """Write the finish reason of each choice, the usage if the request asked for it, and `[DONE]`."""
        out = self._open_choice(0)
        delta = event.extra.get(f"{NAME}/message", {})
        own_fields = event.extra.get(NAME)
        tail = b"]}\n\n" if not own_fields else b"]," + to_line(own_fields)[1:] + b"\n\n"
        for choice, stop in enumerate(event.stops or (None,)):
            path = f"/alternatives/{choice - 1}" if choice else ""
            word = write_stop(stop, self.losses, path, refused=choice in self._refused, is_legacy=self._is_legacy)
            fields: Object = {"index": choice, "delta": {} if choice else delta, "finish_reason": word}
            extra = {} if stop is None else stop.extra
            out += self._head + to_line(write_extra(fields, extra, f"{NAME}/choice")) + tail
        if self._last_usage:
            out += self._head + b'],"usage":' + self._last_usage + b"}\n\n"
        return out + b"data: [DONE]\n\n"
