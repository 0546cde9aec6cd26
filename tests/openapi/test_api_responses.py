"""Responses become results and failures."""

import pytest

from tables import every_case
from toolwire import ToolError
from toolwire.openapi.responses import ApiResponse, failure, result
from toolwire.openapi.security import SecretFilter
from toolwire.run import Transient

CLEAN = SecretFilter(())


def response(status, body=b"", **headers):
    return ApiResponse(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


@every_case(
    ("body", "content_type", "expected"),
    [
        (b'{"a": 1}', "application/problem+json", {"a": 1}),
        (b"[1]", "", [1]),
        (b"plain", "", "plain"),
        (b"\x00\x01", "", "[binary content, 2 bytes, not shown]"),
        (b"1e400", "application/json", "1e400"),
        (b"<a/>", "application/xml", "<a/>"),
        (b"a,b", "text/csv", "a,b"),
        (b"\xe4", "text/plain; charset=latin-1", "ä"),
        (b"\xc3\xa4", "text/plain; charset=no-such-charset", "ä"),
        (b"xn--", "text/plain; charset=punycode", "xn--"),
        (b"\xff", "text/plain", "\ufffd"),
        (b"%PDF", "application/pdf", "[application/pdf content, 4 bytes, not shown]"),
        (b"", "application/json", None),
    ],
)
def test_content_is_converted(body, content_type, expected):
    assert result(response(200, body, content_type=content_type), CLEAN) == expected


def test_truncated_image_is_only_described():
    cut = ApiResponse(200, {"content-type": "image/png"}, b"\x89PNG", is_truncated=True)
    assert result(cut, CLEAN) == "[image/png content, more than 4 bytes, not shown]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        (None, None),
    ],
)
def test_retry_after(value, expected):
    error = failure("GET /a", response(503, **({} if value is None else {"retry_after": value})), CLEAN)
    assert isinstance(error, Transient)
    assert error.retry_after == expected
    assert not error.before_effect


@pytest.mark.parametrize(("status", "no_effect"), [(408, False), (425, True), (429, True), (500, False), (599, False)])
def test_transient_statuses(status, no_effect):
    error = failure("GET /a", response(status), CLEAN)
    assert isinstance(error, Transient)
    assert error.before_effect is no_effect


@pytest.mark.parametrize("status", [300, 304, 400, 404, 499])
def test_refusals(status):
    assert isinstance(failure("GET /a", response(status), CLEAN), ToolError)


def test_message_of_a_page_is_its_title():
    page = b"<html><head><title>Not\n found</title></head><body>" + b"x" * 10_000
    assert (
        str(failure("GET /a", response(404, page, content_type="text/html"), CLEAN))
        == "GET /a answered 404 Not Found: Not found"
    )


def test_message_is_bounded():
    error = failure("GET /a", response(400, b"x" * 60_000, content_type="text/plain"), CLEAN)
    assert len(str(error)) < 2_100


@pytest.mark.parametrize(
    ("location", "shown"),
    [("https://evil.example/x", "evil.example"), ("/login", "the same host"), ("http://[", "an invalid URL")],
)
def test_redirect_names_its_host(location, shown):
    assert f"a redirect to {shown}. " in str(failure("GET /a", response(302, location=location), CLEAN))
