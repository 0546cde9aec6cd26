"""The processes that run the tools of a file: `python -m toolwire.testing.tool_tests.child SOCKET`.

A process loads the file, reports its tools with the texts that they know, and makes calls.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...run.calls.signature import function_signature
from ...run.tools.toolbox import Toolbox
from ...run.values.results import error_text
from .child_calls import ChildCalls
from .guard import AuditGuard
from .landlock import restrict_process
from .settings import LoadedFile, TestedTool

# Find texts that a function compares or looks up: literals of its code, and keys of the tables that it uses.


_MAX_WORDS = 20  # twice as many as a call generator uses
_MAX_LENGTH = 60  # characters; a longer literal is a message rather than a key
_MAX_KEYS = 8  # of a table, so that several tables contribute


def known_words(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return texts that lead a call beyond the first check of its arguments.

    >>> prices = {"tea": 3}
    >>> known_words(lambda name: prices[name] if name != "water" else 0)
    ('tea', 'water')
    """
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if not isinstance(code, CodeType):
        return ()
    docstring = getattr(inner, "__doc__", None)
    variables = getattr(inner, "__globals__", {})
    found = dict.fromkeys((*_table_keys(code, variables), *_literals(code)))
    return tuple(islice((word for word in found if word != docstring and 0 < len(word) <= _MAX_LENGTH), _MAX_WORDS))


def _table_keys(code: CodeType, variables: dict[str, Any]) -> Iterator[str]:
    for name in code.co_names:
        value = variables.get(name)
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            yield from (key for key in islice(value, _MAX_KEYS) if isinstance(key, str))


