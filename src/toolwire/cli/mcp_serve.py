"""`toolwire mcp serve`: serve a file of functions, or an OpenAPI document, as an MCP server."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir.errors import ConfigError, MissingExtra
from .log_lines import LogFormatter
from .openapi_options import add_api_options, is_api_document, open_api, refuse_api_options
from .tools_file import add_store_option, add_ttl_option, load_tools, open_store_at

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from ..asgi.access import Guard
    from ..asgi.types import AsgiApp
    from ..mcp.server.offers import Prompt, Resource
    from ..mcp.server.server import Server
    from ..run.toolbox import Toolbox

__all__ = ["add_to", "make_guard", "make_server", "parse_address", "run_app"]

_EXAMPLES = """\
examples:
  toolwire mcp serve tools.py
  toolwire mcp serve tools.py --http :8000
  toolwire mcp serve tools.py --http 0.0.0.0:8000 --allow-host tools.example.com --token-env MCP_TOKEN
  toolwire mcp serve tools.py --approve elicit           calls with side effects ask the client's user
  toolwire mcp serve tools.py --store redis://localhost:6379/0 --secret-env MCP_SECRET --http :8000
  toolwire mcp serve pets.json --api-url https://api.example.com/v1 --api-auth-env PETS_TOKEN --api-tag pets

in a client's configuration:
  {"mcpServers": {"weather": {"command": "toolwire", "args": ["mcp", "serve", "/path/to/tools.py"]}}}

tools.py: its functions, or those marked with @toolwire.tool. Mark resources and prompts with toolwire.mcp.resource and
toolwire.mcp.prompt. Output of tools goes to standard error. A call with an idempotency key in its _meta
(dev.toolwire/idempotencyKey) runs at most once, even if the server is killed during the call.
exit codes: 0 the client has disconnected, or stopped by a signal   2 wrong usage, unreadable file, or the port is in use
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve a file of functions or an OpenAPI document over stdio or HTTP",
        description="Serve functions or the operations of an API to MCP clients, over stdio unless --http is given.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "tools", metavar="FILE", help="a Python file of functions, or an OpenAPI document (.json, .yaml)"
    )
    add_api_options(parser)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--stdio", action="store_true", help="serve over standard input and output (default)")
    way.add_argument(
        "--http",
        metavar="[HOST]:PORT",
        help="serve over HTTP; without HOST on this machine only, other hosts require --token-env",
    )
    parser.add_argument("--path", default="/mcp", help="path of the HTTP endpoint (/mcp)")
    parser.add_argument("--name", help="name of the server (the name of the file)")
    parser.add_argument("--instructions", help="instructions for models on how to use the tools")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="an accepted host name; repeatable"
    )
    parser.add_argument(
        "--allow-origin", action="append", default=[], metavar="URL", help="an allowed web origin; repeatable"
    )
    parser.add_argument("--token-env", metavar="NAME", help="environment variable with the required bearer token")
    parser.add_argument(
        "--secret-env", metavar="NAME", help="environment variable with the secret shared by all servers of one address"
    )
    add_store_option(parser, "store for the records of calls: a file, redis://…, postgresql://…, memory:")
    parser.add_argument(
        "--approve",
        choices=["elicit", "suspend"],
        help="calls with side effects need approval: of the client's user (elicit), or by `toolwire runs approve` (suspend)",
    )
    parser.add_argument(
        "--lease",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="a call without a heartbeat is considered lost after this time (60)",
    )
    add_ttl_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve over stdio or HTTP. Check the access settings before the file of functions is loaded."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    guard = None if arguments.http is None else make_guard(arguments, parse_address(arguments.http)[0])
    with contextlib.redirect_stdout(
        sys.stderr
    ):  # standard output is reserved for the protocol, also while the file is loaded
        server = make_server(arguments)
    try:
        if guard is None:
            from ..mcp.server.stdio import serve_stdio

            asyncio.run(serve_stdio(server))
        else:
            _serve_http(server, arguments, guard)
    finally:
        server.close()
    return 0


