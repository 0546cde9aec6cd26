"""Messages responses: stop reasons and usage.

`input_tokens` on this wire excludes tokens read from or written to the cache; `Usage.input` includes them.
"""

from __future__ import annotations

from operator import attrgetter

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import CallState, Extra, Media, Part, Reasoning, Text, ToolCall, is_empty_with_artefact
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Response, Stop, StopReason, Usage
from ...ir.text import dumps
from ...stream.strict import parse_arguments, parse_partial
from ..fields import (
    UsualFields,
    decode_list,
    odd_values,
    read_count,
    read_details,
    read_extra,
    read_label,
    read_optional_string,
    read_stop_reason,
    remember_form,
    require_object,
    restore_form,
    wrap_object,
    write_extra,
)
from ..protocol import Encoded
from .blocks import read_block, write_block, write_plain_block
from .fault import read_fault
from .tools import NAME

ONE_CHOICE = "an Anthropic answer has only one choice"
_FORM = "anthropic~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_KNOWN = frozenset({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage"})
ENVELOPE_TYPES = {"id": (str,), "model": (str,), "content": (list,), "usage": (dict,)}
_CONSTANT = ("type", "role")
_DEFAULT_HEADERS = ("id", *_CONSTANT, "model", "stop_reason", "stop_sequence")
STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "context_window",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
}
_STOP_NAMES: dict[StopReason, str] = {reason: word for word, reason in STOP_REASONS.items()} | {
    "pause": "pause_turn",
    "content_filter": "refusal",
    "malformed_call": "end_turn",
    "error": "end_turn",
    "unknown": "end_turn",
}


def decode_response(body: Object) -> Response:
    """Decode a response or an error body; raise ProtocolError if its content is invalid.

    The last call is truncated if a limit or a refusal ended the answer. One block in place of the list is accepted.
    """
    content, kind = require_object(body).get("content"), body.get("type")
    if kind == "error" or (not content and body.get("error")):
        return Response(fault=read_fault(body))
    is_single = type(content) is dict and kind == "message"
    if is_single:
        body = wrap_object(body, "content")
        content = body["content"]
    parts: list[Part]
    if type(content) is list:
        parts = decode_list(body, "content", read_block)
    elif type(content) is str and content and kind == "message":
        parts = [Text(content)]
    else:
        raise ProtocolError("expected an array of content blocks", pointer="/content")
    stop = read_stop(body, has_calls=ToolCall in map(type, parts))
    if stop is not None and is_truncated(stop) and parts and type(parts[-1]) is ToolCall:
        parts[-1] = _as_truncated(parts[-1])
    if not is_single and _USUAL.are_in(body):
        extra: Extra = {_FORM: {"stop_sequence": None}}
    else:
        extra = _read_envelope(body, is_single=is_single)
    return Response(
        read_label(body, "id"),
        read_label(body, "model"),
        tuple(parts),
        stop,
        read_usage(body.get("usage")),
        extra=extra,
    )


_USUAL = UsualFields(
    dict.fromkeys(("id", "type", "role", "model", "stop_reason"), str)
    | {"content": list, "stop_sequence": type(None), "usage": dict}
)


def _read_envelope(body: Object, *, is_single: bool) -> Extra:
    """Return the other fields of an answer, and the form of its document. `is_single`: one block replaced the list."""
    extra = read_extra(body, _KNOWN, NAME)
    form = remember_form(body, _DEFAULT_HEADERS, extra.get(_FORM, {}))
    if "usage" not in body:
        form[":usage"] = "absent"
    if is_single:
        form[":single"] = ["content"]
    if form:
        extra[_FORM] = form
    return {**extra, **odd_values(body, ENVELOPE_TYPES, NAME)}


def is_truncated(stop: Stop) -> bool:
    """Return whether a limit or a classifier stopped the model before it finished."""
    return stop.reason in ("length", "context_window", "refusal", "content_filter")


def _as_truncated(call: ToolCall) -> ToolCall:
    """Mark the last call of an answer that a limit or a refusal ended.

    Its input holds the parameters that were complete by then, or none. In a document, a complete input looks like the
    beginning of a longer one, and half a call must not be run.
    """
    raw = dumps(call.arguments)[:-1] if call.arguments else ""
    return replace(call, arguments=None, raw=raw, state="truncated")


