"""`toolwire trace`: record the traffic of a gateway; show and replay recorded runs and exchanges."""

from __future__ import annotations

import argparse
import asyncio
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ..terminal.options import CONFIG, add_command, add_config, add_flag, add_list, add_model, positive_number
from ..terminal.output import address_lines
from .replay import replay
from .show import show

if TYPE_CHECKING:
    from ...gateway.config.settings import Settings


_RECORD_EXAMPLES = """\
  toolwire trace record --to traces --upstream openai          then point a client at http://127.0.0.1:4141
  toolwire trace record --to traces --upstream http://localhost:8080/v1 --remove 'ACME-[0-9]+'
  toolwire trace record --to traces --config toolwire.toml --shorten-media
"""
_SHOW_EXAMPLES = """\
  toolwire run "…" -t tools.py -m openai/gpt-5.6 --trace run.jsonl
  toolwire trace show run.jsonl                                a timeline of requests and parallel calls
  toolwire trace show 3f2a --store runs.db                     a stored run, from its events
  toolwire trace show traces/1.jsonl --bodies                  an exchange: calls, results, losses and bodies
"""
_REPLAY_EXAMPLES = """\
  toolwire trace replay run.jsonl                              repeat the run offline
  toolwire trace replay run.jsonl --tools tools.py             the same, with the pure and read tools of this file
  toolwire trace replay run.jsonl --agent app.py:agent         with the system prompt, tools and policy of your agent
  toolwire trace replay 3f2a --store runs.db --agent app.py:agent     a stored run
  toolwire trace replay traces/1.jsonl --to gemini             the request on another wire, and its losses
  toolwire trace replay traces/1.jsonl --to openai/gpt-5.6     the same, sent to a model
  toolwire trace replay traces/1.jsonl --to anthropic --url http://127.0.0.1:4141 -m local/smollm2
"""
_PRIVACY = """\
Recordings contain no keys, cookies, user ids, or values under names such as `password`. Other private data has no
recognisable form: remove it with `--remove`. Read a recording before you share it.
"""
_EXIT_CODES = """\
exit codes: 0 done   1 the replay differs from the recording   2 wrong usage, unreadable input, or the model is unreachable
"""
_SHOW_EXIT_CODES = """\
exit codes: 0 done   2 wrong usage, or unreadable input
"""


def add_to(commands: Any) -> None:
    """Register `toolwire trace` with its actions: record, show, replay."""
    about = "record a gateway; show and replay runs and exchanges"
    text = "Record the traffic of a gateway in sanitised files; show and replay recorded runs and exchanges."
    examples = (_RECORD_EXAMPLES, _SHOW_EXAMPLES, _REPLAY_EXAMPLES)
    parser = add_command(commands, "trace", about, _help(text, *examples, end=_PRIVACY + _EXIT_CODES))
    verbs = parser.add_subparsers(metavar="ACTION", required=True)
    _add_record(verbs)
    _add_show(verbs)
    _add_replay(verbs)


def _help(text: str, *examples: str, end: str) -> str:
    return "\n".join([f"{text}\n\nexamples:", *examples, end])


def _add_record(verbs: Any) -> None:
    """Register `toolwire trace record` with its options."""
    about = "run a gateway that writes each exchange to a file"
    text = _help(f"Run{about[3:]}.", _RECORD_EXAMPLES, end=_PRIVACY + _SHOW_EXIT_CODES)
    record = add_command(verbs, "record", about, text, _record)
    record.add_argument("--to", dest="folder", metavar="DIR", required=True, help="folder for the files")
    add_config(record)
    add_list(
        record,
        "--upstream",
        metavar="PROVIDER|URL|WIRE=URL",
        help="an upstream, if there is no settings file; the first one serves every model without a prefix",
    )
    record.add_argument("--key-env", metavar="NAME", help="environment variable with the key for a URL")
    record.add_argument("--port", type=int, help="port to listen on (4141, or the next free one)")
    add_list(record, "--remove", metavar="PATTERN", help="regular expression for text to remove; repeatable")
    add_flag(record, "--shorten-media", "keep only the beginning of images and other media")


def _add_trace(parser: argparse.ArgumentParser) -> None:
    """Add the argument for a trace file or stored run, with --store and --tenant."""
    about = "a trace, see `toolwire run --trace` and `toolwire trace record`; with --store, the id of a stored run"
    parser.add_argument("file", metavar="FILE|RUN", help=about)
    parser.add_argument(
        "--store", metavar="STORE", help="read the events of a stored run: a file, redis://… or postgresql://…"
    )
    parser.add_argument(
        "--tenant", default="", metavar="NAME", help="the tenant of the stored run, if its runner has one"
    )
    parser.add_argument(
        "--exchange",
        type=positive_number,
        metavar="N",
        help="the exchange with this number, of a file of several (`toolwire with --record`)",
    )


