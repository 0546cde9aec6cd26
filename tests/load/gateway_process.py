"""`toolwire serve` in a process of its own. On SIGUSR1 it prints the number of its tasks."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

from toolwire.cli.main import main
from toolwire.gateway.processes import server


def _tell() -> None:
    print(json.dumps({"tasks": len(asyncio.all_tasks())}), flush=True)


_serve = server.serve


async def _serve_and_tell(*args: Any, **options: Any) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _tell)
    await _serve(*args, **options)


if __name__ == "__main__":
    server.serve = _serve_and_tell
    sys.exit(main(["serve", "--quiet", "--port", "0", "--config", sys.argv[1]]))