def _literals(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from (item for item in constant if isinstance(item, str))


# The process at the other end of the socket asks for a new process (`setup`) or for the exit code of one (`wait`).
# Requests to the new process are lines of JSON with the field `do`, and have one line each as their reply. The parent
# kills a process whose reply takes too long.


# Limits of a tool in a loop; normal tools stay far below them. macOS has the same default for open files.
_MAX_OPEN_FILES = 256
_MAX_FILE_SIZE = 256 * 1024 * 1024  # bytes
_MAX_REQUEST = 1024 * 1024  # bytes that are read at once; a longer request is read in pieces
_WAIT_SECONDS = 2.0  # a killed process ends at once; a process whose pipe is closed may still write its files
_POLL_SECONDS = 0.005  # short beside the start of a process
_MAX_ERROR = 2000  # characters of the error of an import


def _load(setup: Object, guard: AuditGuard) -> tuple[LoadedFile, ChildCalls | None]:
    """Import the file while the hook is active, and return its tools and the object that calls them.

    An error of the file becomes part of the first value, and the second is None. Then resources are limited, and the
    hook judges calls.
    """
    guard.install()
    guard.phase = "import"
    try:
        module = _import_file(setup["file"])
        box = Toolbox(module)
        deps = _make_dependencies(module, setup["deps"])
    except BaseException as error:  # noqa: BLE001  # the file may raise anything
        return LoadedFile(events=guard.take_events(), error=error_text(error)[:_MAX_ERROR]), None
    _limit_resources(setup["memory"])
    calls = ChildCalls(module, box, guard, setup, deps)
    tools = tuple(
        TestedTool(
            entry.name,
            entry.tool.effect,
            entry.tool.input_schema or {"type": "object"},
            entry.tool.examples,
            function_signature(entry.function).is_async,
            entry.options.max_parallel,
            known_words(entry.function),
        )
        for entry in box
    )
    events = guard.take_events()
    guard.phase = "call"
    return LoadedFile(tools, events), calls


async def _perform(calls: ChildCalls | None, request: Object) -> Any:
    if calls is None:
        raise ConfigError("the file is not loaded")
    method = getattr(calls, request.pop("do"))
    try:
        return await method(**request)
    finally:
        calls.restore_folder()


def _import_file(file: str) -> ModuleType:
    """Import a file as a module, as `toolwire run` does.

    Raises `ConfigError` for another file, and any error of the file.
    """
    name = Path(file).stem
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _make_dependencies(module: ModuleType, name: str | None) -> object:
    if name is None:
        return None
    make = getattr(module, name, None)
    if not callable(make):
        raise ConfigError(f"the file has no function {name!r}", hint="check deps=…")
    return make()


def _limit_resources(memory: int) -> None:
    """Limit the memory that the imported modules do not use yet, open files, and the size of written files."""
    import resource

    used = _used_memory(resource.getpagesize())
    limits = {
        resource.RLIMIT_AS: used + memory * 1024 * 1024,
        resource.RLIMIT_NOFILE: _MAX_OPEN_FILES,
        resource.RLIMIT_FSIZE: _MAX_FILE_SIZE,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        _, hard = resource.getrlimit(kind)
        maximum = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        with suppress(ValueError, OSError):  # the platform has no such limit
            resource.setrlimit(kind, (maximum, hard))


def _used_memory(page_size: int) -> int:
    """Return the size of the address space; 0 where the system does not show it."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * page_size
    except OSError:
        return 0


def run_requests(setup: Object, requests: int, replies: int) -> None:
    """Restrict this process, load the file, and perform requests until the parent closes its end of the pipe.

    The first reply is the loaded file.
    """
    sys.path[:0] = setup["path"]
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    options = {name: setup[name] for name in ("folders", "temp", "outside", "allow_writes", "allow_hosts")}
    guard = AuditGuard(**options)
    if setup["landlock"]:  # before other threads exist: they would not be restricted
        restrict_process(setup["folders"], allow_network=bool(setup["allow_hosts"]))
    threading.Thread(target=_exit_with_parent, args=(requests,), daemon=True).start()
    with os.fdopen(requests, "rb") as lines, os.fdopen(replies, "wb", buffering=0) as answers:
        loaded, calls = _load(setup, guard)
        answers.write(msgspec.json.encode(loaded) + b"\n")
        for line in lines:
            reply = loop.run_until_complete(_perform(calls, json.loads(line)))
            answers.write(msgspec.json.encode(reply) + b"\n")


def _exit_with_parent(requests: int) -> None:
    """End the process when the parent has closed its end of the pipe, even while a tool hangs."""
    poller = select.poll()
    poller.register(requests, 0)  # only the end of the pipe
    poller.poll()
    os._exit(0)


def _become_child(request: Object, requests: int, replies: int, errors: int) -> None:
    """Take folder, environment and descriptors of the request, serve requests, and exit the forked process.

    `os._exit`, because threads of tools that never return must not delay the end.
    """
    code = 1
    try:
        os.setsid()
        os.chdir(request["folder"])
        os.dup2(errors, 2)
        os.environ.clear()
        os.environ.update(request["environment"])
        run_requests(request["setup"], requests, replies)
        code = 0
    except BaseException:  # noqa: BLE001  # shown by the parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait_child(pid: int) -> int | None:
    """Return the exit code of a child process; None if it still runs after a while."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLL_SECONDS)
    return None


def main(control: int) -> None:
    """Fork a process for each request of the parent, until it closes the socket. An empty request is only answered."""
    Toolbox([main])  # before the forks: the schema of a first tool takes 0.15 s, most of it for imports of pydantic

    with socket.socket(fileno=control) as connection:
        while True:
            data, descriptors, _, _ = socket.recv_fds(connection, _MAX_REQUEST, 3)
            while data and not data.endswith(b"\n"):
                data += connection.recv(_MAX_REQUEST)
            if not data:
                return
            request = json.loads(data)
            reply: Object = {}
            if "wait" in request:
                reply = {"code": _wait_child(request["wait"])}
            elif request:
                pid = os.fork()
                if pid == 0:
                    connection.close()
                    _become_child(request, *descriptors)
                reply = {"pid": pid}
                for descriptor in descriptors:
                    os.close(descriptor)
            connection.sendall(json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
