"""`toolwire mcp serve`: serve a file of functions, an OpenAPI document, or another MCP server.

With `--reload`, a file of functions is loaded again when it, or a module of its folder that it imports, has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from contextlib import asynccontextmanager, closing, suppress
from functools import lru_cache, partial
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...ir.errors import ConfigError, ToolwireError
from ...ir.terminal import count_of
from ..sources.targets import add_store_option, add_ttl_option, load_tools, open_store_at
from ..sources.tool_source import add_source_options, open_source, refuse_api_options, source_kind
from ..terminal.options import add_command, add_flag, read_variable
from ..terminal.output import LogFormatter
from .http import (
    BackgroundHandler,
    add_http_options,
    make_guard,
    parse_address,
    require_http,
    run_server,
    serve_app,
)
from .stopping import CallsInFlight, stop_on_signals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import ModuleType

    from ...asgi.access import Guard
    from ...mcp.server.offers import Prompt, Resource
    from ...mcp.server.server import Server
    from ...run.calls.observe import Observer
    from ...run.tools.toolbox import Entry, Toolbox
    from ...run.values.records import Store

    _Stamp: TypeAlias = tuple[int, int] | None

# Reload a file of functions when it, or a module of its folder that it imports, has changed (`--reload`).
#
# The new tools replace the old ones while the server runs: sessions stay open, and clients are notified. A file that
# cannot be loaded is logged, and the old tools stay.


_log = logging.getLogger("toolwire.mcp.reload")
_INTERVAL = 0.5  # seconds between two checks


class ToolsFile:
    """The tools, resources and prompts of a file: a live source of a toolbox."""

    def __init__(self, file: str, *, will_reload: bool = False) -> None:
        """Load the file's tools. With `will_reload`, also stop this process from writing bytecode."""
        if will_reload:
            # cached bytecode is compared by seconds and size: a quick edit of the same length would not be noticed
            sys.dont_write_bytecode = True
        self._file = file
        self._will_reload = will_reload
        self._folder = Path(file).resolve().parent
        self.version = 0
        self._load(self._read_stamps())

    def live_entries(self) -> Sequence[Entry]:
        return self._entries

    def _load(self, stamps: dict[str, _Stamp]) -> None:
        """Load the file, and use its tools. `stamps` are older than the load: a change during it is loaded next time."""
        self._apply(load_tools(self._file))
        self._stamps = {file: stamps.get(file, stamp) for file, stamp in self._read_stamps().items()}

    def _apply(self, module: ModuleType) -> None:
        """Use the tools of a module. Raise ConfigError if it has none that can be offered; then the old ones stay."""
        from ...mcp.server.offers import find_offers
        from ...run.tools.toolbox import Toolbox

        resources, prompts = find_offers(module)
        box = Toolbox() if (resources or prompts) and not _has_tools(module) else Toolbox(module)
        self._entries: list[Entry] = list(box)
        self.resources: list[Resource] = resources
        self.prompts: list[Prompt] = prompts
        self.instructions = module.__doc__

    def _read_stamps(self) -> dict[str, _Stamp]:
        """Return the time and size of the file and of the imported modules of its folder."""
        if not self._will_reload:  # to compare the paths of all imported modules takes 0.3 seconds
            return {}
        files = [str(Path(self._file).resolve()), *(str(module.__file__) for module in self._folder_modules().values())]
        return {file: _stamp(file) for file in files}

    def _folder_modules(self) -> dict[str, ModuleType]:
        """Return the imported modules of the folder, without installed packages."""
        named = {name: module for name, module in list(sys.modules.items()) if name != "__main__"}
        files = {name: getattr(module, "__file__", None) for name, module in named.items()}
        inside = (name for name, file in files.items() if type(file) is str and _is_inside(file, self._folder))
        return {name: named[name] for name in inside}

    def reload_if_changed(self) -> bool:
        """Load the file again if it or its modules have changed; return whether its tools were replaced.

        If it cannot be loaded, the error is logged and the old tools and modules stay.
        """
        stamps = {file: _stamp(file) for file in self._stamps}
        if stamps == self._stamps:
            return False
        before = self._folder_modules()
        for name in before:
            del sys.modules[name]
        try:
            self._load(stamps)
        except ToolwireError as error:
            for name in self._folder_modules():
                del sys.modules[name]
            sys.modules.update(before)
            self._stamps = stamps  # tried again after the next change
            _log.error("cannot reload, the old tools stay: %s", error)
            return False
        self.version += 1
        return True


def _has_tools(module: ModuleType) -> bool:
    """Return False for a file that offers only resources and prompts."""
    from ...run.tools.function_tool import FunctionTool
    from ...run.tools.toolbox import Entry

    public = [value for name, value in vars(module).items() if not name.startswith("_")]
    return any(
        isinstance(value, (FunctionTool, Entry)) or (isfunction(value) and value.__module__ == module.__name__)
        for value in public
    )


