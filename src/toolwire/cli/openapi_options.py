"""Options of the commands that use an OpenAPI document: the URL of the API, credentials, a selection."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.hints import translate_hint
from ..ir.terminal import neutralise_line
from .show import paint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..openapi.api_tools import ApiTool, OperationProblem
    from ..openapi.client import ApiToolbox

__all__ = [
    "add_api_options",
    "is_api_document",
    "list_operations",
    "open_api",
    "parse_auth_variables",
    "refuse_api_options",
    "report_problems",
]

_OPTIONS = ("api_url", "api_auth_env", "api_tag", "api_operation", "api_insecure")


def add_api_options(parser: Any) -> None:
    group = parser.add_argument_group("OpenAPI")
    group.add_argument("--api-url", metavar="URL", help="base URL of the API; requests go to its host only")
    group.add_argument(
        "--api-auth-env",
        action="append",
        default=[],
        metavar="[SCHEME=]NAME",
        help="environment variable with the credential, for one security scheme if there are several; repeatable",
    )
    group.add_argument(
        "--api-tag", action="append", default=[], metavar="TAG", help="only operations with TAG; repeatable"
    )
    group.add_argument(
        "--api-operation",
        action="append",
        default=[],
        metavar="NAME",
        help="only this operation: a tool name or 'METHOD /path', with * as a wildcard; repeatable",
    )
    group.add_argument("--api-insecure", action="store_true", help="permit http to another machine")


def is_api_document(file: str) -> bool:
    """Return True for the file of an OpenAPI document, by its extension; its content is checked when it is loaded."""
    return file.lower().endswith((".json", ".yaml", ".yml"))


def open_api(file: str, arguments: argparse.Namespace) -> ApiToolbox:
    """Return the tools of a document, and report the operations that are not offered."""
    from ..openapi import toolbox

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
    from ..openapi import load_document, read_operations

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
    from ..openapi import load_document
    from ..openapi.operations import document_servers

    urls = [neutralise_line(url[:200]) for url in document_servers(load_document(file))]
    hint = "add --api-url URL" + (f"; the document has {urls[0]}" if urls else "")
    for url in urls:
        if url.startswith("https://"):
            hint = f"add --api-url {url}, the server in the document, if you trust it"
            break
    raise ConfigError("--api-url is missing", hint=hint)


def parse_auth_variables(values: Iterable[str]) -> str | dict[str, str] | None:
    """Parse `NAME` or `SCHEME=NAME` to credentials that refer to environment variables."""
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


def report_problems(problems: Iterable[OperationProblem]) -> None:
    for problem in problems:
        print(paint(neutralise_line(f"skipped: {problem}"), "yellow", sys.stderr), file=sys.stderr)
