"""The console's API: access, errors, limits and the page's files, in this process."""

import asyncio
import gzip
import json
import threading
import webbrowser
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import httpx
import jsonschema_rs
import pytest

from tables import every_case
from toolwire.cli.console import _browser, _open_page, bind_console, console_address, console_in_thread
from toolwire.cli.mcp.http import serve_listeners
from toolwire.gateway.console import app as app_module
from toolwire.gateway.console.api import MAX_BODY, OPERATIONS, check_file, openapi_bytes
from toolwire.gateway.console.app import Console
from toolwire.gateway.console.messages import OpenedFile
from toolwire.gateway.console.samples import samples
from toolwire.gateway.console.static_files import POLICY, static_files
from toolwire.ir.errors import ConfigError
from waiting import SAFETY, until, wait_until

TOKEN = "a-token-of-a-test"
HOST = "127.0.0.1:4150"
KEY = {"authorization": f"Bearer {TOKEN}"}
TRANSLATE = {"input": '{"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}'}
VIEWS = {"translate": "/api/translate", "stream": "/api/stream", "text": "/api/text", "tools": "/api/tools"}


def open_client(console=None):
    transport = httpx.ASGITransport(app=console or Console(TOKEN))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}")


def ask(method, path, *, console=None, headers=KEY, **options):
    """Return the answer to one request."""

    async def send():
        async with open_client(console) as client:
            return await client.request(method, path, headers=headers, **options)

    return asyncio.run(send())


def error_of(answer):
    """Return the error of an answer, after a check of its form."""
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert document.keys() == {"error"} and document["error"].keys() == {"type", "code", "message", "pointer", "hint"}
    assert document["error"]["message"]
    return document["error"]


@every_case(
    "headers, status",
    [
        ({}, 401),
        ({"authorization": ""}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"cookie": f"token={TOKEN}"}, 401),
        (KEY, 200),
        ({**KEY, "host": "127.0.0.1:1"}, 200),
        ({**KEY, "host": "localhost:4150"}, 200),
        ({**KEY, "host": "[::1]:4150"}, 200),
        ({**KEY, "host": "evil.example"}, 403),
        ({**KEY, "host": "127.0.0.1.evil.example:4150"}, 403),
        ({**KEY, "host": ""}, 403),
        ({**KEY, "origin": f"http://{HOST}"}, 200),
        ({**KEY, "origin": "http://127.0.0.1:3000"}, 403),
        ({**KEY, "origin": "http://localhost:4150"}, 403),
        ({**KEY, "origin": f"https://{HOST}"}, 403),
        ({**KEY, "origin": "null"}, 403),
        ({**KEY, "origin": "http://evil.example"}, 403),
    ],
)
def test_api_requires_the_token_and_its_own_origin(headers, status):
    answer = ask("GET", "/api/meta", headers=headers)
    assert answer.status_code == status
    if status != 200:
        assert TOKEN not in answer.text
        assert error_of(answer)["type"] == "AccessDenied"
    assert answer.headers["cache-control"] == "no-store"
    assert "set-cookie" not in answer.headers


@every_case("path", ["/", "/static/app.js", "/openapi.json", "/csp-report"])
def test_page_needs_no_token_but_a_known_host_and_origin(path):
    method = "POST" if path == "/csp-report" else "GET"
    body = {"content": b"{}"} if method == "POST" else {}
    assert ask(method, path, headers={}, **body).status_code in (200, 204)
    assert ask(method, path, headers={"host": "evil.example"}, **body).status_code == 403
    assert ask(method, path, headers={"origin": "http://evil.example"}, **body).status_code == 403


def test_repeated_headers_are_refused():
    answer = ask("GET", "/api/meta", headers=[("authorization", KEY["authorization"]), ("authorization", "Bearer x")])
    assert answer.status_code == 400
    assert error_of(answer)["type"] == "AccessDenied"


def test_connection_of_another_machine_is_refused():
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "http_version": "1.1",
        "headers": [(b"host", b"localhost")],
        "server": ("192.0.2.5", 4150),
        "client": ("192.0.2.9", 1),
    }
    asyncio.run(Console(TOKEN)(scope, receive, send))
    assert sent[0]["status"] == 403