def make_server(arguments: argparse.Namespace) -> Server:
    """Build the server from a Python file or an OpenAPI document."""
    from pathlib import Path

    from ..mcp.server.server import Server
    from ..run.policy import Policy

    if arguments.approve == "suspend" and arguments.store == "memory:":
        raise ConfigError("--approve suspend needs a store that another process can open", hint="add --store runs.db")
    offered = _load_offer(arguments)
    secret = _read_variable(arguments.secret_env)
    return Server(
        offered.box,
        resources=offered.resources,
        prompts=offered.prompts,
        name=arguments.name or Path(arguments.tools).stem,
        instructions=arguments.instructions or offered.instructions,
        store=open_store_at(arguments.store),
        policy=None if arguments.approve is None else Policy(approve=("write", "idempotent")),
        approve=arguments.approve,
        lease=arguments.lease,
        ttl=arguments.ttl,
        secret=None if secret is None else secret.encode(),
    )


class _Offer(NamedTuple):
    """The contents of a file."""

    box: Toolbox
    resources: Sequence[Resource] = ()
    prompts: Sequence[Prompt] = ()
    instructions: str | None = None


def _load_offer(arguments: argparse.Namespace) -> _Offer:
    """Load the file. A Python file with only resources and prompts gets an empty toolbox."""
    from ..mcp.server.offers import find_offers
    from ..run.toolbox import Toolbox

    if is_api_document(arguments.tools):
        return _Offer(open_api(arguments.tools, arguments))
    refuse_api_options(arguments, "toolwire mcp serve DOCUMENT.json --api-url URL")
    module = load_tools(arguments.tools)
    resources, prompts = find_offers(module)
    box = Toolbox() if (resources or prompts) and not _has_tools(module) else Toolbox(module)
    return _Offer(box, resources, prompts, module.__doc__)


def _has_tools(module: ModuleType) -> bool:
    """Return False for a file that offers only resources and prompts."""
    from inspect import isfunction

    from ..run.function_tool import FunctionTool
    from ..run.toolbox import Entry

    public = [value for name, value in vars(module).items() if not name.startswith("_")]
    return any(
        isinstance(value, (FunctionTool, Entry)) or (isfunction(value) and value.__module__ == module.__name__)
        for value in public
    )


def _read_variable(name: str | None) -> str | None:
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"environment variable {name} is not set", hint=f"export {name}=…")
    return value


def _serve_http(server: Server, arguments: argparse.Namespace, guard: Guard) -> None:
    """Serve over HTTP with uvicorn."""
    from ..mcp.server.http import HttpApp

    host, port = parse_address(arguments.http)
    app = HttpApp(server, path=arguments.path, guard=guard)
    offered = ", ".join(tool.name for tool in server.runner.box.tools) or "no tools"
    print(f"serving {offered} at http://{host}:{port}{arguments.path}", file=sys.stderr, flush=True)
    run_app(app, host, port)


def run_app(app: AsgiApp, host: str, port: int) -> None:
    """Run an app with uvicorn, with the gateway's limits for slow clients."""
    try:
        import uvicorn

        from ..asgi.limited_http import make_limited_protocol
    except ImportError:
        raise MissingExtra("HTTP needs uvicorn", hint="pip install -e '.[mcp]' in a checkout of toolwire") from None
    config = uvicorn.Config(
        app,
        host.strip("[]"),
        port,
        http=make_limited_protocol(),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
    )
    uvicorn.Server(config).run()


def make_guard(arguments: argparse.Namespace, host: str) -> Guard:
    """Build the guard from the options; raise ConfigError for a non-local address without a token."""
    from ..asgi.access import LOCAL_HOSTS, Guard
    from ..net.listening import refuse_open

    token = _read_variable(arguments.token_env)
    hosts = [*LOCAL_HOSTS, *arguments.allow_host, *(() if host in ("0.0.0.0", "[::]") else (host,))]  # noqa: S104
    guard = Guard(hosts, arguments.allow_origin, None if token is None else {token: "token"})
    if guard.is_open:
        hint = "require a bearer token with --token-env NAME, or listen on 127.0.0.1"
        refuse_open(host, without="a token", hint=hint)
    return guard


def parse_address(text: str) -> tuple[str, int]:
    """Parse `:8000`, `localhost:8000`, `[::1]:8000` or a bare port."""
    found = re.fullmatch(r"(?:(\[[0-9a-fA-F:]+\]|[^:\[\]]*):)?(\d{1,5})", text)
    if found is None or int(found[2]) > 65535:
        raise ConfigError(f"invalid address {text!r}", hint="use --http :8000 or --http localhost:8000")
    return found[1] or "127.0.0.1", int(found[2])
