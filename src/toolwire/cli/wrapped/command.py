"""`toolwire with`: run a command with a gateway of its own, and print a receipt.

The gateway, its key and its port exist as long as the command runs. It listens on this machine only, and on a port that
the kernel chooses when it binds, so that no other program can take the port in between. Nothing is written, except with
--record and by a store that the settings name for their tools. Until the command has ended, the terminal is the
command's: log records of the gateway are collected, and printed with the receipt.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.terminal import count_of
from ..agent.options import add_model_options, add_tool_options, announce_model, make_price, open_tools
from ..serve.client_models import UNKNOWN_LIMITS, limits_of, list_models
from ..serve.tools import ToolLoader
from ..terminal.options import CONFIG, DEFAULT_MODEL, add_command, add_config, read_variable, require_gateway
from ..terminal.output import LogFormatter, print_note
from .child import ChildProcess
from .clients import ChildCommand, SessionGateway, child_command, install_hint
from .receipt import Receipt

if TYPE_CHECKING:
    from ...gateway.app import Gateway
    from ...gateway.config.settings import HostedRow, ModelRow, Settings, UpstreamRow
    from ...gateway.gateway_tools import ToolBindings
    from ...gateway.observe.telemetry import Telemetry
    from ...ir.hosted import HostedKind
    from ...net.trace.file import TraceFile
    from ...run.traces.recordings import ExchangeTrace

T = TypeVar("T")
_HELP = """\
Run a program whose requests to OpenAI, Anthropic, Gemini or Ollama are answered by any model, and print a receipt.

examples:
  toolwire with -m openai/gpt-5.6 -- claude                  Claude Code, answered by GPT
  toolwire with -m ollama/qwen3:8b -- codex exec 'Read a.txt'
  toolwire with -m anthropic/claude-sonnet-5 -- python app.py
  toolwire with -m llama --base-url http://localhost:8080/v1 -- opencode
  toolwire with -m openai/gpt-5.6 --record session.jsonl -- gemini -p 'Read a.txt'
  toolwire with -m openai/gpt-5.6 -t tools.py --mcp mcp.json -- python app.py    tools that the gateway runs
  toolwire with --config toolwire.toml -- qwen               models and upstreams of a settings file

The program finds the address and a key for this run in its environment; none of your files is changed. Each model name
that it requests is answered by -m, except those in the settings file; without both, by local/smollm2. The receipt goes
to standard error.
exit codes: the program's own, or 128 + N if signal N ended it   126 it cannot be run   127 it was not found
            2 wrong usage or settings: the program was not started
"""
_CALLER = "with"
_DRAIN = 1.0  # seconds for requests of programs that the command started and did not wait for
_LOOP_DELAY = 60.0  # seconds; on a busy machine, the only client waits instead of being refused
_MAX_NOTES = 5  # different warnings after the command; more would hide the receipt
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as a shell's exit codes


def add_to(commands: Any) -> None:
    """Register `toolwire with` with its options."""
    parser = add_command(commands, "with", "run a program on any model: claude, codex, python app.py", _HELP, run)
    add_model_options(parser, default=None)
    add_config(parser)
    parser.add_argument("--record", metavar="FILE", help="record every exchange in a new file, without keys")
    add_tool_options(parser)
    parser.add_argument(
        "--mcp", action="append", dest="tools", metavar="SERVER", help="an MCP server or mcpServers file, as -t"
    )
    parser.add_argument(
        "--hosted",
        action="append",
        default=[],
        metavar="KIND=SERVER",
        help="MCP server (URL or command) for web_search, web_fetch or code_execution, if the model's provider has none",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code, or the one of a shell if it cannot be started.

    Raise ConfigError without a command, and on Windows.
    """
    require_gateway()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command or not command[0]:
        raise ConfigError("a command is missing", hint="toolwire with -m MODEL -- COMMAND, as in `… -- python app.py`")
    if os.name != "posix":
        raise ConfigError(
            "toolwire with needs Linux, macOS or WSL", hint="use toolwire serve and toolwire serve client"
        )
    if shutil.which(command[0]) is None:
        return _report_missing(command)
    make_price(arguments.price)  # wrong usage is reported before anything else is printed
    return asyncio.run(_run_session(command, arguments))


def _report_missing(command: list[str]) -> int:
    """Print why the command cannot be run, and return a shell's exit code."""
    name = command[0]
    folders = [""] if os.sep in name else os.get_exec_path()
    if any(Path(folder, name).exists() for folder in folders):
        print_note(f"toolwire: {name}: permission denied (chmod +x makes a program executable)", None)
        return _NOT_EXECUTABLE
    print_note(f"toolwire: {name}: command not found ({install_hint(command)})", None)
    return _NOT_FOUND


