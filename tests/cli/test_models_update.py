"""`toolwire models update`: nothing is used without its hash, and everything can be reverted."""

import json
import threading
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tables import every_case
from toolwire import ModelClient
from toolwire.cli.main import main
from toolwire.ir.errors import ConfigError
from toolwire.net.model import saved_rows
from toolwire.wire.models.vendors import BUILTIN, find

DATE = "2026-11-19"


def rows(url="https://api.groq.com/openai/v2", **more):
    return json.dumps({"date": DATE, "vendors": [{"name": "groq", "base_url": url}], **more}).encode()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    saved_rows._use_file.cache_clear()
    yield tmp_path
    saved_rows._use_file.cache_clear()
    saved_rows.use_rows(None)


@contextmanager
def serving(status, data, headers=()):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/rows.json"
    finally:
        server.shutdown()
        server.server_close()


def run(capsys, *arguments):
    status = main(["models", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def in_use():
    """The base URL of a row that a new process would use."""
    saved_rows._use_file.cache_clear()
    client = ModelClient("groq/m", key="k")
    return client._endpoint.url(stream=False).removesuffix("/chat/completions")


def test_differences_are_shown_and_used_only_with_the_hash(home, capsys):
    data = rows()
    (home / "rows.json").write_bytes(data)
    digest = sha256(data).hexdigest()
    status, out, err = run(capsys, "update", str(home / "rows.json"))
    assert status == 1
    assert "vendor groq: base_url  (decides where keys are sent)" in out
    assert f"- {BUILTIN['groq'].base_url}\n  + https://api.groq.com/openai/v2" in out
    assert f"--sha256 {digest}" in err
    assert in_use() == BUILTIN["groq"].base_url
    assert run(capsys, "update", str(home / "rows.json"), "--sha256", "0" * 64)[0] == 2
    assert in_use() == BUILTIN["groq"].base_url
    assert run(capsys, "update", str(home / "rows.json"), "--sha256", digest.upper())[0] == 0
    assert in_use() == "https://api.groq.com/openai/v2"
    assert '"base_url": "https://api.groq.com/openai/v2"' in run(capsys, "--json")[1]


def test_updates_are_reverted_one_after_the_other(home, capsys):
    for number in (2, 3):
        data = rows(f"https://api.groq.com/openai/v{number}")
        (home / "rows.json").write_bytes(data)
        arguments = ("update", str(home / "rows.json"), "--sha256", sha256(data).hexdigest(), "--json")
        status, out, _ = run(capsys, *arguments)
        document = json.loads(out)
        assert (status, document["used"], len(document["changes"])) == (0, True, 1)
    for number in (3, 2):
        assert in_use() == f"https://api.groq.com/openai/v{number}"
        status, out, err = run(capsys, "update", "--revert")
        assert (status, f"- https://api.groq.com/openai/v{number}" in out, "reverted" in err) == (0, True, True)
    assert in_use() == BUILTIN["groq"].base_url
    status, _, err = run(capsys, "update", "--revert")
    assert (status, "nothing to revert" in err) == (2, True)


def test_url_is_fetched_and_its_hash_is_checked(capsys):
    data = rows()
    with serving(200, data) as url:
        status, _, err = run(capsys, "update", url)
        assert (status, f"{url} --sha256 {sha256(data).hexdigest()}" in err) == (1, True)
        assert run(capsys, "update", url, "--sha256", sha256(data).hexdigest())[0] == 0
    assert in_use() == "https://api.groq.com/openai/v2"


@every_case(
    ("status", "data", "headers", "words"),
    [
        (404, b"", (), "answered 404"),
        (302, b"", (("location", "https://elsewhere.example"),), "answered 302 .* redirects to"),
        (200, b"{", (), "not valid JSON"),
        (200, b"x" * (2 * 1024 * 1024 + 1), (), "exceeds 2097152 bytes"),
        (200, b'{"date": 5}', (), "not an update of rows"),
    ],
)
def test_url_without_usable_rows_is_explained(capsys, status, data, headers, words):
    import re

    with serving(status, data, headers) as url:
        code, _, err = run(capsys, "update", url)
    assert code == 2
    assert re.search(words, err), err


@every_case(
    ("arguments", "words"),
    [
        (("update",), "needs a file or a URL"),
        (("update", "http://example.com/rows.json"), "unencrypted"),
        (("update", "ftp://example.com/rows.json"), "must have the form http"),
        (("update", "http://127.0.0.1:9/rows.json"), "cannot fetch rows from http://127.0.0.1:9"),
        (("update", "/nonexistent"), "cannot read /nonexistent"),
        (("update", "/nonexistent", "--sha256", "xyz"), "64 hexadecimal digits"),
        (("openai", "--revert"), "need `update`"),
    ],
)
def test_wrong_usage_is_explained(capsys, arguments, words):
    status, _, err = run(capsys, *arguments)
    assert (status, words in err) == (2, True), err


def test_damaged_file_is_an_error_that_a_revert_repairs(home, capsys):
    file = home / "state" / "toolwire" / "models.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"{")
    saved_rows._use_file.cache_clear()
    with pytest.raises(ConfigError, match="models update --revert"):
        ModelClient("groq/m", key="k")
    assert run(capsys, "update", "--revert")[0] == 0
    assert in_use() == find("groq").base_url == BUILTIN["groq"].base_url
