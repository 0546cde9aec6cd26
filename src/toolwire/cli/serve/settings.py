"""`toolwire serve init` and `schema`: write the settings file of a gateway, and print its JSON Schema.

A new `toolwire.toml` is made from the keys and model servers of this machine, or from LiteLLM's file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

from msgspec.structs import replace

from ...gateway.litellm.equivalents import group_notes
from ...ir.errors import ConfigError
from ...ir.terminal import count_of, neutralise_line
from ..sources.documents import replace_file
from ..terminal.options import CONFIG, add_command, add_flag
from ..terminal.output import paint, print_note, table, terminal_width

if TYPE_CHECKING:
    from ...gateway.config.settings import Settings
    from ...gateway.litellm.conversion import LitellmImport
    from ..models import LocalServer


# Print the report about a LiteLLM file: skipped models, and settings without an equivalent or with another effect.


_COLOURS = {"skipped": "red", "ignored": "yellow", "changed": "blue"}
_INDENT = 9  # characters


def print_report(name: str, imported: LitellmImport, stream: TextIO) -> None:
    """Print the number of models, and for each group of notes its meaning, the alternative and its locations."""
    rows = group_notes(imported.notes)
    print(f"{name}: {count_of(len(imported.settings.models), 'model')}, {count_of(len(rows), 'note')}", file=stream)
    for row in rows:
        alternative = f" → {row.instead}" if row.instead else ""
        lines = [
            *_wrap(f"{row.meaning}{alternative}", stream),
            *(paint(line, "dim", stream) for line in _wrap(row.where, stream)),
        ]
        print(f"{paint(row.kind, _COLOURS[row.kind], stream)}  {lines[0]}", file=stream)
        for line in lines[1:]:
            print(f"{' ' * len(row.kind)}  {line}", file=stream)
    print(file=stream, flush=True)


def _wrap(text: str, stream: TextIO) -> list[str]:
    width = max(min(terminal_width(stream), 120) - _INDENT, 40)
    return textwrap.wrap(neutralise_line(text), width, break_on_hyphens=False) or [""]


_INIT_HELP = """\
Write a commented settings file from the keys and model servers of this machine.

examples:
  toolwire serve init                                 toolwire.toml: providers whose key is set, servers that run here
  toolwire serve init other.toml --force              overwrite an existing file
  toolwire serve init --from-litellm config.yaml      convert LiteLLM's file; the rest is listed
  toolwire serve init --no-probe                      do not ask the ports of Ollama, vLLM, llama.cpp, LM Studio, SGLang

Only names of variables are written, never keys. Servers are looked for at their usual ports on this machine.
exit codes: 0 written   2 the file exists, or cannot be written, or --strict refused the LiteLLM file
"""
# the same key, another wire
_ALTERNATIVES = frozenset({"openai-chat", "google", "azure-responses", "vertex-anthropic"})
_MAX_MODELS = 20  # of one server
_HEAD = (
    "Settings of a toolwire gateway.",
    "Check this file with `toolwire serve check`. A running gateway reloads it on SIGHUP.",
)
_EXAMPLE = """\
# [upstreams.openai]
# provider = "openai"          # the key is in OPENAI_API_KEY; key_env = "NAME" is another variable
#
# [upstreams.local]            # a small model in this process; needs the extra local
# provider = "local"           # clients request local/smollm2
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


def add_init(commands: Any) -> None:
    parser = add_command(commands, "init", "write a settings file for this machine", _INIT_HELP, run_init)
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"the file to write ({CONFIG})")
    parser.add_argument("--config", default=argparse.SUPPRESS, metavar="FILE", help="the same as FILE")
    parser.add_argument("--from-litellm", metavar="CONFIG", help="convert this file of LiteLLM")
    add_flag(parser, "--force", "overwrite an existing file")
    add_flag(parser, "--no-probe", "do not look for model servers on this machine")
    add_flag(parser, "--strict", "with --from-litellm: refuse a file that is not fully used")


def run_init(arguments: argparse.Namespace) -> int:
    """Write a settings file and print the next steps.

    Its content comes from a LiteLLM file, or from the keys and servers of this machine. Raises `ConfigError` for a file
    that is not TOML, or exists without --force.
    """
    path = Path(arguments.file or arguments.config or CONFIG)
    if path.suffix != ".toml":
        raise ConfigError(f"{path} is not a TOML file", hint=f"write {CONFIG}; use --from-litellm to read a YAML file")
    if path.exists() and not arguments.force:
        raise ConfigError(f"{path} already exists", hint="use --force to overwrite it, or name another file")
    if arguments.from_litellm is not None:
        text = _convert(Path(arguments.from_litellm), strict=arguments.strict)
    else:
        text = _describe_machine(probe=not arguments.no_probe)
    replace_file(path, f"#:schema {_schema_address(path.resolve().parent)}\n{text}")
    print(f"wrote {paint(str(path), 'green')}. Next:")
    check = "" if str(path) == CONFIG else f" {path}"
    config = "" if str(path) == CONFIG else f" --config {path}"
    steps = [
        (f"toolwire serve check{check} --probe", "list problems, and ask each upstream"),
        (f"toolwire serve{config}", "start the gateway; it prints a command for each client"),
        (f"toolwire serve keys new NAME{config}", "required if other machines use the gateway"),
    ]
    print("\n".join(table(steps, indent="  ")))
    return 0


