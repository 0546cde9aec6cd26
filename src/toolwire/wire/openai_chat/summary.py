"""Summaries of Chat answers: the few facts that a gateway accounts for when it forwards the bytes.

Usual answers are decoded with types, which makes few objects. Such a decoder keeps the last of two members with the same
name, and a document with two meanings must not be forwarded. But every member has a colon, which is missing when the
decoded answer is encoded again; the colons in strings are not.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...ir.errors import ProtocolError
from ...ir.pointer import Object
from ...ir.response import Usage
from ...stream.strict import parse
from ..documents import AnswerSummary
from .response import STOP_REASONS, read_usage

_OptionalText: TypeAlias = str | UnsetType | None
_OptionalNumber: TypeAlias = int | UnsetType | None
_Nothing: TypeAlias = UnsetType | None


class _UsualFunction(Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class _UsualCall(Struct, forbid_unknown_fields=True):
    id: str
    function: _UsualFunction
    type: Literal["function"] | UnsetType = UNSET
    index: _OptionalNumber = UNSET


class _UsualMessage(Struct, forbid_unknown_fields=True):
    role: _OptionalText = UNSET
    content: _OptionalText = UNSET
    tool_calls: list[_UsualCall] | _Nothing = UNSET
    refusal: _OptionalText = UNSET
    reasoning_content: _OptionalText = UNSET
    reasoning: _OptionalText = UNSET
    annotations: tuple[()] | _Nothing = UNSET
    audio: _Nothing = UNSET
    function_call: _Nothing = UNSET
    reasoning_details: _Nothing = UNSET


class _UsualChoice(Struct, forbid_unknown_fields=True):
    message: _UsualMessage
    finish_reason: str
    index: _OptionalNumber = UNSET
    logprobs: _Nothing = UNSET
    stop_reason: str | _OptionalNumber = UNSET
    matched_stop: str | _OptionalNumber = UNSET
    token_ids: _Nothing = UNSET
    native_finish_reason: _OptionalText = UNSET
    seed: _OptionalNumber = UNSET


class _UsualAnswer(Struct, forbid_unknown_fields=True):
    """A usual answer. An unusual one, such as an answer with log probabilities, is parsed."""

    id: str
    model: str
    choices: tuple[_UsualChoice]
    usage: dict[str, int | dict[str, int | None] | None]
    object: _OptionalText = UNSET
    created: _OptionalNumber = UNSET
    system_fingerprint: _OptionalText = UNSET
    service_tier: _OptionalText = UNSET
    provider: _OptionalText = UNSET
    prompt_logprobs: _Nothing = UNSET
    prompt_token_ids: _Nothing = UNSET
    kv_transfer_params: _Nothing = UNSET


_decode = msgspec.json.Decoder(_UsualAnswer).decode
_encode = msgspec.json.Encoder().encode
_ESCAPED_COLON = b"\\u003"  # or another character; a colon is not escaped when it is encoded again


def summarise(data: bytes) -> AnswerSummary | None:
    """Return the summary of an answer, or None if it must be decoded in full: any unusual field or shape."""
    try:
        answer = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _summarise_parsed(data)
    if _encode(answer).count(b":") != data.count(b":") or data.find(_ESCAPED_COLON) >= 0:
        return _summarise_parsed(data)
    choice = answer.choices[0]
    message = choice.message
    try:
        usage = read_usage(answer.usage)
    except ProtocolError:
        return None
    calls = message.tool_calls
    names = tuple([call.function.name for call in calls]) if calls else ()
    return _make_summary(answer.id, answer.model, choice.finish_reason, usage, names, has_refusal=bool(message.refusal))


def _make_summary(
    answer_id: str, model: str, finish_reason: str, usage: Usage | None, names: tuple[str, ...], *, has_refusal: bool
) -> AnswerSummary | None:
    reason = STOP_REASONS.get(finish_reason, "error")
    if reason == "error" or usage is None:
        return None
    if reason == "stop" or reason == "tool_calls":  # the content decides where they disagree, as in `make_stop`
        reason = "tool_calls" if names else "refusal" if has_refusal else "stop"
    return AnswerSummary(answer_id, model, reason, usage, names)


# The fields of other answers. Any other, such as `error` or a signature, may have a meaning that only the decoder knows.
_ANSWER = frozenset({*_UsualAnswer.__struct_fields__, *"timings time_info x_groq usage_breakdown moderation".split()})
_CHOICE = frozenset(_UsualChoice.__struct_fields__)
_TEXTS = ("role", "content", "refusal", "reasoning_content", "reasoning")
_UNUSED = ("annotations", "audio", "function_call")  # fields of a message that are empty or null
_MESSAGE = frozenset(_UsualMessage.__struct_fields__)
_CALL = frozenset(_UsualCall.__struct_fields__)
_STRINGS = frozenset({str, type(None)})


def _summarise_parsed(data: bytes) -> AnswerSummary | None:
    """Return the summary of an answer whose values have other types, but no meaning for the accounts."""
    try:
        answer = parse(data)
        [choice] = answer["choices"]
        message, usage = choice["message"], read_usage(answer["usage"])
        answer_id, model = answer["id"], answer["model"]
        if not (type(answer_id) is type(model) is str):
            return None
        if not (_ANSWER.issuperset(answer) and _CHOICE.issuperset(choice) and _MESSAGE.issuperset(message)):
            return None
        if any(map(message.get, _UNUSED)) or not _STRINGS.issuperset(map(type, map(message.get, _TEXTS))):
            return None
        names = tuple(map(_read_call_name, message.get("tool_calls") or ()))
        has_refusal = bool(message.get("refusal"))
        return _make_summary(answer_id, model, choice["finish_reason"], usage, names, has_refusal=has_refusal)
    except (ProtocolError, LookupError, TypeError, ValueError, AttributeError):  # it has another shape
        return None


def _read_call_name(call: Object) -> str:
    """Return the name in a call of a function; raise ValueError for any other call."""
    function = call["function"]
    name = function["name"]
    if type(name) is type(function["arguments"]) is type(call["id"]) is str and len(function) == 2:
        if _CALL.issuperset(call) and call.get("type", "function") == "function":
            return name
    raise ValueError
