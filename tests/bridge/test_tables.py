"""The tables of stop reasons and errors, row by row, on every wire."""

import json

import pytest

import toolwire
from recordings import WIRES
from tables import every_case
from toolwire.ir import Fault, Response, Stop, Text, ToolCall
from toolwire.ir.events import ResponseEnd, ResponseStart, StreamFault
from toolwire.wire import get

BARE = ["anthropic", "gemini", "openai_chat", "openai_responses", "ollama"]

# kind: what each wire answers with, as (status, its word)
ERRORS = {
    "invalid_request": ((400, "invalid_request_error"), (400, "INVALID_ARGUMENT"), (400, "invalid_request_error")),
    "authentication": ((401, "authentication_error"), (401, "UNAUTHENTICATED"), (401, "authentication_error")),
    "billing": ((402, "billing_error"), (400, "FAILED_PRECONDITION"), (429, "insufficient_quota")),
    "permission": ((403, "permission_error"), (403, "PERMISSION_DENIED"), (403, "permission_error")),
    "not_found": ((404, "not_found_error"), (404, "NOT_FOUND"), (404, "not_found_error")),
    "conflict": ((409, "conflict_error"), (409, "ABORTED"), (409, "conflict_error")),
    "too_large": ((413, "request_too_large"), (413, "INVALID_ARGUMENT"), (413, "invalid_request_error")),
    "rate_limit": ((429, "rate_limit_error"), (429, "RESOURCE_EXHAUSTED"), (429, "rate_limit_error")),
    "overloaded": ((529, "overloaded_error"), (503, "UNAVAILABLE"), (503, "server_error")),
    "timeout": ((504, "timeout_error"), (504, "DEADLINE_EXCEEDED"), (504, "server_error")),
    "server": ((500, "api_error"), (500, "INTERNAL"), (500, "server_error")),
}
STATUSES = {
    "invalid_request": 400,
    "authentication": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "rate_limit": 429,
    "overloaded": 529,
    "timeout": 504,
    "server": 500,
}


def error_type_in(wire, body):
    if wire == "ollama":
        return body["error"]
    return body["error"]["status" if wire == "gemini" else "type"]


@every_case("kind", ERRORS)
@every_case("column", range(5), ids=BARE)
def test_errors_have_the_status_and_type_of_the_wire(kind, column):
    wire = BARE[column]
    encoded = get(wire).encode_error(Fault(kind, "m", STATUSES[kind]))
    expected = ERRORS[kind][min(column, 2)]
    if wire == "ollama":  # it has statuses, and no words for kinds
        expected = (503 if kind == "overloaded" else STATUSES[kind], "m")
    assert (encoded.status, error_type_in(wire, encoded.body)) == expected
    if wire == "gemini":
        assert encoded.body["error"]["code"] == encoded.status
    back = get(wire).decode_error(encoded.status, encoded.body, encoded.headers)
    coarse = {
        "gemini": ("billing", "too_large"),
        "openai_chat": ("too_large", "timeout"),
        "openai_responses": ("too_large",),
    }
    if kind not in coarse.get(wire, ()):
        assert back.kind == kind


@every_case("wire", ["openai_chat", "openai_responses"])
@every_case("code", [None, "insufficient_quota"])
@every_case("target", ["anthropic", "ollama", "openai_chat", "openai_responses"])
def test_exhausted_quota_with_status_429_is_a_billing_error(wire, code, target):
    error = {"message": "You exceeded your current quota", "type": "insufficient_quota", "param": None, "code": code}
    fault = get(wire).decode_error(429, {"error": error})
    assert fault.kind == "billing"
    assert get(wire).encode_error(fault).body == {"error": error}
    encoded = get(target).encode_error(fault)
    assert get(target).decode_error(encoded.status, encoded.body, encoded.headers).kind == "billing"