class _Notes(logging.Handler):
    """Keeps the first different warnings, each with its count, while the terminal belongs to the command."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: Counter[str] = Counter()
        self.more = 0
        self.setFormatter(LogFormatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if line in self.lines or len(self.lines) < _MAX_NOTES:
            self.lines[line] += 1
        else:
            self.more += 1

    def print(self, clean: Callable[[str], str]) -> None:
        """Print them. `clean` removes secrets from records of other libraries, which are collected as they are."""
        for line, count in self.lines.items():
            print_note(clean(line) if count == 1 else f"{clean(line)} ({count:,} times)")
        if self.more:
            print_note(f"and {count_of(self.more, 'more warning')}")


async def _run_session(command: list[str], arguments: argparse.Namespace) -> int:
    """Open the gateway, run the command, close everything, and print the receipt. Return the exit code."""
    from ...gateway.keys import new_key

    key, notes, receipt = new_key(), _Notes(), Receipt(make_price(arguments.price))
    settings, model = session_settings(arguments, key)
    async with AsyncExitStack() as stack:
        stack.enter_context(_collect_logs(notes))
        recording = _RecordFile(arguments.record)
        telemetry = _open_telemetry(settings, key, recording)
        stack.push_async_callback(telemetry.aclose)
        tools = await _open_tools(arguments, settings, telemetry, stack)
        gateway = await _open_gateway(settings, telemetry, tools, receipt, stack)
        announce_model(arguments.model, base_url=arguments.base_url)
        code = await _serve_command(command, gateway, settings, telemetry, model, key, recording)
    try:
        notes.print(telemetry.redactor)
        if code is not None:
            receipt.print(
                recording=arguments.record,
                unrecorded=recording.lost,
                clean=telemetry.redactor,
                settings_file=arguments.config,
            )
    except OSError:  # standard error is closed or full: the exit code is still the command's
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # else the interpreter fails when it flushes it
    return _NOT_EXECUTABLE if code is None else code


async def _open_gateway(
    settings: Settings, telemetry: Telemetry, tools: ToolBindings, receipt: Receipt, stack: AsyncExitStack
) -> Gateway:
    """Make the gateway with its state in memory. Load a model of this process now: its errors are the user's."""
    from ...gateway.app import Gateway
    from ...gateway.config.credentials import make_secret
    from ...gateway.state.opening import open_state

    if any(row.provider == "local" for row in settings.upstreams.values()):
        from ...local import open_model

        open_model()
    state = open_state(settings, os.environ)
    stack.push_async_callback(state.aclose)
    return Gateway(
        settings,
        limiter=state.limiter,
        turn_store=state.turn_store,
        responses=state.responses,
        sinks=[*telemetry.sinks, receipt],
        metrics=telemetry.metrics,
        transports=telemetry.transports(),
        runners=tools.runners,
        hosted=tools.hosted,
        publish=tools.publish,
        publish_for=tools.publish_for,
        on_key=telemetry.redactor.add_temporary_secret,
        secret=make_secret(),
    )


async def _serve_command(
    command: list[str],
    gateway: Gateway,
    settings: Settings,
    telemetry: Telemetry,
    model: str | None,
    key: str,
    recording: _RecordFile,
) -> int | None:
    """Serve while the command runs. Return its exit code, or None after a message if it cannot be started."""
    from ...gateway.processes.server import bind, serve

    listener = bind(settings)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    limits = UNKNOWN_LIMITS if model is None else limits_of(settings, model)
    is_ready, handlers = asyncio.Event(), dict[signal.Signals, Callable[[], None]]()

    @contextmanager
    def keep(of_server: Mapping[signal.Signals, Callable[[], None]], /, **_: bool) -> Iterator[None]:
        """Keep the server's handlers: while the command runs, signals are its own."""
        handlers.update(of_server)
        yield

    with ExitStack() as stack:
        stack.callback(listener.close)
        child = child_command(command, os.environ, SessionGateway(url, key, model, limits), stack)
        serving = asyncio.ensure_future(
            serve(gateway, settings, listener, ready=is_ready.set, app=telemetry.wrap(gateway), handle=keep)
        )
        try:
            await _first(is_ready.wait(), serving)
            recording.open()
            stack.callback(recording.close)
            return await _first(_run_child(child), serving)
        finally:
            if not serving.done():
                handlers.get(signal.SIGTERM, serving.cancel)()  # it may not have started
            await serving


async def _run_child(command: ChildCommand) -> int | None:
    try:
        child = ChildProcess(command.arguments, command.environment)
    except OSError as error:  # such as a script whose interpreter does not exist
        print_note(f"toolwire: {command.arguments[0]}: {error.strerror}", None)
        return None
    return await child.wait()


