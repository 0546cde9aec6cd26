"""The parent process of `toolwire serve --workers N`."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ..ir.errors import ConfigError
from .request_table import TableLogHandler

if TYPE_CHECKING:
    from ..gateway.observe.line_lock import LineLock
    from ..gateway.settings import Settings

__all__ = ["load_secret", "open_line_lock", "print_banner", "run_workers"]


async def run_workers(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the workers until a signal, and return an exit code. They share a folder, which is deleted at the end."""
    from ..gateway.observe.telemetry import open_telemetry
    from ..gateway.serve import bind
    from ..gateway.worker_process import share_secret
    from ..gateway.workers import WorkerPool

    _check(settings)
    log_handler = None if arguments.quiet else TableLogHandler()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="toolwire-", ignore_cleanup_errors=True)))
        telemetry = open_telemetry(
            _without_requests(settings),
            os.environ,
            lines=arguments.quiet,
            log_handler=log_handler,
            line_lock=open_line_lock(folder),
        )
        stack.push_async_callback(telemetry.aclose)
        share_secret(folder, load_secret(arguments, settings))
        listener = bind(settings, port=arguments.port)
        stack.callback(listener.close)
        pool = WorkerPool(
            _worker_command(arguments),
            os.environ,
            listener,
            folder,
            count=settings.server.workers,
            drain=settings.server.drain,
            heartbeat=settings.server.heartbeat,
            on_reload=telemetry.reopen,
            requires_key=bool(settings.keys),
        )
        return await pool.run(print_banner)


def open_line_lock(folder: Path) -> LineLock:
    """Open the lock of the workers and their parent for lines on standard error."""
    from ..gateway.observe.line_lock import LineLock

    return LineLock(folder / "lines")


def load_secret(arguments: argparse.Namespace, settings: Settings, new_secret: str | None = None) -> str:
    """Return the secret for settings without one: of the file beside them, which is made if they need it.

    `new_secret` is the one to use if there is no file.
    """
    from ..gateway.server_secret import load_file_secret, make_secret

    has_secret = settings.server.secret is not None or settings.server.secret_env is not None
    if has_secret or arguments.config is None:
        return new_secret or make_secret()
    return load_file_secret(Path(arguments.config), new_secret)


def print_banner(banner: str) -> None:
    print(banner, end="\n\n", flush=True)


def _check(settings: Settings) -> None:
    """Refuse settings with which several workers would behave differently from one process."""
    from ..gateway.settings_rules import SHARED_STATE_HINT
    from ..gateway.shared.state import state_address

    if state_address(settings, os.environ) is None:
        message = f"{settings.server.workers} workers need a state to share limits, turns and cooldowns"
        raise ConfigError(message, hint=SHARED_STATE_HINT)
    if any(row.publish for row in settings.tools.values()):
        message = "[tools] publish needs one worker, because a session of an MCP client belongs to one process"
        raise ConfigError(message, hint="remove publish and run `toolwire mcp serve`, or use one worker")


def _without_requests(settings: Settings) -> Settings:
    """Return the settings for the parent, which logs the ends of workers, but has no requests to trace or record."""
    from msgspec.structs import replace

    from ..gateway.settings import TraceRow

    return replace(settings, trace=TraceRow(otel=False), log=replace(settings.log, bodies=False))


def _worker_command(arguments: argparse.Namespace) -> list[str]:
    """Return the command of a worker: this one, in the same interpreter, with the same folders to import from."""
    is_module = getattr(sys.modules["__main__"], "__spec__", None) is not None  # python -m toolwire
    flags = [] if is_module and not sys.flags.safe_path else ["-P"]
    command = [sys.executable, *flags, "-m", "toolwire", "serve"]
    for option in ("config", "host", "port", "workers"):
        value = getattr(arguments, option)
        command += [] if value is None else [f"--{option}", str(value)]
    return command + [f"--{option}" for option in ("demo", "quiet", "strict") if getattr(arguments, option)]