def _stamp(file: str) -> _Stamp:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# More than the modules of a large program. Without the cache, a reload resolves the files of all modules four times.
_resolve = lru_cache(maxsize=8192)(Path.resolve)


def _is_inside(file: str, folder: Path) -> bool:
    try:
        rest = _resolve(Path(file)).relative_to(folder)
    except (ValueError, OSError):
        return False
    return not {"site-packages", "dist-packages"} & set(rest.parts)


async def follow_changes(server: Server, file: ToolsFile | None, interval: float = _INTERVAL) -> None:
    """Offer changed tools until cancelled: of a reloaded file, and of MCP servers that announce changes."""
    while True:
        await asyncio.sleep(interval)
        try:
            if file is not None and await asyncio.to_thread(file.reload_if_changed):
                server.replace_offers(file.resources, file.prompts)
            if server.refresh():
                names = ", ".join(tool.name for tool in server.runner.box.tools[:20])
                _log.info("offering %s: %s", count_of(len(server.runner.box.tools), "tool"), names)
        except Exception:  # noqa: BLE001  # a broken file must not end the server
            _log.exception("cannot apply the changed tools")


_HELP = """\
Serve tools to MCP clients, over stdio unless --http is given.

examples:
  toolwire mcp serve tools.py
  toolwire mcp serve tools.py --http :8000               requests are logged to standard error
  toolwire mcp serve tools.py --http :8000 --reload      offer changed tools without a restart
  toolwire mcp serve tools.py --http 0.0.0.0:8000 --allow-host tools.example.com --token-env MCP_TOKEN
  toolwire mcp serve tools.py --approve elicit           calls with side effects ask the client's user
  toolwire mcp serve tools.py --store redis://localhost:6379/0 --secret-env MCP_SECRET --http :8000
  toolwire mcp serve pets.json --api-url https://api.example.com/v1 --api-auth-env PETS_TOKEN --api-tag pets
  toolwire mcp serve mcp.json --http :8000               the tools of several MCP servers at one address

in a client's configuration:
  {"mcpServers": {"weather": {"command": "toolwire", "args": ["mcp", "serve", "/path/to/tools.py"]}}}

tools.py: its functions, or those marked with @toolwire.tool. Mark resources and prompts with toolwire.mcp.resource and
toolwire.mcp.prompt. Output of tools goes to standard error. A call with an idempotency key in its _meta
(dev.toolwire/idempotencyKey) runs at most once, even if the server is killed during the call.
Ctrl-C and SIGTERM wait for calls in progress, for 30 seconds at most; a second Ctrl-C ends at once.
exit codes: 0 the client has disconnected, or stopped by a signal   1 calls had not ended after 30 seconds
            2 wrong usage, unreadable file, or the port is in use   130 Ctrl-C over stdio, or a second Ctrl-C
"""


def add_to(commands: Any) -> None:
    """Register `toolwire mcp serve` with its options."""
    parser = add_command(
        commands, "serve", "serve functions, an OpenAPI document or other MCP servers over stdio or HTTP", _HELP, run
    )
    parser.add_argument(
        "tools",
        metavar="SOURCE",
        help="a Python file of functions, an OpenAPI document (.json, .yaml), or MCP servers (URL, command, mcpServers file)",
    )
    add_source_options(parser)
    way = parser.add_mutually_exclusive_group()
    add_flag(way, "--stdio", "serve over standard input and output (default)")
    way.add_argument(
        "--http",
        metavar="[HOST]:PORT",
        help="serve over HTTP; without HOST on this machine only, other hosts require --token-env",
    )
    add_http_options(parser)
    parser.add_argument("--name", help="name of the server (the name of the file)")
    parser.add_argument("--instructions", help="instructions for models on how to use the tools")
    add_flag(parser, "--reload", "load a Python file again when it or its modules have changed")
    _add_log_options(parser)
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


def _add_log_options(parser: Any) -> None:
    amount = parser.add_mutually_exclusive_group()
    add_flag(amount, "--verbose", "log requests over stdio too, and connections")
    add_flag(amount, "--quiet", "do not log requests")
    add_flag(parser, "--log-arguments", "log the arguments of requests too, without secrets")


def run(arguments: argparse.Namespace) -> int:
    """Serve over stdio or HTTP until the end, with the log on standard error.

    The access settings are checked before the source is opened.
    """
    _configure_log(arguments)
    guard = None if arguments.http is None else make_guard(arguments, parse_address(arguments.http)[0])
    loaded = load_file(arguments)
    if guard is None:
        with suppress(asyncio.CancelledError):  # SIGTERM; asyncio raises KeyboardInterrupt for SIGINT
            asyncio.run(_serve(arguments, loaded, None))
    else:
        run_server(_serve(arguments, loaded, guard))
    return 0


