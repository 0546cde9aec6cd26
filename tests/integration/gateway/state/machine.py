"""One gateway in a process of its own: `machine.py SETTINGS.toml`. It prints its port, and ends on SIGTERM."""

import asyncio
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import uvicorn

from toolwire.gateway.app import Gateway
from toolwire.gateway.settings import load
from toolwire.gateway.state import open_state


class Server(uvicorn.Server):
    def capture_signals(self):
        return nullcontext()  # uvicorn's own would end the process before the usage is written

    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


async def main(path):
    settings = load(Path(path))
    state = open_state(settings, os.environ)
    gateway = Gateway(settings, limiter=state.limiter, memory=state.memory, sinks=state.sinks)
    server = Server(uvicorn.Config(gateway, port=0, log_level="error", ws="none", timeout_graceful_shutdown=5))

    def stop():
        gateway.drain()
        server.should_exit = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await server.serve()
    await state.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
