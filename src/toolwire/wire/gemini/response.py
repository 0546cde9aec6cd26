"""generateContent responses: candidates, finish reasons, usage, log probabilities."""

from __future__ import annotations

from ...ir.errors import ProtocolError
from ...ir.losses import Losses
from ...ir.parts import Extra, Part, Reasoning, Refusal, Text, ToolCall, part_label
from ...ir.pointer import JSON, Object
from ...ir.request import Request
from ...ir.response import Alternative, Fault, Response, Stop, StopReason, Usage
from ..codec import LogprobForm, read_tokens, report_incomplete_call, stop_without_call
from ..fields import (
    decode_list,
    odd_values,
    read_count,
    read_label,
    read_optional_string,
    read_stop_reason,
    require_object,
)
from ..protocol import Encoded
from .fault import read_fault
from .field_names import NAME, read_fields, write_fields
from .part_writer import report_foreign, write_part
from .parts import PROVIDER, read_part


def _read_logprobs(value: JSON) -> list[Object] | None:
    """Read a `LogprobsResult`: the chosen tokens, and for each position the most probable ones; None if invalid."""
    if type(value) is not dict or type(value.get("chosenCandidates")) is not list:
        return None
    tops = value.get("topCandidates")
    tokens: list[JSON] = []
    for number, chosen in enumerate(value["chosenCandidates"]):
        top = tops[number] if type(tops) is list and number < len(tops) else None
        others = top.get("candidates") if type(top) is dict else None
        top_tokens = [_rename(other) for other in others] if type(others) is list else []
        token = _rename(chosen)
        tokens.append(token and {**token, "top_logprobs": [*top_tokens]})
    return read_tokens(tokens)


def _rename(candidate: JSON) -> Object | None:
    if type(candidate) is not dict:
        return None
    return {"token": candidate.get("token"), "logprob": candidate.get("logProbability")}


def _write_logprobs(tokens: list[Object]) -> JSON:
    """Write a `LogprobsResult`."""
    chosen: list[JSON] = [_candidate(token) for token in tokens]
    tops: list[JSON] = [{"candidates": [_candidate(other) for other in token["top_logprobs"]]} for token in tokens]
    return {"chosenCandidates": chosen, "topCandidates": tops}


def _candidate(token: Object) -> Object:
    return {"token": token["token"], "logProbability": token["logprob"]}


LOGPROBS = LogprobForm(
    "gemini/candidate", "stop", _read_logprobs, _write_logprobs, field="logprobsResult", omitted="token ids"
)


# `STOP` also means "the model calls a function", and a blocked prompt has no candidates at all. A malformed call is a
# retryable failure, not an empty answer.


_FORM = "gemini~"  # the key of `extra` for the source's spelling; names with a colon are notes of ours
_CANDIDATE = "gemini/candidate"
_CONTENT = "gemini/content"
_KNOWN = frozenset({"candidates", "usageMetadata", "promptFeedback", "modelVersion", "responseId", "error"})
# any of these makes an answer without candidates valid: a model may return nothing
_ANSWER = frozenset({"promptFeedback", "usageMetadata", "modelVersion", "responseId"})
ENVELOPE_TYPES = {"responseId": (str,), "modelVersion": (str,), "usageMetadata": (dict,)}
CANDIDATE = frozenset({"content", "finishReason", "finishMessage", "index"})
NO_REASONS = (None, "", "FINISH_REASON_UNSPECIFIED")
STOP_REASONS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MALFORMED_FUNCTION_CALL": "malformed_call",
    "UNEXPECTED_TOOL_CALL": "malformed_call",
    "TOO_MANY_TOOL_CALLS": "malformed_call",
    "MALFORMED_RESPONSE": "malformed_call",
    "CONTINUATION": "pause",
    "OTHER": "error",
}
_STOP_NAMES: dict[StopReason, str] = {
    "stop": "STOP",
    "stop_sequence": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "context_window": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "refusal": "SAFETY",
    "pause": "CONTINUATION",
    "malformed_call": "MALFORMED_FUNCTION_CALL",
    "error": "OTHER",
    "unknown": "STOP",
}