@every_case(
    "path, body, status, kind",
    [
        ("/api/translate", b"", 400, "ProtocolError"),
        ("/api/translate", b"{", 400, "ProtocolError"),
        ("/api/translate", b"[]", 400, "ProtocolError"),
        ("/api/translate", b"[" * 100_000, 400, "ProtocolError"),
        ("/api/translate", b'{"input": "x", "input": "y"}', 400, "ProtocolError"),
        ("/api/translate", b'{"input": "\xff"}', 400, "ProtocolError"),
        ("/api/translate", {}, 400, "ProtocolError"),
        ("/api/translate", {"input": 1}, 400, "ProtocolError"),
        ("/api/translate", {"input": "{}", "inptu": ""}, 400, "ProtocolError"),
        ("/api/translate", {"input": ""}, 400, "ConfigError"),
        ("/api/translate", {"input": "plain words"}, 400, "ProtocolError"),
        ("/api/translate", {"input": "[" * 100_000}, 400, "ProtocolError"),
        ("/api/translate", {**TRANSLATE, "source": "nonesuch"}, 400, "ConfigError"),
        ("/api/translate", {**TRANSLATE, "kind": "nonesuch"}, 400, "ConfigError"),
        ("/api/translate", {**TRANSLATE, "targets": ["nonesuch"]}, 400, "ConfigError"),
        ("/api/translate", {**TRANSLATE, "format": "hermes", "source": "gemini"}, 400, "ConfigError"),
        ("/api/translate", {**TRANSLATE, "tools": "no tools"}, 400, "ProtocolError"),
        ("/api/translate", b'{"input": "\\ud800"}', 400, "ProtocolError"),
        ("/api/stream", TRANSLATE, 400, "ConfigError"),
        ("/api/stream", {"input": "data: {}\n\n", "source": "anthropic", "every": 0}, 400, "ConfigError"),
        ("/api/stream", {"input": "data: {}\n\n", "source": "anthropic", "end": -1}, 400, "ConfigError"),
        ("/api/stream", {"input": "data: {}\n\n", "source": "anthropic", "cuts": [-1]}, 400, "ConfigError"),
        ("/api/stream", {"input": "data: {}\n\n", "source": "anthropic", "cuts": [1], "every": 1}, 400, "ConfigError"),
        ("/api/stream", {"input": "", "source": "anthropic", "targets": ["x"]}, 400, "ConfigError"),
        ("/api/text", {"input": " "}, 400, "ConfigError"),
        ("/api/text", {"input": "x", "format": "nonesuch"}, 400, "ConfigError"),
        ("/api/tools", {"input": "{}"}, 400, "ProtocolError"),
        ("/api/tools", {"input": "[]"}, 400, "ProtocolError"),
        ("/api/tools", {"input": '{"tools": []}', "source": "mcp"}, 400, "ProtocolError"),
        ("/api/tools", {"input": '{"tools": []}', "source": "nonesuch"}, 400, "ConfigError"),
        ("/api/snippet", {"language": "perl", "wire": "gemini", "document": "{}"}, 400, "ProtocolError"),
        ("/api/snippet", {"language": "curl", "wire": "nonesuch", "document": "{}"}, 400, "ConfigError"),
        ("/api/snippet", {"language": "curl", "wire": "gemini", "document": "[]"}, 400, "ProtocolError"),
        (
            "/api/snippet",
            {"language": "curl", "wire": "gemini", "document": "{}", "url": "file:///x"},
            400,
            "ConfigError",
        ),
        ("/api/nonesuch", {}, 404, "NotFound"),
    ],
)
def test_bad_request_has_a_typed_error(path, body, status, kind):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = ask("POST", path, headers={**KEY, "content-type": "application/json"}, content=content)
    assert (answer.status_code, error_of(answer)["type"]) == (status, kind)