def _add_show(verbs: Any) -> None:
    text = _help("Show a recorded run or exchange.", _SHOW_EXAMPLES, end=_SHOW_EXIT_CODES)
    parser = add_command(verbs, "show", "show a recorded run or exchange", text, show)
    _add_trace(parser)
    add_flag(parser, "--bodies", "show the bodies of both sides, too")
    add_flag(parser, "--json", "print JSON")


def _add_replay(verbs: Any) -> None:
    """Register `toolwire trace replay` with its options."""
    about = "repeat a recorded run offline; send a recorded request to another wire or model"
    parser = add_command(
        verbs, "replay", about, _help(f"Repeat{about[6:]}.", _REPLAY_EXAMPLES, end=_EXIT_CODES), replay
    )
    _add_trace(parser)
    runs = parser.add_argument_group("recorded runs")
    runs.add_argument(
        "--tools",
        metavar="TOOLS.py",
        help="run the pure and read tools of this file instead of using recorded results",
    )
    runs.add_argument(
        "--agent",
        metavar="FILE.py:NAME",
        help="replay with this agent instead of the recorded tools and prompt",
    )
    add_flag(runs, "--run-reads", "with --agent: run its pure and read tools instead of using recorded results")
    exchanges = parser.add_argument_group("recorded exchanges")
    exchanges.add_argument("--to", dest="target", metavar="WIRE|MODEL", help="the target: a wire, or provider/model")
    exchanges.add_argument("--url", metavar="URL", help="URL of a gateway or provider to send the request to")
    add_model(exchanges, "the model to request (default: as recorded)")
    exchanges.add_argument("--key-env", metavar="NAME", help="environment variable with the key for --url")
    add_flag(parser, "--json", "print JSON")


def _record(arguments: argparse.Namespace) -> int:
    return asyncio.run(_serve(build_settings(arguments), arguments.port))


async def _serve(settings: Settings, port: int | None) -> int:
    """Run a gateway that records every exchange until it is stopped, and print its address."""
    from ...gateway.app import Gateway
    from ...gateway.observe.telemetry import open_telemetry
    from ...gateway.processes.server import bind, serve

    telemetry = open_telemetry(settings, os.environ)
    try:
        transports = telemetry.transports()
        gateway = Gateway(
            settings,
            sinks=telemetry.sinks,
            metrics=telemetry.metrics,
            transports=transports,
            on_key=telemetry.redactor.add_temporary_secret,
        )
        listener = bind(settings, port=port)
        host, number = listener.getsockname()[:2]
        lines = address_lines(f"recording into {settings.trace.record}:", f"http://{host}:{number}")
        ready = partial(print, "\n".join(lines), flush=True)
        await serve(gateway, settings, listener, ready=ready, app=telemetry.wrap(gateway))
    finally:
        await telemetry.aclose()
    return 0


def build_settings(arguments: argparse.Namespace) -> Settings:
    """Return the gateway settings for the arguments of `trace record`.

    Raises `ConfigError` unless exactly one of --config and --upstream is given.
    """
    from ...gateway.config.parsing import parse_settings
    from ...gateway.config.settings import TraceRow
    from ...gateway.settings_file import load_settings

    config = arguments.config
    if config is None and not arguments.upstream and Path(CONFIG).is_file():
        config = CONFIG
    if bool(config) == bool(arguments.upstream):
        raise ConfigError(
            "give either --config or --upstream", hint="use --config FILE, or --upstream with a provider or URL"
        )
    if config:
        settings = load_settings(Path(config))
    else:
        upstreams = dict(_parse_upstream(upstream, arguments.key_env) for upstream in arguments.upstream)
        models = {"*": {"upstream": next(iter(upstreams))}}
        settings = parse_settings({"upstreams": upstreams, "models": models, "log": {"remove": arguments.remove}})
    return replace(
        settings,
        trace=TraceRow(otel=False, record=arguments.folder, shorten_media=arguments.shorten_media),
        log=replace(settings.log, remove=(*settings.log.remove, *arguments.remove)),
    )


def _parse_upstream(given: str, key_env: str | None) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of an upstream: WIRE=URL, a URL, or a provider.

    Raises `ConfigError` for anything else.
    """
    from ...wire import names as wires
    from ...wire.models.vendors import names as providers

    head, mark, url = given.partition("=")
    more = {} if key_env is None else {"key_env": key_env}
    if mark and head in wires():
        return head, {"wire": head, "base_url": url, **more}
    if "://" in given:
        return "upstream", {"base_url": given, **more}
    if given in providers():
        return given, {"provider": given, **more}
    hint = f"give a provider ({', '.join(list(providers())[:4])} …), a URL, or WIRE=URL"
    raise ConfigError(f"unknown upstream {given!r}", hint=hint)
