"""Recognise and open a source of tools, for all commands that use tools.

    functions      a Python file: its functions, or those marked with @toolwire.tool
    declarations   a JSON document: tools of any wire, or a request that declares them; - is standard input
    mcp            an MCP server: a URL, a command line in quotes, or a file of mcpServers
    openapi        an OpenAPI document in JSON or YAML
    recording      JSON Lines, a HAR file, or a trace: the tools that its requests declare

`read_declared` reads the declarations of any source. `open_source` opens one whose tools can be called.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...ir.errors import ConfigError, ProtocolError
from ...ir.hints import translate_hint
from ...ir.terminal import neutralise_line
from ..terminal.options import add_flag, add_list
from ..terminal.output import print_note
from .documents import ToolDocuments, is_recording, parse_file, read_bytes
from .targets import add_server_options, connect_servers, load_tools

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...ir.tools import Tool
    from ...openapi.api_tools import ApiTool
    from ...openapi.client import ApiToolbox
    from ...run.tools.toolbox import Toolbox


_OPTIONS = ("api_url", "api_auth_env", "api_tag", "api_operation", "api_insecure")


def add_api_options(parser: Any) -> None:
    """Add the options for OpenAPI documents."""
    group = parser.add_argument_group("OpenAPI")
    group.add_argument("--api-url", metavar="URL", help="base URL of the API; requests go to its host only")
    add_list(
        group,
        "--api-auth-env",
        metavar="[SCHEME=]NAME",
        help="environment variable with the credential, for one security scheme if there are several; repeatable",
    )
    add_list(group, "--api-tag", metavar="TAG", help="only operations with TAG; repeatable")
    add_list(
        group,
        "--api-operation",
        metavar="NAME",
        help="only this operation: a tool name or 'METHOD /path', with * as a wildcard; repeatable",
    )
    add_flag(group, "--api-insecure", "permit http to another machine")


def open_api(file: str, arguments: argparse.Namespace) -> ApiToolbox:
    """Return the tools of a document, and print the operations that are not offered.

    Raises `ConfigError` without --api-url and for unsuitable options, with hints for the command line.
    """
    from ...openapi import toolbox

    if not arguments.api_url:
        _refuse_missing_url(file)
    try:
        box = toolbox(
            file,
            base_url=arguments.api_url,
            auth=parse_auth_variables(arguments.api_auth_env),
            tags=arguments.api_tag,
            operations=arguments.api_operation,
            insecure=arguments.api_insecure,
        )
    except ConfigError as error:
        error.hint = translate_hint(error.hint, "api_option")
        raise
    report_problems(box.problems)
    return box


def list_operations(file: str, arguments: argparse.Namespace) -> tuple[ApiTool, ...]:
    """Return the declarations of a document without a connection to its API, and report the operations left out."""
    from ...openapi import load_document, read_operations

    found = read_operations(load_document(file), tags=arguments.api_tag, operations=arguments.api_operation)
    report_problems(found.problems)
    return found.tools


def refuse_api_options(arguments: argparse.Namespace, hint: str) -> None:
    """Raise ConfigError if an option for OpenAPI is given without a document."""
    for name in _OPTIONS:
        if getattr(arguments, name):
            raise ConfigError(f"--{name.replace('_', '-')} needs an OpenAPI document", hint=hint)


def _refuse_missing_url(file: str) -> None:
    """Raise ConfigError for a missing --api-url, with the server URL of the document."""
    from ...openapi import load_document
    from ...openapi.operations import document_servers

    urls = [neutralise_line(url[:200]) for url in document_servers(load_document(file))]
    hint = "add --api-url URL" + (f"; the document has {urls[0]}" if urls else "")
    for url in urls:
        if url.startswith("https://"):
            hint = f"add --api-url {url}, the server in the document, if you trust it"
            break
    raise ConfigError("--api-url is missing", hint=hint)


def parse_auth_variables(values: Iterable[str]) -> str | dict[str, str] | None:
    """Return references to environment variables for `NAME`, or by scheme for `SCHEME=NAME`; None without values.

    Raises `ConfigError` for several values if a scheme is missing.
    """
    pairs = [value.rpartition("=") for value in values]
    if not pairs:
        return None
    if len(pairs) == 1 and not pairs[0][1]:
        return _variable(pairs[0][2])
    if any(not scheme for scheme, _, _ in pairs):
        raise ConfigError("several credentials need the names of their schemes", hint="use --api-auth-env SCHEME=NAME")
    return {scheme: _variable(name) for scheme, _, name in pairs}


def _variable(name: str) -> str:
    """Refer to an environment variable; ConfigError if it is not set."""
    if not name.isidentifier() or not os.environ.get(name):
        raise ConfigError(f"environment variable {name} is not set", hint=f"export {name}=…")
    return f"${{{name}}}"


def report_problems(problems: Iterable[object]) -> None:
    for problem in problems:
        print_note(f"skipped: {problem}")


SourceKind: TypeAlias = Literal["functions", "declarations", "mcp", "openapi", "recording"]
SOURCE_HELP = (
    "a Python file of functions, a JSON list of tools, a request, an MCP server (URL, command in quotes or mcpServers "
    "file), an OpenAPI document, or a recording"
)
_FILES = re.compile(r"[^\s'\"]*\.(py|jsonl?|ndjson|log|har|ya?ml|toml)", re.IGNORECASE)


def add_source_options(parser: Any) -> None:
    """Add the options of MCP servers and OpenAPI documents."""
    add_server_options(parser.add_argument_group("MCP servers"))
    add_api_options(parser)


def source_kind(source: str) -> SourceKind:
    """Return the kind of a source by its form, and for a JSON file by its content.

    Nothing is imported or started. Raises `ConfigError` for a text that is neither a file nor a command.
    """
    if re.match(r"https?://", source):
        return "mcp"
    if source == "-" or Path(source).is_fifo():
        return "declarations"  # a pipe can be read only once
    if not Path(source).is_file() or _is_program(source):
        return _command_kind(source)
    if source.endswith(".py"):
        return "functions"
    if source.lower().endswith((".yaml", ".yml")):
        return "openapi"
    return _document_kind(source, read_bytes(source))


def _is_program(source: str) -> bool:
    """Return True for an executable file whose name is not a document's."""
    return os.access(source, os.X_OK) and not _FILES.fullmatch(source)


