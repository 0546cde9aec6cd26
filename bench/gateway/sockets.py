"""Measure idle WebSockets of `toolwire serve`: errors, memory for each connection, and the answers of all of them afterwards.

    python bench/gateway/sockets.py                       2,000 connections to one worker
    python bench/gateway/sockets.py --connections 5000

Memory is the proportional set size of the gateway's processes, minus that of the same processes before, after a few
connections. The last step sends a request over each connection, with a key and a model that exist, and reads its response.
"""

import argparse
import asyncio
import json
import socket
import sys
import tempfile
import time
from pathlib import Path

from streams import SETTLE, WARM_UP, _memory, _process
from websockets.asyncio.client import ClientConnection, connect

from toolwire import Response, Text
from toolwire.ir.response import Stop, Usage
from toolwire.testing import Upstream

_AT_ONCE = 50  # handshakes, and requests
_ANSWER = Response(parts=(Text("Hello."),), stop=Stop("stop"), usage=Usage(3, 1))
_REQUEST = json.dumps({"type": "response.create", "model": "m", "input": "Hello?", "store": False})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=2000)
    options = parser.parse_args()
    json.dump(asyncio.run(_measure(options.connections)), sys.stdout, indent=2)
    print()


async def _measure(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        async with Upstream(*[_ANSWER] * (count + WARM_UP)) as upstream:
            settings = Path(folder, "toolwire.toml")
            settings.write_text(  # noqa: ASYNC240  # nothing else runs yet
                f'[upstreams.up]\nbase_url = "{upstream.url}"\nwire = "anthropic"\n[models.m]\nupstream = "up"\n'
                '[log]\nto = "nowhere"\n[limits]\nloop_delay = 60\n'
            )
            command = ("-m", "toolwire", "serve", "--config", str(settings), "--port", str(port))
            with _process(1, sys.executable, *command) as gateway:
                url = f"ws://127.0.0.1:{port}/v1/responses"
                await _wait_until_ready(port)
                warm = await _open(url, WARM_UP)
                await _ask_all(warm)
                before = _memory(gateway)
                began = time.monotonic()
                sockets = await _open(url, count)
                opened_in = time.monotonic() - began
                await asyncio.sleep(SETTLE)
                per_connection = (_memory(gateway) - before) / count
                answered = await _ask_all(sockets)
                await asyncio.gather(*[one.close() for one in (*warm, *sockets)])
    return {
        "connections": count,
        "errors": count - answered,
        "handshakes_per_second": round(count / opened_in),
        "kilobytes_per_connection": round(per_connection, 1),
    }


async def _wait_until_ready(port: int) -> None:
    for _ in range(300):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    sys.exit("the gateway does not start")


async def _open(url: str, count: int) -> list[ClientConnection]:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def open_one() -> ClientConnection:
        async with limit:
            return await connect(url, compression=None, ping_interval=None, proxy=None)

    return list(await asyncio.gather(*[open_one() for _ in range(count)]))


async def _ask_all(sockets: list[ClientConnection]) -> int:
    """Request a response over each connection, and return the number of those that were completed."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def ask(one: ClientConnection) -> bool:
        async with limit:
            await one.send(_REQUEST)
            while True:
                kind = json.loads(await one.recv())["type"]
                if kind in ("response.completed", "response.failed", "error"):
                    return kind == "response.completed"

    return sum(await asyncio.gather(*map(ask, sockets)))


if __name__ == "__main__":
    main()
