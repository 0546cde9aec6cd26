"""A gateway in a process of its own, as `toolwire serve` runs it. Prints its port, and on SIGUSR1 how many tasks it has."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path

import uvloop

from toolwire.gateway.app import Gateway
from toolwire.gateway.serve import bind, serve
from toolwire.gateway.settings_file import load_settings


async def main(path: Path) -> None:
    settings = load_settings(path)
    kinds: Counter[str] = Counter()
    gateway = Gateway(settings, environment={}, sinks=[lambda turn: kinds.update([f"{turn.status} {turn.error}"])])
    listener = bind(settings, port=0)

    def tell() -> None:
        print(json.dumps({"tasks": len(asyncio.all_tasks()), "turns": kinds}), flush=True)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
    await serve(gateway, settings, listener, ready=lambda: print(listener.getsockname()[1], flush=True))


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
