"""The redirect at the end of a login: only the one with the right state ends the wait."""

import asyncio
import webbrowser

import pytest

from hostile import run
from toolwire.mcp.client.login import Browser

OTHERS = (
    "GET /callback HTTP/1.1",
    "GET /callback?code=evil HTTP/1.1",
    "GET /callback?code=evil&state=wrong HTTP/1.1",
    "GET /callback?code=evil&state=right&state=wrong HTTP/1.1",
    "GET /callback?error=access_denied HTTP/1.1",
    "GET /favicon.ico?state=right HTTP/1.1",
    "POST /callback?code=evil&state=right HTTP/1.1",
    "",
    "x" * 100_000,
)


async def request(port, line):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{line}\r\nhost: localhost\r\n\r\n".encode())
    try:
        return await reader.readline()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.finding("Z25")
@run
async def test_only_the_redirect_with_the_state_ends_a_login(monkeypatch):
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    opened = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(webbrowser, "open", lambda _: loop.call_soon_threadsafe(opened.set))
    browser = Browser(f"http://127.0.0.1:{port}/callback")
    login = asyncio.ensure_future(browser("https://login.example.com/authorize?client_id=us&state=right"))
    await opened.wait()
    for line in OTHERS:
        assert b"200" not in await request(port, line)
        assert not login.done()
    assert b"200" in await request(port, "GET /callback?code=c0&state=right HTTP/1.1")
    assert await login == "/callback?code=c0&state=right"
