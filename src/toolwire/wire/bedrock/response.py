"""Converse responses: stop reasons and usage.

An answer has neither an id nor the name of its model. `inputTokens` excludes tokens read from or written to the cache
(https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html); `Usage.input` includes them.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import CallState, Media, Part, Reasoning, Text, ToolCall, is_empty_with_artefact
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Fault, Response, Stop, StopReason, Usage
from ...ir.text import dumps
from ...stream.strict import parse_arguments, parse_partial
from ..fields import (
    is_empty,
    odd_values,
    read_count,
    read_extra,
    read_stop_reason,
    remember_form,
    require_object,
    restore_form,
    write_extra,
)
from ..protocol import Encoded
from .blocks import read_answer_block, read_blocks, write_block, write_reasoning
from .fault import read_fault
from .media import NAME, PROVIDER

ONE_CHOICE = "a Converse answer has only one choice"
FORM = "bedrock~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_MESSAGE = f"{NAME}/message"
_KNOWN = frozenset({"output", "stopReason", "usage"})
_ENVELOPE_TYPES = {"usage": (dict, type(None))}
STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "stop_sequence": "stop_sequence",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "malformed_tool_use": "malformed_call",
    "malformed_model_output": "malformed_call",
    "model_context_window_exceeded": "context_window",
}
_STOP_NAMES: dict[StopReason, str] = {reason: word for word, reason in reversed(STOP_REASONS.items())} | {
    "refusal": "content_filtered",
    "pause": "end_turn",
    "error": "end_turn",
    "unknown": "end_turn",
}
_WEAKENED = frozenset({"refusal", "pause", "error", "unknown"})
_CUT = frozenset({"length", "context_window", "content_filter", "malformed_call"})


def decode_response(body: Object) -> Response:
    """Decode a response or an error body; raise ProtocolError if its content is invalid.

    The last call is truncated if a limit or a filter ended the answer, or if it is malformed.
    """
    output = require_object(body).get("output")
    if output is None and ("message" in body or "Message" in body) and "stopReason" not in body:
        return Response(fault=read_fault(body))
    message = require_object(require_object(output, "output").get("message"), "output", "message")
    try:
        parts: list[Part] = list(read_blocks(message, "content", read_answer_block))
    except ProtocolError as error:
        raise error.within("output", "message") from None
    stop = read_stop(body, has_calls=any(isinstance(part, ToolCall) for part in parts))
    if stop is not None and is_cut(stop) and parts and type(parts[-1]) is ToolCall:
        parts[-1] = _as_truncated(parts[-1])
    extra = read_extra(body, _KNOWN, NAME)
    if form := remember_form(body, ("stopReason",), extra.get(FORM, {})):
        extra[FORM] = form
    if not parts and "content" not in message:
        extra[FORM] = {**extra.get(FORM, {}), ":content": "absent"}
    if "usage" not in body:
        extra[FORM] = {**extra.get(FORM, {}), ":usage": "absent"}
    read_extra(require_object(output), ("message",), f"{NAME}/output", extra)
    read_extra(message, ("role", "content"), _MESSAGE, extra)
    if message.get("role") != "assistant":
        role_form: Object = {"role": message["role"]} if "role" in message else {":role": "absent"}
        extra[f"{_MESSAGE}~"] = {**extra.get(f"{_MESSAGE}~", {}), **role_form}
    extra |= odd_values(body, _ENVELOPE_TYPES, NAME)
    usage = read_usage(body.get("usage"))
    return Response(parts=tuple(parts), stop=stop, usage=usage, fault=stop_fault(stop), extra=extra)


def stop_fault(stop: Stop | None) -> Fault | None:
    """Return a fault for malformed output, before which the parts are no answer; else None."""
    if stop is None or stop.reason != "malformed_call":
        return None
    message = "the model wrote a malformed tool call, or malformed output"
    return Fault("malformed_call", message, 502, "malformed_tool_use", retryable=True)


def is_cut(stop: Stop) -> bool:
    """Return whether the model was stopped before it finished, so that its last call must not be run."""
    return stop.reason in _CUT


def _as_truncated(call: ToolCall) -> ToolCall:
    """Mark the last call of an answer that was cut: a complete input looks like the beginning of a longer one."""
    raw = dumps(call.arguments)[:-1] if call.arguments else ""
    return replace(call, arguments=None, raw=raw, state="truncated")


def read_stop(raw: Object, *, has_calls: bool) -> Stop | None:
    """Read the stop reason, or None if there is none. The original value is kept as form."""
    word = raw.get("stopReason")
    if is_empty(word):
        return None
    reason = read_stop_reason(str(word), STOP_REASONS)
    if reason in ("stop", "unknown") and has_calls:
        reason = "tool_calls"
    return Stop(reason, extra={} if _STOP_NAMES[reason] == word else {FORM: {":stop_reason": word}})


_USAGE = frozenset({"inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens"})


def read_usage(raw: JSON) -> Usage | None:
    """Read the counts, or None if there are none. A total that is not the sum is kept."""
    if type(raw) is not dict:
        return None
    extra = read_extra(raw, _USAGE, NAME)
    cache_read = read_count(raw, "cacheReadInputTokens", NAME, extra)
    written = read_count(raw, "cacheWriteInputTokens", NAME, extra)
    fresh = read_count(raw, "inputTokens", NAME, extra)
    if form := remember_form(raw, ("inputTokens", "outputTokens", "totalTokens"), extra.get(FORM, {})):
        extra[FORM] = form
    usage = Usage(
        None if fresh is None else fresh + (cache_read or 0) + (written or 0),
        read_count(raw, "outputTokens", NAME, extra),
        cache_read,
        written,
        extra=extra,
    )
    if raw.get("totalTokens", usage.total) != usage.total and not is_empty(raw["totalTokens"]):
        extra.setdefault(NAME, {})["totalTokens"] = raw["totalTokens"]
    return usage


def write_usage(usage: Usage, losses: Losses | None = None) -> Object:
    """Write the counts. They add up to the input, so a count that overlaps others is reduced, with a loss."""
    input_tokens, cached, written = usage.input or 0, usage.cached, usage.cache_write
    if usage.input is not None:
        cached = cached and min(cached, input_tokens)
        written = written and min(written, input_tokens - (cached or 0))
    if losses is not None:
        for name, before, after in (("cached", usage.cached, cached), ("cache_write", usage.cache_write, written)):
            if before != after:
                detail = f"{before} of {input_tokens} input tokens overlap another count; reduced to {after}"
                losses.add(f"/usage/{name}", f"{name} tokens", "rewritten", detail, "info")
        if usage.reasoning:
            detail = "Bedrock counts reasoning with the output only"
            losses.add("/usage/reasoning", "reasoning tokens", "dropped", detail, "info")
    out: Object = {
        "inputTokens": max(input_tokens - (cached or 0) - (written or 0), 0),
        "outputTokens": usage.output or 0,
        "totalTokens": input_tokens + (usage.output or 0),
    }
    if cached is not None:
        out["cacheReadInputTokens"] = cached
    if written is not None:
        out["cacheWriteInputTokens"] = written
    derived = ("totalTokens",) if "totalTokens" in usage.extra.get(FORM, {}).get(":absent", ()) else ()
    return write_extra(restore_form(out, usage.extra.get(FORM, {}), derived), usage.extra, NAME)


def encode_response(response: Response, request: Request | None = None) -> Encoded:
    """Encode a response; its id, its model, the timestamp, other choices and parts that Converse lacks are losses."""
    del request  # no field of an answer depends on it
    losses = Losses()
    report_envelope(response.id, response.model, response.created, losses)
    content = [
        block
        for number, part in enumerate(response.parts)
        if (block := write_answer_block(part, losses, f"/parts/{number}")) is not None
    ]
    if response.parts and type(response.parts[-1]) is ToolCall:
        report_last_call(response.parts[-1].state, response.stop, losses, f"/parts/{len(response.parts) - 1}")
    if response.alternatives:
        losses.add("/alternatives", "alternatives", "dropped", ONE_CHOICE, "error")
    form = response.extra.get(FORM, {})
    message: Object = {"role": "assistant", "content": content}
    message_form = response.extra.get(f"{_MESSAGE}~", {})
    if "role" in message_form or ":role" in message_form:
        del message["role"]
    if not content and ":content" in form:
        del message["content"]
    output = write_extra({"message": write_extra(message, response.extra, _MESSAGE)}, response.extra, f"{NAME}/output")
    out: Object = {"output": output, **write_stop(response.stop, losses)}
    if response.usage is not None or ("usage" not in form and ":usage" not in form):
        out["usage"] = write_usage(response.usage or Usage(), losses)
    if response.stop is None and "stopReason" in form.get(":absent", ()):
        del out["stopReason"]
    return Encoded(write_extra(out, response.extra, NAME), losses)


def report_envelope(response_id: str, model: str, created: int | None, losses: Losses) -> None:
    for name, value in (("id", response_id), ("model", model), ("created", created)):
        if value is not None and value != "":
            losses.add(f"/{name}", name, "dropped", "Converse answers have no field for it", "info")


def write_answer_block(part: Part, losses: Losses, path: str) -> Object | None:
    """Write a block of an answer; return None and report a loss if the answer cannot hold the part.

    Clients accept unsigned reasoning, but they cannot send it back to a model that signs its own.
    """
    artefacts = getattr(part, "artefacts", ())
    if any(artefact.provider != PROVIDER for artefact in artefacts):
        losses.add(f"{path}/artefacts", "artefact", "dropped", "it belongs to another provider")
    if isinstance(part, Reasoning):
        return _write_answer_reasoning(part, losses, path)
    if isinstance(part, Media) and part.kind not in ("image", "audio"):
        losses.add(path, part.kind, "dropped", "Converse answers have images and audio only", "error")
        return None
    if isinstance(part, Text) and is_empty_with_artefact(part, NAME):
        losses.add(path, "text", "dropped", "it has no text", "info")
        return None
    if isinstance(part, ToolCall) and part.state == "truncated" and part.kind != "freeform":
        report_truncated(part.raw or "", losses, path)
        part = replace(part, arguments=parse_partial(part.raw or ""), raw=None)
    return write_block(part, losses, path)


def _write_answer_reasoning(part: Reasoning, losses: Losses, path: str) -> Object | None:
    if part.summary:
        losses.add(f"{path}/summary", "reasoning summary", "rewritten", "reasoning on Converse is plain text", "info")
        part = replace(part, text=part.joined_text, summary=())
    own = {artefact.kind: artefact.data for artefact in part.artefacts if artefact.provider == PROVIDER}
    if not part.text and not own and ":signature" not in part.extra.get(FORM, {}):
        losses.add(path, "reasoning", "dropped", "it has no text", "info")
        return None
    return write_reasoning(part, own)


def report_truncated(raw: str, losses: Losses, path: str) -> None:
    """Report the text of a truncated call that its `input`, an object, cannot hold."""
    if raw and parse_arguments(f"{raw}}}")[0] is None:
        detail = "it is truncated; only complete arguments are in its input, and the stop reason is not tool_use"
        losses.add(path, "call", "weakened", detail)


def report_last_call(state: CallState, stop: Stop | None, losses: Losses, path: str) -> None:
    """Report a complete call before a limit or a filter: to clients it looks like a truncated one."""
    if state == "complete" and stop is not None and is_cut(stop):
        detail = "the last call of a Converse answer counts as truncated if a limit or a filter ended it"
        losses.add(path, "call", "weakened", detail)


def write_stop(stop: Stop | None, losses: Losses) -> Object:
    """Return the stop reason; a reason that Converse lacks is sent as the nearest one and reported."""
    if stop is None:
        return {"stopReason": "end_turn"}
    if stop.reason in _WEAKENED:
        detail = f"Converse has no equivalent; sent as {_STOP_NAMES[stop.reason]!r}"
        losses.add("/stop", f"stop reason {stop.reason}", "weakened", detail, "info")
    if stop.sequence is not None:
        losses.add("/stop/sequence", "stop sequence", "dropped", "Converse answers have no field for it", "info")
    word = stop.extra.get(FORM, {}).get(":stop_reason", _STOP_NAMES[stop.reason])
    return {"stopReason": word}
