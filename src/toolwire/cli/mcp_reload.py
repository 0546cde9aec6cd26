"""Reload a file of functions when it, or a module of its folder that it imports, has changed (`--reload`).

The new tools replace the old ones while the server runs: sessions stay open, and clients are notified. A file that cannot
be loaded is logged, and the old tools stay.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir.errors import ToolwireError
from ..ir.terminal import count_of
from .tools_file import load_tools

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import TypeAlias

    from ..mcp.server.offers import Prompt, Resource
    from ..mcp.server.server import Server
    from ..run.tools.toolbox import Entry

    _Stamp: TypeAlias = tuple[int, int] | None

__all__ = ["ToolsFile", "follow_changes"]

_log = logging.getLogger("toolwire.mcp.reload")
_INTERVAL = 0.5  # seconds between two checks


class ToolsFile:
    """The tools, resources and prompts of a file: a live source of a toolbox."""

    def __init__(self, file: str, *, will_reload: bool = False) -> None:
        if will_reload:
            # cached bytecode is compared by seconds and size: a quick edit of the same length would not be noticed
            sys.dont_write_bytecode = True
        self._file = file
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
        from ..mcp.server.offers import find_offers
        from ..run.tools.toolbox import Toolbox

        resources, prompts = find_offers(module)
        box = Toolbox() if (resources or prompts) and not _has_tools(module) else Toolbox(module)
        self._entries: list[Entry] = list(box)
        self.resources: list[Resource] = resources
        self.prompts: list[Prompt] = prompts
        self.instructions = module.__doc__

    def _read_stamps(self) -> dict[str, _Stamp]:
        """Return the time and size of the file and of the imported modules of its folder."""
        files = [str(Path(self._file).resolve()), *(str(module.__file__) for module in self._folder_modules().values())]
        return {file: _stamp(file) for file in files}

    def _folder_modules(self) -> dict[str, ModuleType]:
        """Return the imported modules of the folder, without installed packages."""
        found = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if type(file) is str and name != "__main__" and _is_inside(Path(file), self._folder):
                found[name] = module
        return found

    def reload_if_changed(self) -> bool:
        """Load the file again if it has changed. Return True if its tools were replaced."""
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
    from inspect import isfunction

    from ..run.tools.function_tool import FunctionTool
    from ..run.tools.toolbox import Entry

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


def _is_inside(file: Path, folder: Path) -> bool:
    try:
        rest = file.resolve().relative_to(folder)
    except (ValueError, OSError):
        return False
    return not {"site-packages", "dist-packages"} & set(rest.parts)


async def follow_changes(server: Server, file: ToolsFile | None, interval: float = _INTERVAL) -> None:
    """Offer changed tools until cancelled: those of a reloaded file, and those of MCP servers that announce changes."""
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
