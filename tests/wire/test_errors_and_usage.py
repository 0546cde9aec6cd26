"""Numbered cases: errors, usage, and what a provider says about trying again."""

import pytest

import toolwire
from toolwire.wire import get


def to_chat(body, source, kind="response"):
    return toolwire.translate(body, source=source, target="openai_chat", kind=kind)


@pytest.mark.case("83")
def test_anthropic_tokens_include_the_cache():
    usage = {"input_tokens": 1, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 300, "output_tokens": 4}
    body = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [],
        "stop_reason": "end_turn",
        "usage": usage,
    }
    chat = to_chat(body, "anthropic").body["usage"]
    assert chat["prompt_tokens"] == 321
    assert chat["prompt_tokens_details"] == {"cached_tokens": 20, "cache_write_tokens": 300}
    assert chat["total_tokens"] == 325


@pytest.mark.case("84")
def test_gemini_output_includes_thoughts():
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 20, "thoughtsTokenCount": 300, "totalTokenCount": 321}
    body = {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}], "usageMetadata": usage}
    chat = to_chat(body, "gemini").body["usage"]
    assert chat["completion_tokens"] == 320
    assert chat["completion_tokens_details"] == {"reasoning_tokens": 300}


@pytest.mark.case("85")
def test_retry_delay_is_kept_across_wires():
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    fault = get("anthropic").decode_error(529, overloaded, {"Retry-After": "7"})
    status, body, headers = get("openai_chat").encode_error(fault)
    assert status == 503
    assert headers["retry-after"] == "7"
    assert body["error"]["message"] == "Overloaded"
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}
    quota = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [delay]}}
    fault = get("gemini").decode_error(429, quota)
    assert fault.retry_after == 1.5
    status, body, headers = get("anthropic").encode_error(fault)
    assert (status, headers["retry-after"], body["error"]["type"]) == (429, "1.5", "rate_limit_error")
    milliseconds = get("openai_chat").decode_error(429, {"error": {"message": "x"}}, {"retry-after-ms": "250"})
    assert milliseconds.retry_after == 0.25


@pytest.mark.case("86")
@pytest.mark.parametrize("wire", ["anthropic", "gemini", "openai_chat", "openai_responses"])
def test_html_error_page_of_a_proxy_becomes_a_json_error(wire):
    page = b"<html><head><title>413 Request Entity Too Large</title></head><body>cloudflare</body></html>"
    fault = get(wire).decode_error(413, page)
    assert (fault.kind, fault.status) == ("too_large", 413)
    status, body, _ = get("openai_chat").encode_error(fault)
    assert status == 413
    assert "html" not in body["error"]["message"]


@pytest.mark.case("87")
def test_a_failed_response_in_a_200_is_an_error_on_chat():
    body = {
        "id": "r",
        "object": "response",
        "status": "failed",
        "error": {"code": "rate_limit_exceeded", "message": "slow"},
        "output": [],
    }
    translated = to_chat(body, "openai_responses")
    assert translated.status == 429
    assert translated.body["error"]["message"] == "slow"
    with pytest.raises(toolwire.UpstreamError, match="slow"):
        toolwire.calls(body)


@pytest.mark.case("88")
@pytest.mark.parametrize("target", ["anthropic", "openai_chat", "openai_responses"])
def test_malformed_gemini_call_is_a_retryable_error(target):
    body = {
        "candidates": [
            {"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "print(f(", "index": 0}
        ]
    }
    translated = toolwire.translate(body, source="gemini", target=target, kind="response")
    assert translated.status == 502
    assert "print(f(" in str(translated.body)
    assert get("gemini").decode_response(body).fault.retryable is True
    translation = toolwire.translate_stream(source="gemini", target=target)
    data = b"data: " + toolwire.ir.text.to_bytes(body) + b"\n\n"
    out = translation.feed(data) + translation.close()
    decoder = get(target).stream_decoder()
    assert toolwire.fold([*decoder.feed(out), *decoder.close()]).fault is not None


@pytest.mark.case("90")
def test_x_should_retry_header_decides_whether_an_error_is_retryable():
    for word, heard in (("false", False), ("TRUE", True), ("", None)):
        fault = get("openai_chat").decode_error(500, {"error": {"message": "x"}}, {"x-should-retry": word})
        assert fault.retryable is heard
