"""`toolwire serve`: run the gateway, in this process or in workers (`--workers N`)."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...gateway.processes.worker_process import WorkerProcess, share_secret
from ...ir.errors import ConfigError
from ..terminal.options import CONFIG, add_command, add_config, add_flag, require_gateway
from ..terminal.output import address_lines, paragraph, print_note
from .check import add_check
from .client import add_to as add_client
from .client_models import ANY_KEY, client_commands, list_models
from .keys import add_keys, add_usage
from .request_table import RequestTable, TableLogHandler
from .settings import add_init, add_schema
from .tools import ToolLoader

if TYPE_CHECKING:
    from socket import socket

    from ...gateway.app import Gateway
    from ...gateway.config.settings import Settings
    from ...gateway.observe.telemetry import Telemetry
    from ...gateway.observe.workers import LineLock
    from ...gateway.state.opening import State


async def run_workers(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the workers until a signal, and return an exit code. They share a folder, which is deleted at the end."""
    from ...gateway.observe.telemetry import open_telemetry
    from ...gateway.processes.server import bind
    from ...gateway.processes.workers import WorkerPool

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
    from ...gateway.observe.workers import LineLock

    return LineLock(folder / "lines")


def load_secret(arguments: argparse.Namespace, settings: Settings, new_secret: str | None = None) -> str:
    """Return the secret for settings without one: of the file beside them, which is made if they need it.

    `new_secret` is the one to use if there is no file.
    """
    from ...gateway.config.credentials import load_file_secret, make_secret

    has_secret = settings.server.secret is not None or settings.server.secret_env is not None
    if has_secret or arguments.config is None:
        return new_secret or make_secret()
    path = Path(f"{arguments.config}.secret")
    is_new = not path.exists()
    secret = load_file_secret(Path(arguments.config), new_secret)
    if is_new and path.exists():
        print_note(f"created {path}, the secret that signs reasoning for clients; do not commit it", None)
    return secret


def print_banner(banner: str) -> None:
    print(banner, end="\n\n", flush=True)


def _check(settings: Settings) -> None:
    """Raise `ConfigError` for settings with which several workers would behave differently from one process."""
    from ...gateway.config.parsing import SHARED_STATE_HINT
    from ...gateway.state.opening import state_address

    if state_address(settings, os.environ) is None:
        message = f"{settings.server.workers} workers need a state to share limits, turns and cooldowns"
        raise ConfigError(message, hint=SHARED_STATE_HINT)
    if any(row.publish for row in settings.tools.values()):
        message = "[tools] publish needs one worker, because a session of an MCP client belongs to one process"
        raise ConfigError(message, hint="remove publish and run `toolwire mcp serve`, or use one worker")


def _without_requests(settings: Settings) -> Settings:
    """Return the settings for the parent, which logs the ends of workers, but has no requests to trace or record."""
    from ...gateway.config.settings import TraceRow

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


_DEMO = (
    "every model name without a row of its own is answered by SmolLM2-135M in this process, and answers name smollm2 as "
    "their model"
)
_HELP = """\
Run a gateway for OpenAI, Anthropic, Gemini and Ollama clients to any model.

examples:
  toolwire serve --demo                          a small real model in this process: no key, no network
  toolwire serve                                 every provider whose key is in the environment, as provider/model
  toolwire serve init                            write toolwire.toml from the keys and servers of this machine
  toolwire serve --config toolwire.toml          your own upstreams, models and keys
  toolwire serve --config config.yaml            LiteLLM's file; settings without an equivalent are listed
  toolwire serve --workers 4                     four processes on one port, which share [state] url
  toolwire serve check --probe                   list all problems of toolwire.toml; ask each upstream
  toolwire serve keys new alice --models 'gpt-*'  a key for a client; only its hash is stored
  toolwire serve usage --by key                  usage per key
  toolwire serve client claude                   settings for Claude Code; --write applies them

Without keys it listens on this machine only. SIGHUP reloads the settings, SIGTERM lets in-flight requests finish.
exit codes: 0 stopped by a signal   1 a worker failed   2 wrong settings, or the port is in use
"""


