"""The process that runs the tools of a file: `python -m toolwire.testing.tool_tests.child SETUP REQUESTS REPLIES`.

SETUP is a JSON object, REQUESTS and REPLIES are file descriptors. Every request is one line of JSON with the field `do`,
and has one line as its reply. The parent kills the process if a reply takes too long.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...run.results import error_text
from ...run.signature import function_signature
from ...run.toolbox import Toolbox
from .child_calls import ChildCalls
from .guard import AuditGuard, DeniedOperation
from .settings import LoadedFile, TestedTool
from .words import known_words

__all__ = ["main"]

_MAX_OPEN_FILES = 256
_MAX_FILE_SIZE = 256 * 1024 * 1024


class _ToolProcess:
    """Loads the file, then performs requests until the pipe is closed."""

    def __init__(self, setup: Object) -> None:
        self._setup = setup
        self._guard = AuditGuard(
            setup["root"], setup["outside"], allow_writes=setup["allow_writes"], allow_hosts=setup["allow_hosts"]
        )
        self._calls: ChildCalls | None = None

    def load(self) -> LoadedFile:
        """Import the file while the hook is active, and return its tools."""
        self._guard.install()
        self._guard.phase = "import"
        try:
            module = _import_file(self._setup["file"])
            box = Toolbox(module)
            deps = _make_dependencies(module, self._setup["deps"])
        except BaseException as error:  # noqa: BLE001  # the file may raise anything
            events = self._guard.take_events()
            return LoadedFile(events=events, error=error_text(error)[:2000])
        _limit_resources(self._setup["memory"])
        self._calls = ChildCalls(module, box, self._guard, self._setup, deps)
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
        events = self._guard.take_events()
        self._guard.phase = "call"
        return LoadedFile(tools, events)

    async def perform(self, request: Object) -> Any:
        calls = self._calls
        if calls is None:
            raise ConfigError("the file is not loaded")
        match request["do"]:
            case "call":
                return await calls.call(request["tool"], request["arguments"])
            case "serial":
                return await calls.call_serially(request["tool"], request["calls"])
            case "concurrent":
                return await calls.call_concurrently(request["tool"], request["calls"])
            case "cancel":
                return await calls.cancel(request["tool"], request["arguments"], request["delay"], request["limit"])
            case _:
                return await calls.call_twice(request["tool"], request["arguments"], request["key"])


def _import_file(file: str) -> ModuleType:
    """Import a file as a module, as `toolwire run` does."""
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
    """Limit memory beyond that of the imported modules, open files, and the size of written files."""
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


def main(arguments: list[str]) -> None:
    """Perform requests until the parent closes its end of the pipe."""
    setup = json.loads(arguments[0])
    sys.path[:0] = setup["path"]
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    process = _ToolProcess(setup)
    with os.fdopen(int(arguments[1]), "rb") as requests, os.fdopen(int(arguments[2]), "wb", buffering=0) as replies:
        replies.write(msgspec.json.encode(process.load()) + b"\n")
        for line in requests:
            reply = loop.run_until_complete(process.perform(json.loads(line)))
            replies.write(msgspec.json.encode(reply) + b"\n")
    with suppress(DeniedOperation):
        os._exit(0)  # threads of tools that never return must not delay the end


if __name__ == "__main__":
    main(sys.argv[1:])
