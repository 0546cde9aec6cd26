"""Errors of a model's server name the address and the fix, and no secret."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from toolwire import Message, Request, Text
from toolwire.cli.main import main
from toolwire.ir.errors import ProtocolError, ToolwireError
from toolwire.ir.response import UpstreamError
from toolwire.net.model.client import ModelClient

KEY = "sk-secret-key-123"
PAGE = b"<html>not here</html>"
REQUEST = Request("m", (Message("user", (Text("hi"),)),))


@asynccontextmanager
async def answering(status, body=PAGE, content_type="text/html"):
    """Run a server that gives every request the same answer; the value is its base URL."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} -\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/wrong"


def refused(status, *, key=None, model="m", query="", **answer):
    """Return the error of a request, and the address of the server."""

    async def ask():
        async with answering(status, **answer) as url:
            async with ModelClient(model, base_url=url + query, key=key, retries=0) as client:
                with pytest.raises(ToolwireError) as caught:
                    await client.ask(REQUEST)
            return caught.value, url

    return asyncio.run(ask())


def test_status_without_a_message_names_the_address_and_the_fix():
    error, url = refused(404, query=f"?token={KEY}")
    assert error.message == f"{url}/chat/completions answered with HTTP 404"
    assert "check base_url=…" in error.hint
    assert KEY not in str(error)
    assert error.fault.message == "HTTP 404", "the address is not passed on to the clients of a gateway"


@pytest.mark.parametrize(
    ("key", "hint"), [(KEY, "check the key that you passed"), (None, "no key was sent to http://")]
)
@pytest.mark.parametrize("status", [401, 403])
def test_refused_key_names_its_source(status, key, hint):
    error, _ = refused(status, key=key)
    assert hint in error.hint
    assert KEY not in str(error)


def test_refused_key_of_the_environment_names_its_variable(monkeypatch):
    async def ask():
        async with answering(401, b'{"error": {"message": "Incorrect API key"}}', "application/json") as url:
            monkeypatch.setenv("OPENAI_BASE_URL", url)
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            async with ModelClient("openai/x", retries=0) as client:
                await client.ask(REQUEST)

    with pytest.raises(UpstreamError) as caught:
        asyncio.run(ask())
    assert str(caught.value) == "Incorrect API key (check the key in OPENAI_API_KEY)"


def test_web_page_with_status_200_is_a_wrong_address():
    error, url = refused(200)
    assert isinstance(error, ProtocolError)
    assert str(error) == f"{url}/chat/completions answered with a web page instead of JSON (check base_url=…)"


def test_server_failure_names_the_log():
    error, url = refused(500)
    assert (
        str(error) == f"{url}/chat/completions answered with HTTP 500 (see the log of the server, or try again later)"
    )


def test_overloaded_server_is_named_with_the_number_of_requests():
    error, url = refused(503, body=b'{"error": {"message": "too busy"}}', content_type="application/json")
    assert error.message == f"too busy ({url.removesuffix('/wrong')}, 1 request)"
    assert error.fault.message == "too busy", "the address is not passed on to the clients of a gateway"


def test_command_names_its_options(capsys):
    for extra in ([], ["--json"]):
        assert main(["run", "hi", "-m", "m", "--base-url", "http://127.0.0.1:9/v1", "--store", "none", *extra]) == 2
        captured = capsys.readouterr()
        assert "no connection to http://127.0.0.1:9" in captured.err
        assert "check that the server is running, and check --base-url" in captured.err
    assert "--base-url" in json.loads(captured.out)["message"]