def decode_response(body: Object) -> Response:
    """Decode a response or an error body; a blocked prompt is an answer without candidates.

    An error beside candidates is a failure, too: the parts are only the beginning of an answer (ankit373/hydra#869).
    Raise ProtocolError if it is neither.
    """
    if require_object(body).get("error") and not body.get("candidates"):
        return Response(fault=read_fault(body))
    extra: Extra = {}
    fields = read_fields(body, _KNOWN, NAME, extra, ("candidates",))
    candidates = decode_list(fields, "candidates", _read_candidate)
    feedback = fields.get("promptFeedback")
    if not candidates and _ANSWER.isdisjoint(fields):
        raise ProtocolError("expected candidates or promptFeedback", pointer="/candidates")
    if feedback is not None:
        extra[NAME] = {**extra.get(NAME, {}), "promptFeedback": feedback}
    if not candidates:
        extra[_FORM] = {**extra.get(_FORM, {}), ":candidates": "none"}
    stop = None if feedback is None else blocked_stop(require_object(feedback, "promptFeedback"))
    first, *others = candidates or [Alternative((), stop)]
    return Response(
        id=read_label(fields, "responseId"),
        model=read_label(fields, "modelVersion"),
        parts=first.parts,
        stop=first.stop,
        usage=read_usage(fields.get("usageMetadata")),
        alternatives=tuple(others),
        fault=read_fault(body) if body.get("error") else stop_fault(first.stop),
        extra={**extra, **first.extra, **odd_values(fields, ENVELOPE_TYPES, NAME)},
    )


def blocked_stop(feedback: Object) -> Stop | None:
    """Return the stop of a blocked prompt."""
    reason = feedback.get("blockReason", feedback.get("block_reason"))
    if reason is None:
        return None
    message = feedback.get("blockReasonMessage")
    detail = message if type(message) is str else f"the prompt was blocked: {reason}"
    return Stop("content_filter", detail=detail, extra={_FORM: {":blocked": True}})


def stop_fault(stop: Stop | None) -> Fault | None:
    """Return a fault for a malformed call or an unexplained end, before which the parts are no answer; else None."""
    if stop is None:
        return None
    if stop.reason == "malformed_call":
        message = stop.detail or "the model made a malformed function call"
        return Fault("malformed_call", message, 502, "malformed_function_call", retryable=True)
    if stop.reason == "error":
        return Fault("server", stop.detail or "the model stopped for another reason", 502)
    return None


def _read_candidate(raw: JSON) -> Alternative:
    """Read a candidate; its unknown fields are kept with the stop, the fields of its content with the alternative.

    Raise ProtocolError if it is invalid.
    """
    extra: Extra = {}
    fields = read_fields(require_object(raw), CANDIDATE, _CANDIDATE, extra)
    content = fields.get("content")
    parts: list[Part] = []
    content_extra: Extra = {}
    if content is not None:
        parts = _read_parts(require_object(content, "content"), content_extra)
    else:
        content_extra[f"{_CONTENT}~"] = {":content": "absent"}
    return Alternative(tuple(parts), read_stop(fields, tuple(parts), extra), content_extra)


def _read_parts(content: Object, content_extra: Extra) -> list[Part]:
    """Read the parts of a candidate's content; role and form go into `content_extra`.

    Raise ProtocolError if one is invalid.
    """
    fields = read_fields(content, ("role", "parts"), _CONTENT, content_extra, ("parts",))
    if fields.get("role") != "model":
        content_extra[f"{_CONTENT}~"] = {**content_extra.get(f"{_CONTENT}~", {}), ":role": fields.get("role")}
    if "parts" not in fields:
        content_extra[f"{_CONTENT}~"] = {**content_extra.get(f"{_CONTENT}~", {}), ":parts": "absent"}
    try:
        return decode_list(fields, "parts", _read_answer_part)
    except ProtocolError as error:
        raise error.within("content") from None