def _schema_address(folder: Path) -> str:
    """Return the address of the installed schema: a relative path if it is inside the folder, else a file URL.

    It belongs to the installed version, and needs no network.
    """
    from ...gateway.settings_file import SCHEMA_FILE

    if SCHEMA_FILE.is_relative_to(folder):
        return quote(f"./{SCHEMA_FILE.relative_to(folder).as_posix()}")
    return SCHEMA_FILE.as_uri()


def _describe_machine(*, probe: bool) -> str:
    """Return settings with an upstream for each provider whose key is set and for each server that runs here.

    Servers are searched only with `probe`. A note is printed if nothing is found.
    """
    from ...gateway.config.notation import comment_lines
    from ..models import find_local_servers

    tables = [comment_lines(_HEAD), *_provider_tables()]
    for server in asyncio.run(find_local_servers()) if probe else []:
        tables += _server_tables(server)
    if len(tables) == 1:
        note = "no key in the environment and no model server found; the file has only examples: uncomment an upstream"
        print_note(f"{note}, such as [upstreams.local], before you start the gateway", None)
    return "\n".join([*tables, comment_lines(["Examples:"]) + _EXAMPLE])


def _provider_tables() -> list[str]:
    """Return the tables of providers whose key is set, and print each.

    Their models are available as `provider/model`.
    """
    from ...gateway.config.notation import comment_lines, format_table
    from ...gateway.config.settings import UpstreamRow
    from ...gateway.routing.upstreams import upstreams_from_environment
    from ...wire.models.vendors import find

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
        print_note(f"found {variable}: upstream {name}", None)
    return tables


def _server_tables(server: LocalServer) -> list[str]:
    """Return the tables of a server on this machine and of its models, and print its address.

    Models beyond `_MAX_MODELS` are only counted.
    """
    from ...gateway.config.notation import comment_lines, format_table
    from ...gateway.config.settings import ModelRow, UpstreamRow

    shown = server.models[:_MAX_MODELS]
    rest = len(server.models) - len(shown)
    comment = f"It answered at {server.base_url}." + (f" It has {rest} more models." if rest else "")
    row = UpstreamRow(server.provider)  # with its usual address
    tables = [comment_lines([comment]) + format_table(("upstreams", server.provider), row)]
    plain = [model for model in shown if not set("*?[") & set(model)]  # a wildcard would make it a pattern
    tables += [format_table(("models", model), ModelRow(server.provider)) for model in plain]
    names = neutralise_line(", ".join(shown)) or "no models"
    print_note(f"found {server.provider} at {server.base_url}: {names}", None)
    return tables


def _convert(path: Path, *, strict: bool) -> str:
    """Return a LiteLLM file as settings, and print the report about the rest of it.

    Raises `ConfigError` if no model can be converted, and with `strict` if any part has no equivalent.
    """
    from ...gateway.settings_file import parse_litellm_file, require_complete

    imported = parse_litellm_file(path, os.environ)
    if strict:
        require_complete(imported)
    print_report(path.name, imported, sys.stderr)
    if not imported.settings.models:
        raise ConfigError(f"no model of {path} can be converted", hint="the report lists the reasons")
    return _litellm_text(path.name, imported)


def _litellm_text(name: str, imported: LitellmImport) -> str:
    """Return the settings, with the report and the required variables as comments. Keys of the file are not written."""
    from ...gateway.config.notation import comment_lines, format_settings

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
    models = {
        name: replace(row, upstream=row.targets[0].upstream, model=row.targets[0].model, targets=())
        if len(row.targets) == 1
        else row
        for name, row in settings.models.items()
    }
    return replace(settings, models=models)


_SCHEMA_HELP = """\
Print the JSON Schema of toolwire.toml, with which editors complete and check it.

examples:
  toolwire serve schema > toolwire.schema.json   beside toolwire.toml, whose first line is: #:schema ./toolwire.schema.json
"""


def add_schema(commands: Any) -> None:
    add_command(commands, "schema", "print the JSON Schema of the settings", _SCHEMA_HELP, print_schema)


def print_schema(_: argparse.Namespace) -> int:
    from ...gateway.settings_file import SCHEMA_FILE

    sys.stdout.write(SCHEMA_FILE.read_text("utf-8"))
    return 0