@every_case("status", sorted(set(STATUSES.values()) | {408, 422, 502, 503}))
@every_case("wire", BARE)
def test_error_kind_follows_from_the_status_alone(wire, status):
    known = {status: kind for kind, status in STATUSES.items()} | {408: "timeout", 422: "invalid_request"}
    known |= {502: "server", 503: "overloaded"}
    assert get(wire).decode_error(status, "<html>").kind == known[status]


@pytest.mark.parametrize("wire", BARE)
def test_error_headers_have_retry_delay_and_request_id(wire):
    fault = Fault("rate_limit", "m", 429, retry_after=2.5, retryable=False, request_id="req_1")
    encoded = get(wire).encode_error(fault)
    assert encoded.headers["retry-after"] == "2.5"
    assert encoded.headers["x-should-retry"] == "false"
    assert ("req_1" in encoded.headers.values()) is (wire not in ("gemini", "ollama"))
    back = get(wire).decode_error(encoded.status, encoded.body, encoded.headers)
    assert (back.retry_after, back.retryable) == (2.5, False)
    if wire == "gemini":
        assert encoded.body["error"]["details"][0]["retryDelay"] == "2.5s"


def test_translated_errors_keep_the_retry_header():
    body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": [{"retryDelay": "7s"}]}}
    translation = toolwire.translate(body, source="gemini", target="openai_chat", kind="error")
    assert (translation.status, translation.headers["retry-after"]) == (429, "7")


@pytest.mark.parametrize("request_id", ["a\r\nX-Evil: 1", "a b", "", "é"])
def test_invalid_request_id_is_not_written_to_a_header(request_id):
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "x"}, "request_id": request_id}
    assert toolwire.translate(body, source="anthropic", target="openai_chat", kind="error").headers == {}


@pytest.mark.parametrize("delay", ["infs", "nans", "-infs", "xs"])
def test_invalid_retry_delay_is_ignored(delay):
    body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": [{"retryDelay": delay}]}}
    assert get("gemini").decode_error(429, body).retry_after is None


@every_case("kind", ERRORS)
def test_failed_response_code_keeps_the_error_class(kind):
    wire = get("openai_responses")
    encoder = wire.stream_encoder()
    data = encoder.feed(ResponseStart("r", "m")) + encoder.feed(StreamFault(Fault(kind, "m", STATUSES[kind], "x_y")))
    decoder = wire.stream_decoder()
    *_, last = [*decoder.feed(data), *decoder.close()]
    coarse = {"billing": "rate_limit", "overloaded": "server", "timeout": "server"}  # the list of codes is closed
    expected = kind if kind in ("rate_limit", "server") else coarse.get(kind, "invalid_request")
    assert last.fault.kind == expected


@pytest.mark.parametrize("code", ["invalid_prompt", "invalid_image", "image_too_large", "empty_image_file"])
def test_prompt_error_codes_are_invalid_request_errors(code):
    body = {"object": "response", "status": "failed", "output": [], "error": {"code": code, "message": "m"}}
    assert get("openai_responses").decode_response(body).fault.kind == "invalid_request"


def test_stream_error_to_gemini_uses_a_status_it_defines():
    encoder = get("gemini").stream_encoder()
    written = encoder.feed(StreamFault(Fault("overloaded", "busy", 529)))
    assert json.loads(written.removeprefix(b"data: "))["error"]["code"] == 503


# reason: (anthropic, gemini, openai_chat, openai_responses, ollama)
STOPS = {
    "stop": ("end_turn", "STOP", "stop", "completed", "stop"),
    "stop_sequence": ("stop_sequence", "STOP", "stop", "completed", "stop"),
    "tool_calls": ("tool_use", "STOP", "tool_calls", "completed", "stop"),
    "length": ("max_tokens", "MAX_TOKENS", "length", "max_output_tokens", "length"),
    "context_window": ("model_context_window_exceeded", "MAX_TOKENS", "length", "max_output_tokens", "length"),
    "content_filter": ("refusal", "SAFETY", "content_filter", "content_filter", "stop"),
    "pause": ("pause_turn", "CONTINUATION", "stop", "max_messages", "stop"),
    "unknown": ("end_turn", "STOP", "stop", "completed", "stop"),
}