def _read_answer_part(raw: JSON) -> Part:
    return read_part({"text": raw} if type(raw) is str else raw)


def read_stop(candidate: Object, parts: tuple[Part, ...], extra: Extra) -> Stop | None:
    """Read the finish reason, or None if there is none.

    `extra` holds the other fields of the candidate, which need a stop to be kept. With calls, STOP is `tool_calls`.
    """
    word, detail = read_label(candidate, "finishReason"), read_optional_string(candidate, "finishMessage")
    form: Object = {}
    if candidate.get("index") is None:
        form[":index"] = "absent"
    if not word:
        return None if not extra else Stop("unknown", extra={**extra, _FORM: {**form, ":finishReason": None}})
    reason = "content_filter" if word.startswith("IMAGE_") else read_stop_reason(word, STOP_REASONS)
    if reason in ("stop", "tool_calls", "unknown"):
        has_calls = any(type(part) is ToolCall for part in parts)
        reason = "tool_calls" if has_calls else "stop" if reason == "tool_calls" else reason
    if _STOP_NAMES[reason] != word:
        form[":finishReason"] = word
    return Stop(reason, detail=detail, extra={**extra, _FORM: form} if form else extra)


_USAGE = frozenset(
    {
        "promptTokenCount",
        "candidatesTokenCount",
        "totalTokenCount",
        "thoughtsTokenCount",
        "cachedContentTokenCount",
        "toolUsePromptTokenCount",
    }
)


_COUNTS = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
)


def read_usage(raw: JSON) -> Usage | None:
    """Read the counts; `Usage.output` includes thoughts, `Usage.input` the input of Google's own tools.

    Return None if there are none. A total that is not the sum is kept as form.
    """
    if type(raw) is not dict:
        return None
    extra: Extra = {}
    fields = read_fields(raw, _USAGE, NAME, extra)
    prompt, tools, candidates, thoughts, cached = [read_count(fields, key, NAME, extra) for key in _COUNTS]
    usage = Usage(
        None if prompt is None else prompt + (tools or 0),
        None if candidates is None and thoughts is None else (candidates or 0) + (thoughts or 0),
        cached,
        reasoning=thoughts,
        tool_input=tools,
        extra=extra,
    )
    form: Object = {}
    if candidates is None and thoughts is not None:
        form[":candidates"] = "absent"
    if fields.get("totalTokenCount") != usage.total:
        form[":total"] = fields.get("totalTokenCount")
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    return usage


def write_usage(usage: Usage, losses: Losses) -> Object:
    """Write the counts; this wire counts thoughts and the input of Google's own tools separately.

    Tokens written to a cache are a loss.
    """
    if usage.cache_write:
        losses.add("/usage/cache_write", "tokens written to a cache", "dropped", "Gemini does not count them", "info")
    form = usage.extra.get(_FORM, {})
    out: Object = {}
    if usage.input is not None:
        out["promptTokenCount"] = usage.input - (usage.tool_input or 0)
    if usage.output is not None and ":candidates" not in form:
        out["candidatesTokenCount"] = usage.output - (usage.reasoning or 0)
    for key, value in (
        ("thoughtsTokenCount", usage.reasoning),
        ("cachedContentTokenCount", usage.cached),
        ("toolUsePromptTokenCount", usage.tool_input),
        ("totalTokenCount", form.get(":total", usage.total)),
    ):
        if value is not None:
            out[key] = value
    return write_fields(out, usage.extra, NAME)


