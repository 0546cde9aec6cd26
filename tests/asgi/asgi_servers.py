"""Servers that run an application: our own, and others by their public interface."""

import asyncio
import socket
import threading
from contextlib import contextmanager
from functools import partial

import pytest
import uvicorn

from toolwire.asgi.server import HttpServer
from toolwire.asgi.server_context import ServerContext
from toolwire.asgi.websocket import open_websocket

GRACE = 1.0  # seconds, as all of them get


async def serve_own(app, listener, stopped, **options):
    server = HttpServer(ServerContext(app, **options), grace=GRACE)
    serving = asyncio.ensure_future(server.serve([listener]))
    await stopped.wait()
    server.stop()
    await serving


async def serve_uvicorn(app, listener, stopped, ws="none"):
    config = uvicorn.Config(app, log_config=None, ws=ws, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve([listener]))
    await stopped.wait()
    server.should_exit = True
    await serving


async def serve_hypercorn(app, listener, stopped):
    hypercorn = pytest.importorskip("hypercorn.asyncio")
    config = pytest.importorskip("hypercorn.config").Config()
    config.bind = [f"fd://{listener.fileno()}"]
    config.graceful_timeout = GRACE
    config.errorlog = None
    await hypercorn.serve(app, config, shutdown_trigger=stopped.wait)
    listener.detach()  # the server has closed it


SERVERS = {"own": serve_own, "uvicorn": serve_uvicorn, "hypercorn": serve_hypercorn}
WEBSOCKET_SERVERS = {
    "own": partial(serve_own, upgrade=open_websocket),
    "uvicorn with websockets": partial(serve_uvicorn, ws="websockets-sansio"),
    "uvicorn with wsproto": partial(serve_uvicorn, ws="wsproto"),
    "hypercorn": serve_hypercorn,
}


@contextmanager
def running(name, app, servers=SERVERS, **options):
    """Run a server in a thread, and return its address. Its socket listens before the server has started."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    loop, stopped = asyncio.new_event_loop(), asyncio.Event()
    serving = servers[name](app, listener, stopped, **options)

    def run():
        loop.run_until_complete(serving)
        loop.run_until_complete(loop.shutdown_asyncgens())  # aborts the connections of HTTP clients
        loop.run_until_complete(asyncio.sleep(0))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()
