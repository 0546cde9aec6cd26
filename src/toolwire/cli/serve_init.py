"""`toolwire serve init`: write a `toolwire.toml` from the keys and model servers of this machine, or from LiteLLM's file."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from .serve_keys import CONFIG, replace_file
from .show import paint

if TYPE_CHECKING:
    from ..gateway.litellm.litellm_convert import LitellmImport
    from ..gateway.settings import Settings
    from .local_servers import LocalServer

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire serve init                                 toolwire.toml: providers whose key is set, servers that run here
  toolwire serve init other.toml --force              overwrite an existing file
  toolwire serve init --from-litellm config.yaml      convert LiteLLM's file; the rest is listed
  toolwire serve init --no-probe                      do not ask the ports of Ollama, vLLM, llama.cpp, LM Studio, SGLang

Only names of variables are written, never keys. Servers are looked for at their usual ports on this machine.
exit codes: 0 written   2 the file exists, or cannot be written, or --strict refused the LiteLLM file
"""
_ALTERNATIVES = frozenset(
    {"openai-chat", "google", "azure-responses", "vertex-anthropic"}
)  # the same key, another wire
_MAX_MODELS = 20  # of one server
_HEAD = (
    "Settings of a toolwire gateway.",
    "Check this file with `toolwire serve check`. A running gateway reloads it on SIGHUP.",
)
_EXAMPLE = """\
# [upstreams.openai]
# provider = "openai"          # the key is in OPENAI_API_KEY; key_env = "NAME" is another variable
#
# [upstreams.house]            # any server with a supported wire
# base_url = "http://127.0.0.1:8000/v1"
# wire = "openai_chat"
#
# [models.fast]                # a name for clients; fallbacks = ["OTHER"] names further models
# upstream = "openai"
# model = "MODEL"
# retrieve = true              # of a client's many tools, offer the 8 best and `search_tools`; or {k = 8, always = ["NAME"]}
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "init",
        help="write a settings file for this machine",
        description="Write a commented settings file from the keys and model servers of this machine.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"the file to write ({CONFIG})")
    parser.add_argument("--from-litellm", metavar="CONFIG", help="convert this file of LiteLLM")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--no-probe", action="store_true", help="do not look for model servers on this machine")
    parser.add_argument(
        "--strict", action="store_true", help="with --from-litellm: refuse a file that is not fully used"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    path = Path(arguments.file or arguments.config or CONFIG)
    if path.suffix != ".toml":
        raise ConfigError(f"{path} is not a TOML file", hint=f"write {CONFIG}; use --from-litellm to read a YAML file")
    if path.exists() and not arguments.force:
        raise ConfigError(f"{path} already exists", hint="use --force to overwrite it, or name another file")
    if arguments.from_litellm is not None:
        text = _convert(Path(arguments.from_litellm), strict=arguments.strict)
    else:
        text = _describe_machine(probe=not arguments.no_probe)
    replace_file(path.resolve(), text)
    print(f"wrote {paint(str(path), 'green')}. Next:")
    check = "" if str(path) == CONFIG else f" {path}"
    config = "" if str(path) == CONFIG else f" --config {path}"
    print(f"  toolwire serve check{check} --probe    list problems, and ask each upstream")
    print(f"  toolwire serve{config}    start the gateway; it prints a command for each client")
    print(f"  toolwire serve keys new NAME{config}    required if other machines use the gateway")
    return 0


def _describe_machine(*, probe: bool) -> str:
    """Return settings with an upstream for each provider whose key is set and for each server that runs here."""
    from ..gateway.settings_text import comment_lines

    tables = [comment_lines(_HEAD), *_provider_tables()]
    for server in asyncio.run(_find_servers()) if probe else []:
        tables += _server_tables(server)
    if len(tables) == 1:
        print("no key in the environment and no model server found; the file has only examples", file=sys.stderr)
    return "\n".join([*tables, comment_lines(["Examples:"]) + _EXAMPLE])


async def _find_servers() -> list[LocalServer]:
    from .local_servers import find_local_servers

    return await find_local_servers()


def _provider_tables() -> list[str]:
    """Return the tables of providers whose key is set. Their models are available as `provider/model`."""
    from ..gateway.settings import UpstreamRow
    from ..gateway.settings_text import comment_lines, format_table
    from ..gateway.upstreams import upstreams_from_environment
    from ..wire.models.vendors import find

    tables = []
    for name in upstreams_from_environment(os.environ):
        vendor = find(name)
        if name in _ALTERNATIVES or vendor.keyless:
            continue
        variable = next(key.variable for key in vendor.keys if os.environ.get(key.variable, "").strip())
        comment = comment_lines(
            [f"The key is in {variable}. Clients request {name}/MODEL, or a name of [models.NAME]."]
        )
        tables.append(comment + format_table(("upstreams", name), UpstreamRow(name)))
        print(f"found {variable}: upstream {name}", file=sys.stderr)
    return tables


def _server_tables(server: LocalServer) -> list[str]:
    """Return the tables of a server on this machine and of its models."""
    from ..gateway.settings import ModelRow, UpstreamRow
    from ..gateway.settings_text import comment_lines, format_table
    from ..ir.terminal import neutralise_line

    shown = server.models[:_MAX_MODELS]
    rest = len(server.models) - len(shown)
    comment = f"It answered at {server.base_url}." + (f" It has {rest} more models." if rest else "")
    row = UpstreamRow(server.provider)  # with its usual address
    tables = [comment_lines([comment]) + format_table(("upstreams", server.provider), row)]
    tables += [format_table(("models", model), ModelRow(server.provider)) for model in shown if _is_plain(model)]
    names = neutralise_line(", ".join(shown)) or "no models"
    print(f"found {server.provider} at {server.base_url}: {names}", file=sys.stderr)
    return tables


def _is_plain(model: str) -> bool:
    """Return True for a name without wildcards, which would be a pattern in the settings."""
    return not any(mark in model for mark in "*?[")


def _convert(path: Path, *, strict: bool) -> str:
    """Convert a LiteLLM file, and print the report about the rest of it."""
    from ..gateway.litellm.litellm_file import parse_litellm_file, require_complete
    from .litellm_report import print_report

    imported = parse_litellm_file(path, os.environ)
    if strict:
        require_complete(imported)
    print_report(path.name, imported, sys.stderr)
    if not imported.settings.models:
        raise ConfigError(f"no model of {path} can be converted", hint="the report lists the reasons")
    return _litellm_text(path.name, imported)


def _litellm_text(name: str, imported: LitellmImport) -> str:
    """Return the settings, with the report and the required variables as comments. Keys of the file are not written."""
    from ..gateway.litellm.import_report import group_notes
    from ..gateway.settings_text import comment_lines, format_settings

    head = [*_HEAD, f"Converted from {name}."]
    if imported.secrets:
        head.append(f"Set these variables to the keys that are in {name}: {', '.join(imported.secrets)}")
    if imported.variables:
        head.append(f"Set these variables as in its environment_variables: {', '.join(imported.variables)}")
    if imported.missing_key:
        head.append(
            f"{name} has a master_key in {imported.missing_key}: make keys with `toolwire serve keys new NAME`."
        )
    notes = [f"{row.kind}: {row.where}: {row.meaning}. {row.instead}" for row in group_notes(imported.notes)]
    rest = ["", "Without an equivalent:", *notes] if notes else []
    return comment_lines([*head, *rest]) + "\n" + format_settings(_with_single_targets(imported.settings))


def _with_single_targets(settings: Settings) -> Settings:
    """Write a model with one target in the short form."""
    from msgspec.structs import replace

    models = {
        name: replace(row, upstream=row.targets[0].upstream, model=row.targets[0].model, targets=())
        if len(row.targets) == 1
        else row
        for name, row in settings.models.items()
    }
    return replace(settings, models=models)