@every_case(
    "method, path, allowed", [("GET", "/api/translate", "POST"), ("POST", "/api/meta", "GET"), ("PUT", "/", "GET")]
)
def test_other_method_is_refused_with_the_right_one(method, path, allowed):
    answer = ask(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"].startswith(allowed)
    error_of(answer)


def test_other_content_type_is_refused():
    """A form of another page could be sent without a preflight request."""
    answer = ask("POST", "/api/translate", content=b"{}", headers={**KEY, "content-type": "text/plain"})
    assert answer.status_code == 415
    error_of(answer)


def test_body_above_the_limit_is_refused():
    headers = {**KEY, "content-type": "application/json"}
    answer = ask("POST", "/api/translate", headers={**headers, "content-length": str(MAX_BODY + 1)}, content=b"{}")
    assert answer.status_code == 413
    assert "limit" in error_of(answer)["message"]

    async def pieces():
        for _ in range(MAX_BODY // 1_000_000 + 2):
            yield bytes(1_000_000)

    assert ask("POST", "/api/translate", headers=headers, content=pieces()).status_code == 413


def test_internal_error_is_a_document_without_details(monkeypatch, caplog):
    def fail(request):
        raise RuntimeError("a secret detail")

    monkeypatch.setitem(OPERATIONS, "/api/translate", OPERATIONS["/api/translate"]._replace(run=fail))
    answer = ask("POST", "/api/translate", json=TRANSLATE)
    assert answer.status_code == 500
    assert "secret" not in json.dumps(error_of(answer))
    assert "failed" in caplog.text


def test_answers_fit_the_openapi_document():
    """The document is made from the types that decode and encode; the answers of the examples fit it."""
    document = json.loads(openapi_bytes())
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {*OPERATIONS, "/api/meta", "/api/csp-reports"}
    schemas = {"$defs": document["components"]["schemas"]}
    text = json.dumps(schemas).replace("#/components/schemas/", "#/$defs/")
    root = json.loads(text)
    jsonschema_rs.meta.validate({**root, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    validators = {
        name: jsonschema_rs.validator_for({**root, "$ref": f"#/$defs/{name}"})
        for name in document["components"]["schemas"]
    }
    assert ask("GET", "/openapi.json", headers={}).json() == document
    validators["MetaAnswer"].validate(ask("GET", "/api/meta").json())
    validators["ErrorAnswer"].validate(ask("GET", "/api/meta", headers={}).json())
    validators["ReportsAnswer"].validate(ask("GET", "/api/csp-reports").json())
    for sample in samples():
        path = VIEWS[sample.view]
        body = {"input": sample.input}
        answer = ask("POST", path, json=body)
        assert answer.status_code == 200, answer.text
        operation = document["paths"][path]["post"]
        name = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        validators[name].validate(answer.json())
        request = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        validators[request].validate(body)
        assert not validators[request].is_valid({**body, "unknown": 1})


def test_meta_has_the_opened_file_and_every_sample_is_readable():
    console = Console(TOKEN, OpenedFile("a.json", "{}"))
    meta = ask("GET", "/api/meta", console=console).json()
    assert meta["file"] == {"name": "a.json", "text": "{}"}
    assert meta["limits"]["body_bytes"] == MAX_BODY
    assert {sample["view"] for sample in meta["samples"]} == set(VIEWS)
    assert all(form["example"] for form in meta["formats"])


def test_files_have_hashes_types_and_headers():
    for name, file in static_files().items():
        path = f"/static/{name}"
        answer = ask("GET", path, headers={"accept-encoding": "identity"})
        assert (answer.status_code, answer.content) == (200, file.body)
        assert answer.headers["etag"] == f'"{file.hash}"' == f'"{sha256(file.body).hexdigest()[:16]}"'
        assert answer.headers["cache-control"] == "no-cache"
    answer = ask("GET", "/", headers={})
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY and "*" not in POLICY
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_files_are_compressed_and_cached_by_hash():
    file = static_files()["app.js"]
    fixed = ask("GET", f"/static/app.js?v={file.hash}", headers={"accept-encoding": "gzip;q=1.0"})
    assert fixed.headers["content-encoding"] == "gzip" and fixed.content == file.body
    assert gzip.decompress(file.zipped) == file.body
    assert "immutable" in fixed.headers["cache-control"]
    old = ask("GET", "/static/app.js?v=0123", headers={})
    assert old.headers["cache-control"] == "no-cache"
    same = ask("GET", "/static/app.js", headers={"if-none-match": f'"x", W/"{file.hash}"'})
    assert (same.status_code, same.content) == (304, b"")


@every_case(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/", "/static", "/index.html", "/static//app.js", "/a"],
)
def test_no_other_file_is_served(path):
    assert ask("GET", path, headers={}).status_code == 404


def test_policy_reports_are_counted_and_bounded():
    console = Console(TOKEN)

    async def report():
        async with open_client(console) as client:
            for number in range(30):
                await client.post("/csp-report", content=json.dumps({"csp-report": {"n": number}}))
            await client.post("/csp-report", content=b"no JSON")
            large = await client.post("/csp-report", content=bytes(20_000))
            return large, (await client.get("/api/csp-reports", headers=KEY)).json()

    large, found = asyncio.run(report())
    assert large.status_code == 413
    assert found["count"] == 31
    assert len(found["reports"]) == 20


def test_large_work_leaves_the_event_loop_and_is_bounded(monkeypatch):
    """Requests wait in threads while the page is served; the request above the bound is refused."""
    started, finish = threading.Semaphore(0), threading.Event()
    plain = OPERATIONS["/api/translate"].run

    def wait(request):
        started.release()
        assert finish.wait(SAFETY)
        return plain(request)

    monkeypatch.setitem(OPERATIONS, "/api/translate", OPERATIONS["/api/translate"]._replace(run=wait))
    console = Console(TOKEN)

    async def overload():
        async with open_client(console) as client:
            sent = [
                asyncio.ensure_future(client.post("/api/translate", json=TRANSLATE, headers=KEY))
                for _ in range(app_module._MAX_REQUESTS)
            ]
            await asyncio.to_thread(started.acquire)
            await until(lambda: console._admission.in_flight == app_module._MAX_REQUESTS)
            page = await client.get("/")
            refused = await client.post("/api/translate", json=TRANSLATE, headers=KEY)
            assert not any(task.done() for task in sent)
            finish.set()
            return page, refused, await asyncio.gather(*sent)

    page, refused, answers = asyncio.run(asyncio.wait_for(overload(), SAFETY))
    assert page.status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert {answer.status_code for answer in answers} == {200}


@every_case("host", ["0.0.0.0", "192.0.2.5", "", "::", "[::]", "example.com"])
def test_console_listens_on_loopback_only(host):
    with pytest.raises(ConfigError, match="user accounts"):
        bind_console(host, 0)


def test_ports_are_checked_and_another_one_is_found():
    with pytest.raises(ConfigError, match="invalid port"):
        bind_console("127.0.0.1", 70_000)
    with bind_console("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match="choose another --port"):
            bind_console("127.0.0.1", port)
    with bind_console("127.0.0.1", None) as first, bind_console("127.0.0.1", None) as second:
        assert first.getsockname() != second.getsockname()


def test_console_serves_on_a_socket():
    with bind_console("127.0.0.1", 0) as listener:
        address = console_address(listener, TOKEN, has_file=True)
        assert address.endswith(f"/#token={TOKEN}&open=file")

        async def serve():
            serving = asyncio.ensure_future(serve_listeners(Console(TOKEN), [listener]))
            async with httpx.AsyncClient(timeout=SAFETY) as client:
                answer = await client.get(address.partition("#")[0] + "api/meta", headers=KEY)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            return answer

        assert asyncio.run(serve()).status_code == 200


def test_browser_gets_the_address_from_a_private_file(monkeypatch):
    """The arguments of a process are readable by other users."""
    opened = []

    def open_page(url):
        path = Path(url.removeprefix("file://"))
        opened.append((path, path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777))
        return True

    monkeypatch.setattr(webbrowser, "get", lambda: SimpleNamespace(open=open_page))
    with _browser("http://127.0.0.1:1/#token=x&open=file"):
        ((path, text, mode),) = opened
        assert 'url=http://127.0.0.1:1/#token=x&amp;open=file"' in text
        assert "token" not in str(path) and mode == 0o600
    assert not path.exists()


@pytest.mark.parametrize("kind", [webbrowser.GenericBrowser, webbrowser.BackgroundBrowser])
def test_text_browser_is_not_started(kind, tmp_path, monkeypatch, capsys):
    """It would take the terminal: by its own name, and as the system's `www-browser`."""
    program = tmp_path / "w3m"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n", encoding="utf-8")
    program.chmod(0o700)
    (tmp_path / "www-browser").symlink_to(program)
    for name in ("w3m", "www-browser"):
        monkeypatch.setattr(webbrowser, "get", lambda name=name: kind(str(tmp_path / name)))
        with _browser("http://127.0.0.1:1/#token=x"):
            assert "open the address yourself" in capsys.readouterr().err
    assert not (tmp_path / "started").exists()


def test_another_program_as_browser_gets_no_terminal(tmp_path, monkeypatch):
    """The console serves while the program runs, which may be for as long as its window is open."""
    program = tmp_path / "viewer"
    program.write_text(f'#!/bin/sh\nread line; echo "$line:$1" > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/seen\n')
    program.chmod(0o700)
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser(str(program)))
    assert _open_page("file:///page.html")
    wait_until((tmp_path / "seen").exists)
    assert (tmp_path / "seen").read_text() == ":file:///page.html\n"
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser(str(tmp_path / "none")))
    assert not _open_page("file:///page.html")


def test_console_in_a_thread_ends_with_its_block():
    with console_in_thread() as address:
        token = address.partition("#token=")[2]
        assert len(token) >= 40
        answer = httpx.get(address.partition("#")[0] + "api/meta", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(address.partition("#")[0])


def test_file_above_the_limit_is_refused():
    assert check_file("a", b"\xff").text == "�"
    assert check_file("\udcff.json", b"").name == "?.json"  # a file name that is not UTF-8
    with pytest.raises(ConfigError, match="opens at most"):
        check_file("a", bytes(MAX_BODY // 2 + 1))
