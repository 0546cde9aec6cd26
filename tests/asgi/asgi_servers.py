"""Servers that run an application: our own, and others by their public interface."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest
import uvicorn

from toolwire.asgi.server import HttpServer
from toolwire.asgi.server_context import ServerContext

GRACE = 1.0  # seconds, as all of them get


async def serve_own(app, listener, stopped, **options):
    server = HttpServer(ServerContext(app, **options), grace=GRACE)
    serving = asyncio.ensure_future(server.serve([listener]))
    await stopped.wait()
    server.stop()
    await serving


async def serve_uvicorn(app, listener, stopped):
    config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1)
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


@contextmanager
def running(name, app, **options):
    """Run a server in a thread, and return its address. Its socket listens before the server has started."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    loop, stopped = asyncio.new_event_loop(), asyncio.Event()
    serving = SERVERS[name](app, listener, stopped, **options)
    thread = threading.Thread(target=lambda: loop.run_until_complete(serving), daemon=True)
    thread.start()
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()
