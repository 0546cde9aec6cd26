"""Random arguments survive the way through an HTTP request: the server decodes the values that the model gave."""

import asyncio
import json
import threading
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire import ToolError
from toolwire.openapi import toolbox

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SCALARS = st.one_of(TEXTS, st.integers(), st.booleans())
PATH_TEXTS = TEXTS.filter(lambda text: text.strip("/\\") and not {".", ".."} & {*text.replace("\\", "/").split("/")})
HEADER_TEXTS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=30)


def parameter(name, location, **more):
    return {"name": name, "in": location, "required": location == "path", "schema": {}, **more}


DOCUMENT = {
    "openapi": "3.1.0",
    "paths": {
        "/a/{id}/b/{list}": {
            "get": {
                "operationId": "read",
                "parameters": [
                    parameter("id", "path"),
                    parameter("list", "path"),
                    parameter("q", "query"),
                    parameter("many", "query"),
                    parameter("packed", "query", explode=False),
                    parameter("deep", "query", style="deepObject", explode=True),
                    parameter("json", "query", schema=None, content={"application/json": {"schema": {}}}),
                    parameter("X-Text", "header"),
                    parameter("session", "cookie"),
                ],
            }
        },
        "/form": {
            "post": {
                "operationId": "form",
                "requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}},
            }
        },
        "/parts": {
            "post": {
                "operationId": "parts",
                "requestBody": {"content": {"multipart/form-data": {"schema": {"type": "object"}}}},
            }
        },
    },
}
del DOCUMENT["paths"]["/a/{id}/b/{list}"]["get"]["parameters"][6]["schema"]


class _Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append((self.path, self.headers, body))
        self.send_response(204)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def api():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Recorder)
    server.daemon_threads = True
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    loop = asyncio.new_event_loop()
    box = toolbox(DOCUMENT, base_url=f"http://127.0.0.1:{server.server_port}/base")

    def call(name, arguments):
        result = loop.run_until_complete(box.find(name).function(**arguments))
        assert result is None
        return server.seen.pop()

    yield call
    loop.run_until_complete(box.aclose())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    server.shutdown()
    server.server_close()
    thread.join()


def written(value):
    return value if isinstance(value, str) else json.dumps(value)


def many_requests(check):
    ignored = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(max_examples=60, deadline=None, suppress_health_check=ignored)(check)


@pytest.mark.finding("X3")
@many_requests
@given(
    number=PATH_TEXTS,
    elements=st.lists(PATH_TEXTS, min_size=1, max_size=4),
    q=SCALARS,
    many=st.lists(SCALARS, max_size=4),
    packed=st.lists(TEXTS, min_size=1, max_size=4),
    deep=st.dictionaries(NAMES, SCALARS, max_size=4),
    value=st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)),
    header=HEADER_TEXTS,
    cookie=TEXTS,
)
def test_parameters_round_trip(api, number, elements, q, many, packed, deep, value, header, cookie):
    arguments = {"id": number, "list": elements, "q": q, "many": many, "packed": packed, "deep": deep, "json": value}
    target, headers, _ = api("read", {**arguments, "X-Text": header, "session": cookie})
    parts = urlsplit(target)
    base, a, first, b, second = parts.path.split("/")[1:]
    assert (base, a, b) == ("base", "a", "b")
    assert unquote(first) == number
    assert [unquote(element) for element in second.split(",")] == elements
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    fields = {}
    for name, text in pairs:
        fields.setdefault(name, []).append(text)
    assert fields["q"] == [written(q)]
    assert fields.get("many", []) == [written(element) for element in many]
    raw = dict(pair.partition("=")[::2] for pair in parts.query.split("&"))
    assert [unquote(element) for element in raw["packed"].split(",")] == packed
    assert [(name, text) for name, text in pairs if name.startswith("deep[")] == [
        (f"deep[{name}]", written(inner)) for name, inner in deep.items()
    ]
    assert json.loads(fields["json"][0]) == value
    assert headers["X-Text"] == header
    assert unquote(headers["Cookie"].removeprefix("session=")) == cookie


@many_requests
@given(fields=st.dictionaries(NAMES, st.one_of(SCALARS, st.lists(TEXTS, min_size=1, max_size=3)), max_size=5))
def test_forms_round_trip(api, fields):
    expected = [
        (name, written(element))
        for name, value in fields.items()
        for element in (value if isinstance(value, list) else [value])
    ]
    _, _, body = api("form", {"body": fields})
    assert parse_qsl(body.decode(), keep_blank_values=True) == expected


@many_requests
@given(fields=st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), TEXTS, min_size=1, max_size=5))
def test_multipart_round_trips(api, fields):
    _, headers, body = api("parts", {"body": fields})
    message = BytesParser(policy=HTTP).parsebytes(f"content-type: {headers['content-type']}\r\n\r\n".encode() + body)
    read = {part.get_param("name", header="content-disposition"): part for part in message.iter_parts()}
    assert list(read) == list(fields)
    assert body.count(b"content-disposition") >= len(fields)
    for name, text in fields.items():
        assert f'name="{name}"\r\n\r\n{text}\r\n--'.encode() in body


@many_requests
@given(text=st.text(st.sampled_from("./\\%2eE?#"), max_size=8))
def test_path_never_leaves_its_operation(api, text):
    """A server that decodes the path, and then resolves dot segments, still sees the same operation."""
    from posixpath import normpath

    try:
        target, _, _ = api("read", {"id": text, "list": "x"})
    except ToolError:
        return
    decoded = unquote(urlsplit(target).path).replace("\\", "/")
    assert normpath(decoded).startswith("/base/a/")
    assert normpath(decoded).endswith("/b/x")
    assert normpath(decoded) != "/base/a/b/x"
