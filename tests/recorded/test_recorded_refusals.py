"""Refusals in the providers' own words, recorded by other projects: read into the kind, code and retry time they state."""

import re
from dataclasses import replace

import pytest
import recorded_traffic
from recorded_traffic import exchanges, refusals

from tables import every_case
from toolwire.wire import get

COMPLETE = len(exchanges()) >= recorded_traffic.PUBLISHED

STATUS_KINDS = {
    400: "invalid_request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    422: "invalid_request",
    429: "rate_limit",
    500: "server",
    502: "server",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
CODE_KINDS = {
    ("openai", 400, "model_not_found"): "not_found",  # "The requested model … does not exist", under status 400
    ("groq", 400, "tool_use_failed"): "malformed_call",  # the model's call does not fit its tools, or is missing
}
"""(provider, status, code) of recorded refusals whose code is more exact than their status."""

DOCUMENTED_CODES = {
    "model_not_found": "not_found",
    "invalid_api_key": "authentication",
    "insufficient_quota": "billing",
    "API_KEY_INVALID": "authentication",
}
"""Codes from the providers' documentation that are more exact than the status they come with."""


def test_recordings_are_present():
    recorded_traffic.require_recordings()


@every_case("exchange", refusals(), ids=repr)
def test_refusal_is_read_into_kind_code_and_retry_time(exchange):
    body = exchange.error_body
    fault = get(exchange.error_wire).decode_error(exchange.status, body, exchange.response_headers)
    code = stated_code(body)
    assert fault.kind == stated_kind(exchange, code)
    assert fault.code == code
    assert fault.status == exchange.status
    assert fault.retry_after == pytest.approx(stated_retry_time(body, exchange.response_headers))
    error = error_of(body)
    assert fault.message == error.get("message", fault.message)
    assert fault.param == error.get("param")


def test_every_code_of_the_table_occurs():
    if COMPLETE:
        found = {(one.provider, one.status, stated_code(one.error_body)) for one in refusals()}
        assert set(CODE_KINDS) <= found


def stated_kind(exchange, code):
    recorded = CODE_KINDS.get((exchange.provider, exchange.status, code))
    unlisted = "invalid_request" if exchange.status < 500 else "server"
    return recorded or DOCUMENTED_CODES.get(code) or STATUS_KINDS.get(exchange.status, unlisted)


def error_of(body):
    """The error object: Google may put it into a list, some servers send only a text or no envelope."""
    body = body[0] if isinstance(body, list) and body else body
    error = (body.get("error") or body.get("detail") or body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        return error
    return {"message": error} if isinstance(error, str) and not error.lstrip().startswith("<") else {}


def stated_code(body):
    """The code of an error as text: OpenAI's `code`, the reason of Google's ErrorInfo, Anthropic's `error_code`."""
    error = error_of(body)
    if "status" in error:  # Google's `code` is the HTTP status
        return next((entry["reason"] for entry in error.get("details", ()) if "reason" in entry), None)
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else error.get("code")
    return None if code is None else str(code)


def stated_retry_time(body, headers):
    """Seconds, from Google's RetryInfo, the header, or a message such as "try again in 1m30s"."""
    for entry in error_of(body).get("details") or ():
        if isinstance(entry, dict) and "retryDelay" in entry:
            return float(entry["retryDelay"].removesuffix("s"))
    value = {name.lower(): value for name, value in headers.items()}.get("retry-after")
    if value is not None:
        return float(value)
    after = re.search(r"(?:try again|retry) in ([\d.]+[hms][\w.]*)", str(error_of(body).get("message")), re.IGNORECASE)
    if after is None:
        return None
    units = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", after[1]))


@pytest.mark.parametrize("seconds", ("7", "0.5"))
def test_retry_time_of_a_refusal_comes_from_its_header(seconds):
    for exchange in refusals():
        limited = replace(exchange, status=429, response_headers={"Retry-After": seconds})
        fault = get(limited.error_wire).decode_error(429, limited.error_body, limited.response_headers)
        assert fault.retry_after == float(seconds)