def add_to(commands: Any) -> None:
    """Register `toolwire serve` with its options and actions."""
    parser = add_command(commands, "serve", "run a gateway: any client with any model", _HELP)
    add_config(parser)
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help="port to listen on (4141, or without keys the next free one); 0 is any free port"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="number of processes on the port (1)")
    add_flag(parser, "--demo", "answer every model name with SmolLM2-135M in this process")
    add_flag(parser, "--quiet", "log each request as a JSON line instead of a table row")
    add_flag(parser, "--strict", "refuse a LiteLLM file if part of it has no equivalent")
    parser.set_defaults(run=run, is_reload=False)
    more = parser.add_subparsers(metavar="init|check|schema|keys|usage|client", required=False)
    for add in (add_init, add_check, add_schema, add_keys, add_usage, add_client):
        add(more)


def run(arguments: argparse.Namespace) -> int:
    """Run the gateway, with uvloop if it is installed, or the parent process of its workers; return the exit code."""
    require_gateway()
    worker = WorkerProcess.take_from(os.environ)
    arguments.is_reload = worker is not None  # the parent has printed the report about a LiteLLM file
    settings = _load_settings(arguments)
    if worker is None and settings.server.workers > 1:
        return asyncio.run(run_workers(arguments, settings))
    try:
        import uvloop
    except ImportError:
        runner: Any = asyncio.run
    else:
        runner = uvloop.run
    runner(_serve(arguments, settings, worker))
    return 0


async def _serve(arguments: argparse.Namespace, settings: Settings, worker: WorkerProcess | None) -> None:
    """Open telemetry, state and tools, run the gateway until a signal, and close them.

    A worker listens on the socket of its parent, which prints the banner.
    """
    from ...gateway.app import Gateway
    from ...gateway.observe.telemetry import open_telemetry
    from ...gateway.processes.server import bind, serve
    from ...gateway.state.opening import open_state

    log_handler = None if arguments.quiet else TableLogHandler()
    line_lock = None if worker is None else open_line_lock(worker.folder)
    telemetry = open_telemetry(
        settings, os.environ, lines=arguments.quiet, log_handler=log_handler, line_lock=line_lock
    )
    secret = load_secret(arguments, settings) if worker is None else worker.read_secret()
    telemetry.redactor.add_secrets([secret])
    state = open_state(settings, os.environ, None if worker is None else worker.folder)
    tools = ToolLoader(telemetry.observers)

    def reload() -> Settings:
        arguments.is_reload = True
        telemetry.reopen()
        fresh = _load_settings(arguments)
        telemetry.add_secrets(fresh)
        return fresh

    async def apply(fresh: Settings) -> None:
        file_secret = load_secret(arguments, fresh, secret)  # the settings may have had one before
        telemetry.redactor.add_secrets([file_secret])
        if worker is not None and file_secret != secret:
            share_secret(worker.folder, file_secret)  # for the workers that replace this one
        await _apply(fresh, gateway, tools, worker, file_secret)

    try:
        sinks = [*state.sinks, *telemetry.sinks]
        opened = await tools.prepare(settings)
        tools.activate(opened)
        async with _run_as_worker(worker, state, telemetry) as metrics:
            gateway = Gateway(
                settings,
                limiter=state.limiter,
                turn_store=state.turn_store,
                responses=state.responses,
                cooldowns=state.cooldowns,
                sinks=sinks if arguments.quiet else [*sinks, RequestTable(telemetry.redactor, telemetry.report_loss)],
                metrics=metrics,
                transports=telemetry.transports(),
                runners=opened.bindings.runners,
                hosted=opened.bindings.hosted,
                publish=opened.bindings.publish,
                publish_for=opened.bindings.publish_for,
                on_key=telemetry.redactor.add_temporary_secret,
                requires_key=worker is not None and worker.requires_key,
                secret=secret,
            )
            _remember_keys(settings, worker)
            _require_model(gateway, arguments)
            listener = bind(settings, port=arguments.port) if worker is None else worker.listener
            write_banner = print_banner if worker is None else worker.report_ready
            await serve(
                gateway,
                settings,
                listener,
                reload=reload,
                apply=apply,
                ready=lambda: write_banner(_make_banner(listener, settings, gateway, is_demo=arguments.demo)),
                app=telemetry.wrap(gateway),
                ends_process=True,
                worker=worker,
            )
    finally:
        await tools.aclose()
        await state.aclose()
        await telemetry.aclose()


