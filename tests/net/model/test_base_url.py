"""Messages about invalid base URLs: they name the problem and the value, without its secrets."""

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.net.http.head import parse_base_url


@pytest.mark.parametrize("url", ["127.0.0.1:9555", "localhost:8000/v1", "api.example.com/v1", "", "https://a b.com"])
def test_wrong_beginning_is_shown_with_both_schemes(url):
    with pytest.raises(ConfigError) as error:
        parse_base_url(url, insecure=False)
    assert "must begin with https://, or with http:// on this machine" in error.value.message
    assert error.value.message.endswith(f"got {url!r}")
    assert "http://127.0.0.1:8000/v1" in error.value.hint


@pytest.mark.parametrize("url", ["ftp://example.com", "https://", "https://example.com#part"])
def test_wrong_form_is_shown(url):
    with pytest.raises(ConfigError, match="must have the form") as error:
        parse_base_url(url, insecure=False)
    assert error.value.message.endswith(f"got {url!r}")


@pytest.mark.parametrize(
    "url",
    [
        "me:geheim@example.com",
        "ftp://me:geheim@example.com",
        "https://me:geheim @example.com",
        "me:x?geheim@example.com",
        "example.com?key=geheim",
        "sk-geheim0123456789",
    ],
)
def test_secrets_are_not_shown(url):
    with pytest.raises(ConfigError) as error:
        parse_base_url(url, insecure=False)
    assert "geheim" not in str(error.value)


def test_long_value_is_shortened():
    with pytest.raises(ConfigError) as error:
        parse_base_url("x" * 10_000, insecure=False)
    assert len(error.value.message) < 250
