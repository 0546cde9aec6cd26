"""Keys of commands that an upstream refuses: they are renewed once, and held bodies are sent again."""

import json
import sys

import pytest

from gateway_client import send
from hostile import run
from relay_upstream import document, relay_upstream
from serving import serving

COMMAND = (
    "import pathlib, sys\n"
    "log = pathlib.Path(sys.argv[1])\n"
    "log.write_text((log.read_text() if log.exists() else '') + 'x')\n"
    "print(f'key-number-{len(log.read_text())}-0123456789')\n"
)
FORM = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\na/m\r\n%b--b--\r\n'
FILE = b'--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n%b\r\n'
REFUSED = document({"error": {"message": "expired", "type": "invalid_request_error"}}, 401)


class Server:
    """Accepts the keys with these numbers."""

    def __init__(self, *accepted):
        self.accepted = accepted
        self.keys = []

    def __call__(self, received):
        number = int(received.headers["authorization"].split("-")[2])
        self.keys.append(number)
        return document({"id": "object-1", "size": len(received.body)}) if number in self.accepted else REFUSED


async def ask(server, tmp_path, path, body, content_type="application/json", retries=0, times=1):
    """Send a request, and repeat it. Return the statuses, the last answer, and the bodies at the upstream."""
    async with relay_upstream(server) as upstream:
        command = [sys.executable, "-c", COMMAND, str(tmp_path / "log")]
        row = {"base_url": upstream.url, "wire": "openai_chat", "retries": retries, "key_command": command}
        store = {"store": str(tmp_path / "objects.db")}
        settings = {"upstreams": {"a": row}, "responses": store, "limits": {"stream_body": 10_000}}
        async with serving(settings) as gateway:
            headers = {"content-type": content_type}
            answers = [await send("POST", gateway.url + path, body, headers) for _ in range(times)]
            statuses = [status for status, _, _ in answers]
            return statuses, json.loads(answers[-1][2]), [received.body for received in upstream.requests]


@pytest.mark.parametrize(
    ("path", "body", "content_type"),
    [
        ("/v1/completions", b'{"model":"m","prompt":"p"}', "application/json"),
        ("/v1/batches", b'{"endpoint":"/v1/completions"}', "application/json"),
        ("/v1/audio/transcriptions", FORM % (FILE % b"wave"), "multipart/form-data; boundary=b"),
    ],
)
@run
async def test_refused_key_is_renewed_and_the_held_body_sent_again(path, body, content_type, tmp_path):
    body, server = body.replace(b'"m"', b'"a/m"'), Server(2)
    statuses, _, bodies = await ask(server, tmp_path, path, body, content_type)
    assert (statuses, server.keys) == ([200], [1, 2])
    assert bodies == [body.replace(b"a/m", b"m")] * 2


@run
async def test_key_is_renewed_once_only(tmp_path):
    server = Server()
    statuses, answer, _ = await ask(server, tmp_path, "/v1/completions", b'{"model":"a/m"}', retries=2)
    assert (statuses, server.keys) == ([502], [1, 2])
    assert "key-number" not in json.dumps(answer)


@run
async def test_body_that_was_sent_on_is_not_sent_again(tmp_path):
    """The next request has the new key."""
    server, body = Server(2), FORM % (FILE % (b"\0" * 300_000))
    form = "multipart/form-data; boundary=b"
    statuses, _, _ = await ask(server, tmp_path, "/v1/audio/transcriptions", body, form, times=2)
    assert (statuses, server.keys) == ([502, 200], [1, 2])