def _command_kind(source: str) -> SourceKind:
    """Return `mcp` for a command that exists.

    Raises `ConfigError` for anything else: an empty text, a folder, a missing file.
    """
    from ...mcp.client.config import split_command

    if not source.strip():
        raise ConfigError("the name of the source is empty", hint=f"give one of: {SOURCE_HELP}")
    if Path(source).is_dir():
        raise ConfigError(f"{source} is a folder", hint=f"give one of: {SOURCE_HELP}")
    if _FILES.fullmatch(source):
        raise ConfigError(f"cannot read {source}: no such file", hint=f"give one of: {SOURCE_HELP}")
    command = split_command(source)[0]
    if shutil.which(command) is None:
        raise ConfigError(
            f"{source!r} is neither a file nor a command: {command} was not found", hint=f"give one of: {SOURCE_HELP}"
        )
    return "mcp"


def _document_kind(file: str, data: bytes) -> SourceKind:
    """Detect the kind of a file of JSON, YAML or JSON Lines.

    Invalid files are `declarations`, so that their reader reports the error.
    """
    from ...audit.config_rules import find_servers
    from ...openapi.document import looks_like_openapi

    if is_recording(file, data):
        return "recording"
    try:
        document = parse_file(file, data)
    except ProtocolError:
        return "declarations"  # its reader reports the position
    if find_servers(document) is not None:
        return "mcp"
    is_api = looks_like_openapi(document) or (type(document) is dict and "swagger" in document)
    return "openapi" if is_api else "declarations"


@asynccontextmanager
async def open_source(source: str, arguments: argparse.Namespace) -> AsyncIterator[Toolbox]:
    """Yield the tools of a source that can be called, and print the tools that cannot be offered.

    Raises `ConfigError` for a source that only declares tools.
    """
    from ...run.tools.toolbox import Toolbox

    kind = source_kind(source)
    if kind == "functions":
        yield Toolbox(load_tools(source))
    elif kind == "openapi":
        async with open_api(source, arguments) as box:
            yield box
    elif kind == "mcp":
        async with connect_servers(source, arguments) as servers:
            report_problems(servers.problems)
            yield servers.toolbox()
    else:
        what = "only declares tools" if kind == "declarations" else "is a recording"
        hint = "give a Python file of functions, an MCP server, or an OpenAPI document"
        raise ConfigError(f"{source} {what}, so that they cannot be called", hint=hint)


def read_declared(source: str, arguments: argparse.Namespace) -> tuple[Tool, ...]:
    """Return the declared tools of any source, and print notes about the rest.

    A Python file is imported; an MCP server is started and asked.
    """
    from ...run.tools.toolbox import Toolbox

    kind = source_kind(source)
    if kind == "functions":
        return Toolbox(load_tools(source)).tools
    if kind == "openapi":
        return list_operations(source, arguments)
    if kind == "mcp":
        return tuple(tool for _, tool in read_served(source, arguments))
    documents = ToolDocuments()
    documents.add_file(source, read_bytes(source))
    for note in documents.notes:
        print_note(note)
    return documents.tools()


def read_served(source: str, arguments: argparse.Namespace) -> list[tuple[str, Tool]]:
    """Return (server, tool) of each tool of MCP servers. The server is empty if the source is a single one."""
    import asyncio

    served = asyncio.run(_list_served(source, arguments))
    return served if Path(source).is_file() else [("", tool) for _, tool in served]


async def _list_served(source: str, arguments: argparse.Namespace) -> list[tuple[str, Tool]]:
    async with connect_servers(source, arguments) as servers:
        report_problems(servers.problems)
        owners = {name: server for server, _, name in servers.named_tools()}
        return [(owners.get(tool.name, ""), tool) for tool in servers.toolbox().tools]
