"""The heads of requests: their bytes, and the values that are refused before a request is sent."""

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.net.http.head import Origin, build_head


def lines_of(url, *fields, method="POST"):
    origin, head = build_head(method, url, fields)
    assert head.endswith(b"\r\n")
    return origin, head.decode("latin-1").splitlines()


def test_head_has_target_host_and_headers_in_order():
    origin, lines = lines_of("https://api.example.com/v1/x?y=1", ("accept", "a"), ("authorization", "Bearer k"))
    assert origin == Origin("api.example.com", 443, tls=True)
    assert lines == [
        "POST /v1/x?y=1 HTTP/1.1",
        "host: api.example.com",
        "user-agent: toolwire",
        "accept-encoding: identity",
        "accept: a",
        "authorization: Bearer k",
    ]


def test_header_of_the_caller_replaces_a_default():
    _, lines = lines_of("http://a.test/", ("User-Agent", "mine"), ("Host", "b.test"))
    assert lines[1:] == ["accept-encoding: identity", "User-Agent: mine", "Host: b.test"]


@pytest.mark.parametrize(
    ("url", "authority", "target", "host"),
    [
        ("http://a.test", "a.test:80", "/", "a.test"),
        ("http://a.test:80/", "a.test:80", "/", "a.test:80"),
        ("https://A.Test:8443?q", "a.test:8443", "/?q", "a.test:8443"),
        ("https://[fd00::1]/x", "[fd00::1]:443", "/x", "[fd00::1]"),
        ("http://[::1]:8000/x#part", "[::1]:8000", "/x", "[::1]:8000"),
        ("https://a.test/caf\u00e9?q=%20\u2713", "a.test:443", "/caf%C3%A9?q=%20%E2%9C%93", "a.test"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example:443", "/", "xn--bcher-kva.example"),
        ("https://user:pw@a.test/", "a.test:443", "/", "a.test"),
    ],
)
def test_url_is_split_into_origin_target_and_host(url, authority, target, host):
    origin, lines = lines_of(url)
    assert (origin.authority, lines[0], lines[1]) == (authority, f"POST {target} HTTP/1.1", f"host: {host}")


@pytest.mark.parametrize(
    "field",
    [
        ("x", "a\r\nx-b: c"),
        ("x", "a\0"),
        ("x\r\ny", "a"),
        ("x: y", "a"),
        ("", "a"),
        ("x y", "a"),
        ("Content-Length", "1"),
        ("transfer-encoding", "chunked"),
    ],
)
def test_invalid_header_is_refused_without_its_value(field):
    with pytest.raises(ConfigError, match="header") as refused:
        build_head("POST", "http://a.test/", (field, ("authorization", "Bearer s3cret")))
    assert "s3cret" not in str(refused.value)
    assert field[1] not in str(refused.value) or field[1] in ("a", "1")


@pytest.mark.parametrize("host", ["x" * 64 + "\u00fc.example", "\u00fc..example"])
def test_host_without_an_ascii_form_is_refused(host):
    with pytest.raises(ConfigError, match="invalid URL"):
        build_head("POST", f"https://{host}/", ())