def read_stop(raw: Object, *, has_calls: bool) -> Stop | None:
    """Read the stop reason, or None if there is none.

    `has_calls`: the answer has calls, so that `end_turn` also means tool calls. The original value is kept as form.
    """
    word = raw.get("stop_reason")
    if word is None:
        return None
    reason = read_stop_reason(str(word), STOP_REASONS)
    if reason in ("stop", "unknown") and has_calls:
        reason = "tool_calls"
    details = raw.get("stop_details")
    if not details and _STOP_NAMES[reason] == word:
        return Stop(reason, read_optional_string(raw, "stop_sequence"))
    explanation = details.get("explanation") if type(details) is dict else None
    extra = {}
    if details:
        extra[NAME] = {"stop_details": details}
    if _STOP_NAMES[reason] != word:
        extra[_FORM] = {":stop_reason": word}
    return Stop(
        reason, read_optional_string(raw, "stop_sequence"), explanation if type(explanation) is str else None, extra
    )


_USAGE = frozenset(
    {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens_details"}
)


def read_usage(raw: JSON) -> Usage | None:
    """Read the counts, or None if there are none.

    `Usage.input` is the sum of fresh, cached and newly cached input tokens.
    """
    if type(raw) is not dict:
        return None
    if len(raw) == 2:  # the usual two counts: a fast path
        input_tokens, output_tokens = raw.get("input_tokens"), raw.get("output_tokens")
        if type(input_tokens) is int and type(output_tokens) is int and input_tokens >= 0 <= output_tokens:
            return Usage(input_tokens, output_tokens)
    extra = read_extra(raw, _USAGE, NAME)
    cache_read = read_count(raw, "cache_read_input_tokens", NAME, extra)
    written = read_count(raw, "cache_creation_input_tokens", NAME, extra)
    details = read_details(raw, "output_tokens_details", NAME, extra)
    fresh = read_count(raw, "input_tokens", NAME, extra)
    read_extra(details, ("thinking_tokens",), f"{NAME}/output", extra)
    if form := remember_form(raw, ("input_tokens", "output_tokens"), extra.get(_FORM, {})):
        extra[_FORM] = form
    return Usage(
        None if fresh is None else fresh + (cache_read or 0) + (written or 0),
        read_count(raw, "output_tokens", NAME, extra),
        cache_read,
        written,
        read_count(details, "thinking_tokens", f"{NAME}/output", extra),
        extra=extra,
    )


_usage_options = attrgetter("cached", "cache_write", "reasoning", "extra")


def write_usage(usage: Usage, losses: Losses | None = None) -> Object:
    """Write the counts. They add up to the input, so a count that overlaps others (OpenRouter) is reduced.

    A reduction is added to `losses`, if given.
    """
    if _usage_options(usage) == (None, None, None, {}):
        return {"input_tokens": max(usage.input or 0, 0), "output_tokens": usage.output or 0}
    input_tokens, cached, written = usage.input or 0, usage.cached, usage.cache_write
    if usage.input is not None:
        cached = cached and min(cached, input_tokens)
        written = written and min(written, input_tokens - (cached or 0))
    if losses is not None:
        for name, before, after in (("cached", usage.cached, cached), ("cache_write", usage.cache_write, written)):
            if before != after:
                detail = f"{before} of {input_tokens} input tokens overlap another count; reduced to {after}"
                losses.add(f"/usage/{name}", f"{name} tokens", "rewritten", detail, "info")
    fresh = max(input_tokens - (cached or 0) - (written or 0), 0)
    out: Object = {"input_tokens": fresh, "output_tokens": usage.output or 0}
    if cached is not None:
        out["cache_read_input_tokens"] = cached
    if written is not None:
        out["cache_creation_input_tokens"] = written
    details: Object = {} if usage.reasoning is None else {"thinking_tokens": usage.reasoning}
    if details := write_extra(details, usage.extra, f"{NAME}/output"):
        out["output_tokens_details"] = details
    return write_extra(restore_form(out, usage.extra.get(_FORM, {})), usage.extra, NAME)


def encode_response(response: Response, request: Request | None = None) -> Encoded:
    """Encode a response; other choices, the timestamp and parts that Anthropic lacks are losses."""
    del request  # no field of an answer depends on it
    losses = Losses()
    content: list[Object] = []
    for number, part in enumerate(response.parts):
        block = _write_plain(part) or write_answer_block(part, losses, f"/parts/{number}")
        if block is not None:
            content.append(block)
    if response.parts and type(response.parts[-1]) is ToolCall:
        report_last_call(response.parts[-1].state, response.stop, losses, f"/parts/{len(response.parts) - 1}")
    if response.created is not None:
        losses.add("/created", "created", "dropped", "Anthropic answers have no timestamp", "info")
    if response.alternatives:
        losses.add("/alternatives", "alternatives", "dropped", ONE_CHOICE, "error")
    out: Object = {
        "id": response.id,
        "type": "message",
        "role": "assistant",
        "model": response.model,
        "content": content,
        **write_stop(response.stop, losses),
        "usage": write_usage(response.usage or Usage(), losses),
    }
    form = response.extra.get(_FORM, {})
    if response.usage is None and ("usage" in form or ":usage" in form):
        del out["usage"]
    return Encoded(write_extra(restore_form(out, form, _CONSTANT), response.extra, NAME), losses)


def _write_plain(part: Part) -> Object | None:
    """Write a complete call or a text with only the usual fields; return None for any other part."""
    if type(part) is Text or (type(part) is ToolCall and part.state == "complete"):
        return None if part.artefacts else write_plain_block(part)
    return None


def write_answer_block(part: Part, losses: Losses, path: str) -> Object | None:
    """Write a block of an answer; return None and report a loss if the answer cannot hold the part.

    Clients accept unsigned thinking, but they cannot send it back to Anthropic.
    """
    if isinstance(part, Media):
        losses.add(path, part.kind, "dropped", "Anthropic answers have no media", "error")
        return None
    if isinstance(part, Reasoning) and part.summary:
        losses.add(f"{path}/summary", "reasoning summary", "rewritten", "Anthropic thinking is plain text", "info")
        part = replace(part, text=part.joined_text, summary=())
    if isinstance(part, Reasoning) and not any(artefact.provider == NAME for artefact in part.artefacts):
        if part.artefacts:
            losses.add(f"{path}/artefacts", "artefact", "dropped", "it belongs to another provider")
        text = part.text
        if not text:
            losses.add(path, "reasoning", "dropped", "it has no text", "info")
            return None
        form = part.extra.get(_FORM, {})
        signature = {} if "signature" in form or ":signature" in form else {"signature": ""}
        return write_extra({"type": "thinking", "thinking": text, **signature}, part.extra, NAME)
    if isinstance(part, ToolCall) and part.state == "truncated":
        if part.kind == "typed":
            report_left_out(losses, path)
            return None
        part = _write_truncated(part, losses, path)
    artefacts = getattr(part, "artefacts", ())
    if any(artefact.provider != NAME for artefact in artefacts):
        losses.add(f"{path}/artefacts", "artefact", "dropped", "it belongs to another provider")
    if isinstance(part, Text) and is_empty_with_artefact(part, NAME):
        losses.add(path, "text", "dropped", "it has no text", "info")
        return None
    return write_block(part, losses, path)


def _write_truncated(call: ToolCall, losses: Losses, path: str) -> ToolCall:
    """Return a truncated call with the complete members of its arguments, as the API does at `max_tokens`."""
    if call.kind == "freeform":
        return call
    report_truncated(call.raw or "", losses, path)
    return replace(call, arguments=parse_partial(call.raw or ""), raw=None)


def report_left_out(losses: Losses, path: str) -> None:
    """Report a truncated call of a toolset, whose block has the name of an argument."""
    losses.add(path, "call", "dropped", "it is truncated, and its block has no form for that", "error")


def report_truncated(raw: str, losses: Losses, path: str) -> None:
    """Report the text of a truncated call that its `input`, an object, cannot hold."""
    if raw and parse_arguments(f"{raw}}}")[0] is None:
        detail = "it is truncated; only complete arguments are in its input, and the stop reason is not tool_use"
        losses.add(path, "call", "weakened", detail)


def report_last_call(state: CallState, stop: Stop | None, losses: Losses, path: str) -> None:
    """Report a complete call before a limit or a refusal: to clients it looks like a truncated one."""
    if state == "complete" and stop is not None and is_truncated(stop):
        detail = "the last call of an Anthropic answer counts as truncated if a limit or a refusal ended it"
        losses.add(path, "call", "weakened", detail)


def write_stop(stop: Stop | None, losses: Losses) -> Object:
    """Return the fields for the stop reason; a reason that Anthropic lacks is sent as the nearest one and reported."""
    if stop is None:
        return {"stop_reason": None, "stop_sequence": None}
    if stop.reason in ("content_filter", "unknown"):
        detail = f"Anthropic has no equivalent; sent as {_STOP_NAMES[stop.reason]!r}"
        losses.add("/stop", f"stop reason {stop.reason}", "weakened", detail, "info")
    word = stop.extra.get(_FORM, {}).get(":stop_reason", _STOP_NAMES[stop.reason])
    out = {"stop_reason": word, "stop_sequence": stop.sequence}
    if stop.reason == "refusal" and stop.detail is not None:
        out["stop_details"] = {"type": "refusal", "category": None, "explanation": stop.detail}
    return write_extra(out, stop.extra, NAME)