def stop_in(wire, body):
    if wire == "ollama":
        return body["done_reason"]
    if wire == "anthropic":
        return body["stop_reason"]
    if wire == "gemini":
        return body["candidates"][0]["finishReason"]
    if wire == "openai_chat":
        return body["choices"][0]["finish_reason"]
    return (body["incomplete_details"] or {}).get("reason") or body["status"]


@every_case("reason", STOPS)
@every_case("column", range(5), ids=BARE)
def test_stop_reasons_are_encoded_and_restored(reason, column):
    wire = get(BARE[column])
    parts = (ToolCall("c", "f", {}),) if reason == "tool_calls" else (Text("t"),)
    written, losses = wire.encode_response(Response(id="r", model="m", parts=parts, stop=Stop(reason)))
    assert stop_in(wire.name, written) == STOPS[reason][column]
    came_back = wire.decode_response(written).stop.reason
    assert came_back == reason or any(loss.path == "/stop" for loss in losses) or reason == "stop_sequence"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("SPII", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("IMAGE_OTHER", "content_filter"),
        ("UNEXPECTED_TOOL_CALL", "malformed_call"),
        ("OTHER", "error"),
        ("SOMETHING_NEW", "unknown"),
    ],
)
def test_gemini_finish_reasons_are_decoded(word, reason):
    body = {"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}, "finishReason": word}]}
    assert get("gemini").decode_response(body).stop.reason == reason


def test_response_with_calls_stops_for_tool_calls():
    body = {
        "type": "message",
        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
        "stop_reason": "end_turn",
    }
    assert get("anthropic").decode_response(body).stop.reason == "tool_calls"


@pytest.mark.parametrize("target", [wire for wire in WIRES if "anthropic" not in wire])
def test_unknown_stop_reason_is_a_stop_with_a_loss(target):
    body = {"type": "message", "content": [{"type": "text", "text": "a"}], "stop_reason": "ran_dry"}
    translation = toolwire.translate(body, source="anthropic", target=target, kind="response")
    assert translation.status == 200
    assert get(target).decode_response(translation.body).fault is None
    assert "stop reason unknown" in {loss.concept for loss in translation.losses}


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
def test_refusal_explanation_becomes_response_text(target):
    body = {
        "type": "message",
        "content": [],
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal", "category": "x", "explanation": "because"},
    }
    translated = toolwire.translate(body, source="anthropic", target=target, kind="response").body
    back = get(target).decode_response(translated)
    assert (back.stop.reason, back.parts[0].text) == ("refusal", "because")
    restorer = toolwire.bridge.translation.exchange.Exchange().make_restorer(
        toolwire.ir.Losses(), get(target).capabilities
    )
    events = restorer.feed(ResponseEnd((Stop("refusal", detail="because"),)))
    assert [type(event).__name__ for event in events] == ["TextStart", "TextDelta", "TextEnd", "ResponseEnd"]


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("anthropic", {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-nope"}}),
        (
            "gemini",
            {"error": {"code": 404, "message": "models/g is not found for API version v1", "status": "NOT_FOUND"}},
        ),
        ("ollama", {"error": "model 'q' not found"}),
    ],
)
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
def test_unknown_model_of_another_provider_has_the_code_of_openai(wire, body, target):
    encoded = get(target).encode_error(get(wire).decode_error(404, body))
    assert (encoded.status, encoded.body["error"]["code"]) == (404, "model_not_found")


def test_error_of_openai_without_a_code_stays_without_one():
    error = {"message": "The model `m` does not exist", "type": "not_found_error", "param": None, "code": None}
    assert (
        get("openai_chat").encode_error(get("openai_chat").decode_error(404, {"error": error})).body["error"] == error
    )