def encode_response(response: Response, request: Request | None = None) -> Encoded:
    """Encode a response; a blocked prompt and an empty answer are written without candidates.

    The timestamp and parts that Gemini lacks are losses.
    """
    del request  # no field of an answer depends on it
    losses = Losses()
    out: Object = {}
    if response.created is not None:
        losses.add("/created", "created", "dropped", "toolwire writes no timestamp into Gemini answers", "info")
    is_blocked = response.stop is not None and ":blocked" in response.stop.extra.get(_FORM, {})
    is_empty = response.stop is None and not response.parts and ":candidates" in response.extra.get(_FORM, {})
    if not is_blocked and not is_empty:
        answers: list[Response | Alternative] = [response, *response.alternatives]
        out["candidates"] = [_write_candidate(index, answer, losses) for index, answer in enumerate(answers)]
    if response.usage is not None:
        out["usageMetadata"] = write_usage(response.usage, losses)
    if response.model:
        out["modelVersion"] = response.model
    if response.id:
        out["responseId"] = response.id
    return Encoded(write_fields(out, response.extra, NAME), losses)


def _write_candidate(index: int, answer: Response | Alternative, losses: Losses) -> Object:
    """Write one choice as a candidate; an incomplete call is left out, and the finish reason is changed to match.

    An empty part is left out, too. Both are reported.
    """
    path = "" if index == 0 else f"/alternatives/{index - 1}"
    parts = []
    stop = answer.stop
    for number, part in enumerate(answer.parts):
        if type(part) is ToolCall and part.state != "complete":
            report_incomplete_call(part, "Gemini", losses, f"{path}/parts/{number}")
            stop = stop_without_call(part, stop, losses, malformed_detail(part))
            continue
        if _is_empty(part):
            report_foreign(getattr(part, "artefacts", ()), losses, f"{path}/parts/{number}")
            losses.add(f"{path}/parts/{number}", part_label(part), "dropped", "it has no text", "info")
            continue
        written = write_part(part, losses, f"{path}/parts/{number}")
        if written is not None:
            parts.append(written)
    form = answer.extra.get(f"{_CONTENT}~", {})
    out: Object = {}
    if parts or ":content" not in form:
        content: Object = {"role": form.get(":role", "model"), "parts": parts}
        if content["role"] is None:
            del content["role"]
        if not parts and (":parts" in form or form.get("parts", ()) is None):
            del content["parts"]
        out["content"] = write_fields(content, answer.extra, _CONTENT)
    out.update(write_stop(stop, losses, path))
    if stop is None or ":index" not in stop.extra.get(_FORM, {}):
        out["index"] = index
    return out if stop is None else write_fields(out, stop.extra, _CANDIDATE)


def _is_empty(part: Part) -> bool:
    """Return whether a part has no text and nothing else that Gemini carries; one of its own is written back."""
    if isinstance(part, Refusal):
        return not part.text
    if not isinstance(part, (Text, Reasoning)) or part.text or NAME in part.extra or _FORM in part.extra:
        return False
    is_signed = any(artefact.provider == PROVIDER for artefact in part.artefacts)
    return not is_signed and not getattr(part, "summary", ())


def malformed_detail(call: ToolCall) -> str:
    return f"Malformed function call: {call.name}({call.text})"


def write_stop(stop: Stop | None, losses: Losses, path: str) -> Object:
    """Return the fields for the finish reason; a reason that Gemini lacks is sent as the nearest one and reported."""
    if stop is None:
        return {}
    word = stop.extra.get(_FORM, {}).get(":finishReason", _STOP_NAMES[stop.reason])
    if stop.sequence is not None or (stop.reason == "stop_sequence" and word == "STOP"):
        losses.add(
            f"{path}/stop/sequence", "stop sequence", "dropped", "Gemini does not report the stop sequence", "info"
        )
    if stop.reason in ("context_window", "refusal"):
        detail = f"Gemini has no equivalent; sent as {word}"
        losses.add(f"{path}/stop", f"stop reason {stop.reason}", "weakened", detail, "info")
    elif stop.reason == "unknown" and word == _STOP_NAMES["unknown"]:
        losses.add(f"{path}/stop", "stop reason unknown", "weakened", f"Gemini has no equivalent; sent as {word}")
    out: Object = {} if word is None else {"finishReason": word}
    if stop.detail is not None:
        out["finishMessage"] = stop.detail
    return out
