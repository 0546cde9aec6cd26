"""`toolwire serve`: run the gateway."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from . import serve_check, serve_client, serve_init, serve_keys, serve_usage
from .client_commands import ANY_KEY, client_commands
from .client_models import list_models
from .request_table import RequestTable, TableLogHandler
from .serve_tools import ToolLoader
from .show import paint

if TYPE_CHECKING:
    from socket import socket

    from ..gateway.app import Gateway
    from ..gateway.settings import Settings

__all__ = ["add_to"]

_CONFIG = "toolwire.toml"
_EXAMPLES = """\
examples:
  toolwire serve --demo                          a small real model in this process: no key, no network
  toolwire serve                                 every provider whose key is in the environment, as provider/model
  toolwire serve init                            write toolwire.toml from the keys and servers of this machine
  toolwire serve --config toolwire.toml          your own upstreams, models and keys
  toolwire serve --config config.yaml            LiteLLM's file; settings without an equivalent are listed
  toolwire serve check --probe                   list all problems of toolwire.toml; ask each upstream
  toolwire serve keys new alice --models 'gpt-*' a key for a client; only its hash is stored
  toolwire serve usage --by key                  usage per key
  toolwire serve client claude                   settings for Claude Code; --write applies them

Without keys it listens on this machine only. SIGHUP reloads the settings, SIGTERM lets in-flight requests finish.
exit codes: 0 stopped by a signal   2 wrong settings, or the port is in use
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="run a gateway: any client with any model",
        description="Run a gateway for OpenAI, Anthropic, Gemini and Ollama clients to any model.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help=f"settings ({_CONFIG}, if it exists)")
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (4141, or the next free one); 0 is any free port")
    parser.add_argument("--demo", action="store_true", help="answer every model name with SmolLM2-135M in this process")
    parser.add_argument("--quiet", action="store_true", help="log each request as a JSON line instead of a table row")
    parser.add_argument("--strict", action="store_true", help="refuse a LiteLLM file if part of it has no equivalent")
    parser.set_defaults(run=run, is_reload=False)
    more = parser.add_subparsers(metavar="init|check|keys|usage|client", required=False)
    for command in (serve_init, serve_check, serve_keys, serve_usage, serve_client):
        command.add_to(more)


def run(arguments: argparse.Namespace) -> int:
    """Run the gateway, with uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        runner: Any = asyncio.run
    else:
        runner = uvloop.run
    runner(_serve(arguments))
    return 0


async def _serve(arguments: argparse.Namespace) -> None:
    """Open settings, telemetry, state and tools, run the gateway until a signal, and close them."""
    from ..gateway.app import Gateway
    from ..gateway.observe.telemetry import open_telemetry
    from ..gateway.serve import bind, serve
    from ..gateway.shared.state import open_state

    settings = _load_settings(arguments)
    log_handler = None if arguments.quiet else TableLogHandler()
    telemetry = open_telemetry(settings, os.environ, lines=arguments.quiet, log_handler=log_handler)
    state = open_state(settings, os.environ)

    tools = ToolLoader(telemetry.observers)

    def reload() -> Settings:
        arguments.is_reload = True
        telemetry.reopen()
        fresh = _load_settings(arguments)
        telemetry.add_secrets(fresh)
        return fresh

    try:
        sinks = [*state.sinks, *telemetry.sinks]
        opened = await tools.prepare(settings)
        tools.activate(opened)
        gateway = Gateway(
            settings,
            limiter=state.limiter,
            memory=state.memory,
            responses=state.responses,
            sinks=sinks if arguments.quiet else [*sinks, RequestTable(telemetry.redactor)],
            metrics=telemetry.metrics,
            transports=telemetry.transports(),
            runners=opened.bindings.runners,
            publish=opened.bindings.publish,
            publish_for=opened.bindings.publish_for,
            on_key=telemetry.redactor.add_temporary_secret,
        )
        _require_model(gateway, is_demo=arguments.demo)
        listener = bind(settings, port=arguments.port)
        await serve(
            gateway,
            settings,
            listener,
            reload=reload,
            apply=lambda fresh: _apply(fresh, gateway, tools),
            ready=lambda: _print_banner(listener, settings, gateway),
            app=telemetry.wrap(gateway),
        )
    finally:
        await tools.aclose()
        await state.aclose()
        await telemetry.aclose()


async def _apply(settings: Settings, gateway: Gateway, tools: ToolLoader) -> None:
    """Apply new settings with their tools; the old tools stay open until the last request that may call them ends."""
    opened = await tools.prepare(settings)
    try:
        gateway.apply(settings, opened.bindings)
    except BaseException:
        await tools.abandon(opened)
        raise
    tools.activate(opened, gateway.drain_previous)


def _require_model(gateway: Gateway, *, is_demo: bool) -> None:
    """Fail at start, not at the first request, if there is no model."""
    if is_demo:
        from ..local import open_model

        open_model()
    if not gateway.upstreams:
        raise ConfigError(
            "no model is configured",
            hint="use --demo, set a key such as OPENAI_API_KEY, or give a settings file with --config",
        )


def _load_settings(arguments: argparse.Namespace) -> Settings:
    """Load the settings file and apply the options. With `--demo`, models of the file win over those of the demo."""
    from msgspec.structs import replace

    from ..gateway.settings import Settings
    from .demo_gateway import demo_settings

    settings = Settings()
    if arguments.config is not None or (not arguments.demo and Path(_CONFIG).is_file()):
        settings = _load_file(Path(arguments.config or _CONFIG), arguments)
    if arguments.demo:
        demo = demo_settings()
        upstreams, models = {**settings.upstreams, **demo.upstreams}, {**demo.models, **settings.models}
        settings = replace(settings, upstreams=upstreams, models=models)
    if arguments.host is not None:
        settings = replace(settings, server=replace(settings.server, host=arguments.host))
    return settings


def _load_file(path: Path, arguments: argparse.Namespace) -> Settings:
    """Load a settings file. The report about a LiteLLM file is printed at the start; reloads log a summary."""
    from ..gateway.settings_file import import_litellm, is_litellm, load_settings

    if not is_litellm(path):
        return load_settings(path)
    from ..gateway.litellm.litellm_file import require_complete
    from .litellm_report import print_report

    if arguments.strict:
        return require_complete(import_litellm(path))
    if arguments.is_reload:
        return load_settings(path)
    imported = import_litellm(path)
    print_report(path.name, imported, sys.stderr)
    return imported.settings


def _print_banner(listener: socket, settings: Settings, gateway: Gateway) -> None:
    """Print the address, how tools are selected, and a command for each client that can use the configured models."""
    host, port = listener.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    url = f"{'http' if settings.server.certificate is None else 'https'}://{host}:{port}"
    print(f"{paint('toolwire', 'bold')} listens on {paint(url, 'green')}   (Ctrl-C stops it)\n")
    if gateway.retrieval:
        print(f"{gateway.retrieval}\n")
    key = "$YOUR_KEY" if settings.keys else ANY_KEY
    lines = client_commands(url, list_models(settings, tuple(gateway.upstreams)), key)
    print("\n".join(lines), end="\n\n", flush=True)