@asynccontextmanager
async def _run_as_worker(
    worker: WorkerProcess | None, state: State, telemetry: Telemetry
) -> AsyncIterator[Callable[[], bytes]]:
    """Open the state and run a worker's tasks inside the block; yield the function for the metrics page.

    The page covers this process, or all workers.
    """
    if worker is None:
        yield telemetry.metrics
        return
    from ...gateway.observe.workers import WorkerMetrics

    await state.open()  # before the first request: creating tables at the same time as another worker may fail
    metrics = WorkerMetrics(telemetry.request_metrics, worker.folder, worker.number)
    tasks = {asyncio.ensure_future(work) for work in (metrics.publish_periodically(), worker.stop_with_parent())}
    try:
        yield metrics.page
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _apply(
    settings: Settings, gateway: Gateway, tools: ToolLoader, worker: WorkerProcess | None, secret: str
) -> None:
    """Apply new settings with their tools; the old tools stay open until the last request that may call them ends.

    If the settings cannot be applied, the new tools are closed and the error is raised.
    """
    opened = await tools.prepare(settings)
    try:
        _remember_keys(settings, worker)
        gateway.apply(settings, opened.bindings, secret)
    except BaseException:
        await tools.abandon(opened)
        raise
    tools.activate(opened, gateway.drain_previous)


def _remember_keys(settings: Settings, worker: WorkerProcess | None) -> None:
    """Let the workers that replace this one require a key, too."""
    if worker is not None and settings.keys:
        worker.require_key()


def _require_model(gateway: Gateway, arguments: argparse.Namespace) -> None:
    """Raise `ConfigError` if there is no model, at the start instead of the first request.

    With --demo, also load the local model.
    """
    if arguments.demo:
        from ...local import open_model

        open_model()
    if not gateway.upstreams:
        if arguments.config is None:
            raise ConfigError(
                "no model is configured",
                hint="use --demo, set a key such as OPENAI_API_KEY, or write a settings file with `toolwire serve init`",
            )
        hint = f"add [upstreams.NAME] and [models.NAME] to {arguments.config}, or set a key such as OPENAI_API_KEY"
        raise ConfigError(f"{arguments.config} configures no model", hint=hint)


def _load_settings(arguments: argparse.Namespace) -> Settings:
    """Load the settings file and apply the options.

    With `--demo`, models of the file take precedence over the demo's. Sets `arguments.config` to the default file if it
    exists. Raises `ConfigError` for invalid settings or options.
    """
    from ...gateway.config.settings import Settings
    from .demo_gateway import demo_settings

    if arguments.config is None and not arguments.demo and Path(CONFIG).is_file():
        arguments.config = CONFIG  # from now on it is required: a reload without it would remove all keys
    settings = Settings() if arguments.config is None else _load_file(Path(arguments.config), arguments)
    if arguments.demo:
        demo = demo_settings()
        upstreams, models = {**settings.upstreams, **demo.upstreams}, {**demo.models, **settings.models}
        settings = replace(settings, upstreams=upstreams, models=models)
    options = {name: getattr(arguments, name) for name in ("host", "workers")}
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("workers", 1) < 1:
        raise ConfigError(
            f"workers must be at least 1, got {arguments.workers}", hint="use --workers 2 or more, or omit it"
        )
    return replace(settings, server=replace(settings.server, **given))


def _load_file(path: Path, arguments: argparse.Namespace) -> Settings:
    """Load a settings file.

    The report about a LiteLLM file is printed at the start; reloads log a summary. With --strict, raises `ConfigError`
    if part of a LiteLLM file has no equivalent.
    """
    from ...gateway.settings_file import import_litellm, is_litellm, load_settings, require_complete
    from .settings import print_report

    if not is_litellm(path):
        return load_settings(path)
    if arguments.strict:
        return require_complete(import_litellm(path))
    if arguments.is_reload:
        return load_settings(path)
    imported = import_litellm(path)
    print_report(path.name, imported, sys.stderr)
    return imported.settings


def _make_banner(listener: socket, settings: Settings, gateway: Gateway, *, is_demo: bool) -> str:
    """Return the address, how tools are selected, and a command for each client that can use the configured models."""
    host, port = listener.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    url = f"{'http' if settings.server.certificate is None else 'https'}://{host}:{port}"
    parts = ["\n".join(address_lines("toolwire listens on", url))]
    if is_demo:
        parts.append("\n".join(paragraph(_DEMO)))
    if gateway.retrieval:
        parts.append("\n".join(paragraph(gateway.retrieval)))
    key = "$YOUR_KEY" if settings.keys else ANY_KEY
    parts.append("\n".join(client_commands(url, list_models(settings, tuple(gateway.upstreams)), key)))
    return "\n\n".join(parts)
