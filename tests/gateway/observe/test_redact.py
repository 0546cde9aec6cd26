"""Secrets out of text and out of logs."""

import io
import logging

import pytest

from tables import every_case
from toolwire.run.traces.redact import Redactor
from waiting import cpu_guard

KEYS = [
    "sk-abcdefgh12345678",
    "sk-ant-api03-abc_def-1234567890",
    "sk-tw-abcdefghijklmnopqrstuvwxyz",
    "AIzaSyA0123456789abcdefghijklmnop",
    "ghp_0123456789abcdefghij0123",
    "xoxb-1234567890-abcdef",
    "AKIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl",
    "gsk_0123456789abcdefghij",
]
SECRETS_IN_CONTEXT = [
    ("Authorization: Bearer {}", "abcdefgh12345"),
    ("bearer {}", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
    ("GET /v1beta/models?key={}&alt=sse", "hunter2hunter2"),
    ("x-api-key: {}", "hunter2hunter2"),
    ("{{'x-goog-api-key': '{}'}}", "hunter2hunter2"),
    ("redis://user:{}@host:6379/0", "pass-word"),
]
HARMLESS = [
    "task-force risk-free desk-bound",
    "the key is under the mat",
    "http://example.com:8080/v1/models",
    "a token of gratitude, bearer of news",
    "gpt-5.6-mini-2026-08-07",
    "0123456789abcdef01234567",
]


@pytest.mark.parametrize("key", KEYS)
def test_key_like_text_is_removed(key):
    assert Redactor()(f"say {key}, twice: {key}.") in (
        "say [removed], twice: [removed].",
        "say [removed], twice: [removed]",
    )


@pytest.mark.parametrize(("words", "secret"), SECRETS_IN_CONTEXT)
def test_value_named_as_a_secret_is_removed_and_its_name_is_kept(words, secret):
    cleaned = Redactor()(words.format(secret))
    assert secret not in cleaned
    assert cleaned == words.format("[removed]")


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_unchanged(text):
    assert Redactor()(text) == text


def test_known_secrets_are_removed_anywhere_in_the_text():
    redactor = Redactor(["correct horse", "short"], ["ACME-[0-9]+"])
    assert redactor("xcorrect horsex short ACME-12") == "x[removed]x short [removed]"
    redactor.add_secrets(["battery staple"])
    assert redactor("battery staple, correct horse") == "[removed], [removed]"
    assert redactor.with_secrets(["just for now"])("just for now") == "[removed]"
    assert redactor("just for now") == "just for now"


@pytest.fixture
def captured_log():
    """What somebody hears who listens to the root logger, and to the server's own, which may not tell the root."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    server = logging.getLogger("uvicorn.access")
    before, server.propagate = server.propagate, False
    for logger in (logging.getLogger(), server):
        logger.addHandler(handler)
    yield out
    for logger in (logging.getLogger(), server):
        logger.removeHandler(handler)
    server.propagate = before


def test_log_records_are_redacted_for_every_handler(captured_log):
    with Redactor(["correct horse"]).install():
        logging.getLogger("toolwire.made.later").warning("with %s and %s", "correct horse", "sk-0123456789")
        logging.getLogger("uvicorn.access").critical('"GET /v1/models?key=%s HTTP/1.1" 200', "hunter2hunter2")
    assert captured_log.getvalue() == 'with [removed] and [removed]\n"GET /v1/models?key=[removed] HTTP/1.1" 200\n'


def test_logger_with_its_own_handler_is_redacted_too():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    logger = logging.getLogger("toolwire.with.handler")
    logger.addHandler(handler)
    with Redactor(["correct horse"]).install():
        logger.warning("correct horse")
    logger.removeHandler(handler)
    assert out.getvalue() == "[removed]\n"
    assert logger.filters == []


@every_case(
    "text",
    [
        "-eyJ" * 100_000,
        "eyJabcdefgh." * 40_000,
        "api-key:" + " " * 400_000,
        "authorization: " * 30_000,
        "cookie" + " =" * 200_000,
        "bearer " * 60_000,
        "://a:" * 80_000,
        "://" + "a" * 400_000,
        "-----BEGIN PRIVATE KEY" * 20_000,
        "sk-" * 100_000,
        "the key to a token is at http://example.com/ " * 10_000,
    ],
    ids=lambda text: text[:9],
)
def test_redaction_is_fast_for_hostile_text(text):
    with cpu_guard():
        Redactor(["correct horse"])(text)


def fail():
    try:
        raise KeyError("the words of a prompt")
    except KeyError as error:
        raise ValueError("more of them") from error


def log_failure():
    try:
        fail()
    except ValueError:
        logging.getLogger("toolwire.gateway").exception("it failed")


def test_logged_exceptions_have_type_and_location_but_no_message(captured_log):
    with Redactor().install():
        log_failure()
    said = captured_log.getvalue()
    assert "it failed" in said
    assert "builtins.KeyError" in said
    assert "builtins.ValueError" in said
    assert "test_redact.py" in said
    assert "words of a prompt\n" not in said
    assert "KeyError: " not in said


def test_log_redaction_ends_with_its_context(captured_log):
    with Redactor(["correct horse"]).install():
        pass
    logging.getLogger("toolwire.x").warning("correct horse")
    assert captured_log.getvalue() == "correct horse\n"


def test_secret_that_begins_with_a_temporary_secret_is_removed_whole():
    redactor = Redactor(["access-token-and-more"])
    redactor.add_temporary_secret("access-token")
    redactor.add_temporary_secret("access-token-2")
    assert redactor("x access-token-and-more access-token-2 access-token") == "x [removed] [removed] [removed]"