async def _first(work: Coroutine[Any, Any, T], serving: asyncio.Future[None]) -> T:
    """Return the result of `work`. If the gateway fails meanwhile, cancel `work` and raise the gateway's error."""
    task = asyncio.ensure_future(work)
    try:
        pending: set[asyncio.Future[Any]] = {task, serving}
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await serving
            raise RuntimeError("the gateway has stopped")
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


class _RecordFile:
    """The file of --record, which exists once the gateway does; without the option, nothing is recorded."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: TraceFile | None = None
        self.lost = 0  # exchanges that could not be written

    def open(self) -> None:
        """Create the file. Raise ConfigError if it exists, or cannot be created."""
        from ...net.trace.file import TraceFile

        self._file = None if self._path is None else TraceFile(Path(self._path))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, trace: ExchangeTrace) -> None:
        """Append an exchange; OSError if that fails."""
        if self._file is not None:
            self._file.write(trace.header, trace.events)

    @property
    def writer(self) -> Callable[[ExchangeTrace], None] | None:
        return None if self._path is None else self.write

    def count_lost(self, _kind: str, _error: OSError) -> None:
        self.lost += 1


def _open_telemetry(settings: Settings, key: str, recording: _RecordFile) -> Telemetry:
    from ...gateway.observe.telemetry import open_telemetry

    telemetry = open_telemetry(
        settings,
        os.environ,
        lines=False,
        log_handler=logging.NullHandler(),  # the root logger collects the records
        record=recording.writer,
        report_loss=recording.count_lost,
    )
    telemetry.redactor.add_secrets([key])
    return telemetry


async def _open_tools(
    arguments: argparse.Namespace, settings: Settings, telemetry: Telemetry, stack: AsyncExitStack
) -> ToolBindings:
    """Open the tools of the options for every model, or else the tools of the settings."""
    from ...gateway.gateway_tools import ToolBindings
    from ...net.tools.runner import Runner

    loader = ToolLoader(telemetry.observers)
    stack.push_async_callback(loader.aclose)
    opened = await loader.prepare(replace(settings, tools={}) if arguments.tools else settings)
    loader.activate(opened)
    if arguments.tools:
        boxes = await stack.enter_async_context(open_tools(arguments))
        runner = Runner(*boxes, observers=telemetry.observers)
        stack.push_async_callback(runner.aclose)
        return ToolBindings({"*": runner}, hosted=opened.bindings.hosted)
    return opened.bindings


@contextmanager
def _collect_logs(notes: _Notes) -> Iterator[None]:
    """Collect the warnings of all libraries, which would be written to the terminal of the command."""
    root = logging.getLogger()
    root.addHandler(notes)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(notes)


# The settings of a session: the models and upstreams of the user, a random key, and state in memory.


def session_settings(arguments: argparse.Namespace, key: str) -> tuple[Settings, str | None]:
    """Return the settings, and the model for clients; None if they choose among the models of the settings file.

    Sets `arguments.config` to the default file if it exists. Raise ConfigError for an unknown model or invalid settings.
    """
    from ...gateway.config.settings import KeyRow, LogRow, ResponsesRow, ServerRow, Settings, StateRow, TraceRow
    from ...gateway.keys import hash_key
    from ...gateway.settings_file import load_settings

    arguments.config = arguments.config or (CONFIG if Path(CONFIG).is_file() else None)
    settings = Settings() if arguments.config is None else load_settings(Path(arguments.config))
    settings, model = _choose_model(settings, arguments)
    signing = ("secret", "secret_env", "previous_secret", "previous_secret_env")
    server = ServerRow(
        port=0,
        hosts=("localhost",),  # a web page that makes a browser send requests here has another name
        drain=_DRAIN,
        **{name: getattr(settings.server, name) for name in signing},  # to read the reasoning of earlier sessions
    )
    return replace(
        settings,
        server=server,
        limits=replace(settings.limits, loop_delay=_LOOP_DELAY),
        keys={_CALLER: KeyRow(hash_key(key))},
        state=StateRow(),
        responses=ResponsesRow(store="memory:"),
        log=LogRow(to="nowhere", remove=settings.log.remove),
        trace=TraceRow(otel=False, shorten_media=settings.trace.shorten_media),
        hosted=replace(settings.hosted, **dict(map(_read_hosted, arguments.hosted))),
    ), model


def _read_hosted(text: str) -> tuple[HostedKind, HostedRow]:
    """Return the kind and the row of a `--hosted`. Raise ConfigError for an unknown kind, or without a server."""
    from ...gateway.config.settings import HostedRow
    from ...ir.hosted import HOSTED_KINDS

    name, _, server = text.partition("=")
    kind = next((kind for kind in HOSTED_KINDS if kind == name), None)
    if kind is None or not server.strip():
        hint = f'KIND=SERVER, with {" or ".join(HOSTED_KINDS)}, as in web_search="npx -y a-search-server"'
        raise ConfigError(f"--hosted {text!r} names no tool and server", hint=hint)
    is_url = server.startswith(("http://", "https://"))
    return kind, HostedRow(mcp=server) if is_url else HostedRow(command=server)


def _choose_model(settings: Settings, arguments: argparse.Namespace) -> tuple[Settings, str | None]:
    """Return the settings in which -m answers every other name, and its name for clients.

    Without -m, the models of the settings keep their names; without settings, the model is the default of other commands.
    Raise ConfigError for options that do not fit the model.
    """
    from ...gateway.config.settings import EmulateRow

    given = arguments.model
    if given is None:
        if arguments.base_url is not None or arguments.key_env is not None:
            raise ConfigError("no model is given for --base-url or --key-env", hint="add -m MODEL")
        available = list_models(settings)
        if not available.is_empty:
            names = available.agent_names or available.names
            return settings, names[0] if names else None
        arguments.model = given = DEFAULT_MODEL
        print_note(f"no model is given: {given} answers; -m chooses another one")
    row = None if arguments.base_url is not None else _configured_row(settings, given)
    if row is None:
        name, upstream, row = _make_row(arguments, settings.upstreams)
        settings = replace(settings, upstreams={**settings.upstreams, name: upstream})
    elif arguments.key_env is not None:
        raise ConfigError("--key-env is for a model that the settings do not have", hint="set key_env of its upstream")
    elif arguments.text is not None:
        row = replace(row, emulate=EmulateRow(arguments.text, arguments.via, arguments.template))
    model = given if row.model is None or row.model in settings.models else row.model
    kept = {name: other for name, other in settings.models.items() if name.strip("*?")}
    return replace(settings, models={**kept, model: row, "*": row}), model


def _configured_row(settings: Settings, model: str) -> ModelRow | None:
    """Return the row of a model in the settings, with the names that its upstreams use; None if they have none.

    A row for every name, `*`, is not for a name with a provider: it would answer in the place of the chosen model. It
    answers `mistral:7b`, the notation of Ollama.
    """
    from ...gateway.config.settings import ModelRow
    from ...gateway.routing.router import target_model

    rows = [name for name in settings.models if name.strip("*?") or not _names_provider(settings, model)]
    patterns = sorted(rows, key=len, reverse=True)
    name = next((name for name in (model, *patterns) if name in rows and fnmatchcase(model, name)), None)
    if name is not None:
        row = settings.models[name]
        targets = tuple(replace(target, model=target_model(target.model, name, model)) for target in row.targets)
        return replace(row, targets=targets, model=None if targets else target_model(row.model, name, model))
    upstream, upstream_model = _split_upstream(settings, model)
    if upstream in settings.upstreams and upstream_model:
        return ModelRow(upstream, upstream_model)
    return None


def _names_provider(settings: Settings, model: str) -> bool:
    """Check for `provider/model` or `provider:model` of a known provider or of an upstream of the settings."""
    from ...wire.models.vendors import names

    upstream, upstream_model = _split_upstream(settings, model)
    return bool(upstream_model) and (upstream in settings.upstreams or upstream in names())


def _split_upstream(settings: Settings, model: str) -> tuple[str, str]:
    """Split `upstream/model` or `upstream:model`, as the gateway does; a known provider may have any case."""
    from ...wire.models.profiles import split_model
    from ...wire.models.vendors import names

    name, upstream_model = split_model(model, {*settings.upstreams, *names()})
    return (name if name in settings.upstreams else name.lower()), upstream_model


def _make_row(arguments: argparse.Namespace, taken: Mapping[str, UpstreamRow]) -> tuple[str, UpstreamRow, ModelRow]:
    """Return an upstream with a new name, and its model, for the options. Raise ConfigError as for every command."""
    from ...gateway.config.settings import EmulateRow, ModelRow, UpstreamRow
    from ...net.model.endpoint import resolve
    from ...wire.models.vendors import COMPATIBLE

    key = read_variable(arguments.key_env)
    endpoint = resolve(arguments.model, os.environ, base_url=arguments.base_url, key=key)
    provider = None if endpoint.vendor is COMPATIBLE else endpoint.vendor.name
    name = provider or "server"
    while name in taken:
        name += "-2"
    upstream = UpstreamRow(provider, base_url=arguments.base_url, key_env=arguments.key_env)
    text = arguments.text
    emulate = None if text is None else EmulateRow(text, arguments.via, arguments.template)
    return name, upstream, ModelRow(name, endpoint.model, emulate=emulate)