def _configure_log(arguments: argparse.Namespace) -> None:
    """Log to standard error: warnings, reloads, and requests over HTTP or with `--verbose`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.WARNING, handlers=[BackgroundHandler(handler)])
    logging.getLogger("toolwire.mcp.reload").setLevel(logging.INFO)
    logs_requests = (arguments.http is not None or arguments.verbose) and not arguments.quiet
    logging.getLogger("toolwire.mcp.requests").setLevel(logging.INFO if logs_requests else logging.WARNING)
    if arguments.verbose:
        logging.getLogger("toolwire.mcp").setLevel(logging.INFO)


async def _serve(arguments: argparse.Namespace, loaded: Offer | None, guard: Guard | None) -> None:
    """Open the source, and serve its tools until the client disconnects or a signal arrives."""
    async with _open_offer(arguments, loaded) as offered:
        with closing(open_store_at(arguments.store)) as store:
            calls = CallsInFlight()
            server = make_server(arguments, offered, store, calls)
            follower = asyncio.create_task(follow_changes(server, offered.file if arguments.reload else None))
            try:
                if guard is None:
                    await _serve_stdio(server, calls)
                else:
                    await _serve_http(server, arguments, guard, calls)
            finally:
                follower.cancel()
                with suppress(asyncio.CancelledError):
                    await follower
                server.close()
                await server.runner.aclose()


class Offer(NamedTuple):
    """The contents of a source. `file`: a file of functions, which can be loaded again."""

    box: Toolbox
    name: str
    resources: Sequence[Resource] = ()
    prompts: Sequence[Prompt] = ()
    instructions: str | None = None
    file: ToolsFile | None = None


def load_file(arguments: argparse.Namespace) -> Offer | None:
    """Load a Python file, before the event loop starts; None for another source.

    Standard output is reserved for the protocol, also while the file is loaded.
    """
    from ...run.tools.toolbox import Toolbox

    if not arguments.tools.endswith(".py"):
        return None
    refuse_api_options(arguments, "toolwire mcp serve DOCUMENT.json --api-url URL")
    with contextlib.redirect_stdout(sys.stderr):
        file = ToolsFile(arguments.tools, will_reload=arguments.reload)
    name = arguments.name or Path(arguments.tools).stem
    return Offer(Toolbox(file), name, file.resources, file.prompts, file.instructions, file)


@asynccontextmanager
async def _open_offer(arguments: argparse.Namespace, loaded: Offer | None) -> AsyncIterator[Offer]:
    """Yield the loaded file, or open an OpenAPI document or MCP servers and yield their tools.

    Raises `ConfigError` for options that another kind of source needs.
    """
    if loaded is not None:
        yield loaded
        return
    if arguments.reload:
        raise ConfigError("--reload needs a Python file of functions", hint="MCP servers announce their own changes")
    kind = source_kind(arguments.tools)
    if kind != "openapi":
        refuse_api_options(arguments, "toolwire mcp serve DOCUMENT.json --api-url URL")
    name = "toolwire" if kind == "mcp" else Path(arguments.tools).stem
    async with open_source(arguments.tools, arguments) as box:
        yield Offer(box, arguments.name or name)


def make_server(arguments: argparse.Namespace, offered: Offer, store: Store, *observers: Observer) -> Server:
    """Return the server of an opened source.

    Raises `ConfigError` for --approve suspend with a store in memory, and for an unset variable.
    """
    from ...mcp.server.request_context import make_approver
    from ...mcp.server.server import Server
    from ...net.tools.runner import Runner
    from ...run.calls.policy import Policy

    if arguments.approve == "suspend" and arguments.store == "memory:":
        raise ConfigError("--approve suspend needs a store that another process can open", hint="add --store runs.db")
    secret = read_variable(arguments.secret_env)
    return Server(
        runner=Runner(
            offered.box,
            store=store,
            policy=None if arguments.approve is None else Policy(approve=("write", "idempotent")),
            approve=make_approver(arguments.approve, store),
            lease=arguments.lease,
            ttl=arguments.ttl,
            observers=observers,
        ),
        resources=offered.resources,
        prompts=offered.prompts,
        name=offered.name,
        instructions=arguments.instructions or offered.instructions,
        secret=None if secret is None else secret.encode(),
        log_arguments=arguments.log_arguments,
    )


async def _serve_stdio(server: Server, calls: CallsInFlight) -> None:
    """Serve over stdio until the input ends, or a signal cancels the main task."""
    from ...mcp.server.stdio import serve_stdio

    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    # Wake the event loop, which the handler of a signal may have interrupted anywhere.
    cancel = partial(loop.call_soon_threadsafe, task.cancel)
    with stop_on_signals(calls, {signal.SIGINT: None, signal.SIGTERM: cancel}):
        await serve_stdio(server)


async def _serve_http(server: Server, arguments: argparse.Namespace, guard: Guard, calls: CallsInFlight) -> None:
    """Print the address and the tools to standard error, and serve over HTTP."""
    from ...mcp.server.http import HttpApp

    require_http()
    host, port = parse_address(arguments.http)
    app = HttpApp(server, path=arguments.path, guard=guard)
    offered = ", ".join(tool.name for tool in server.runner.box.tools) or "no tools"
    await serve_app(app, offered, host, port, arguments.path, calls)
