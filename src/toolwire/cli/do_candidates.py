"""The candidates of `toolwire do`: commands of this machine, and the tools of other sources."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._extras import install_command
from ..ir.errors import ConfigError, MissingExtra
from ..ir.terminal import neutralise_line
from ..ir.tools import Tool
from .do_tools import ToolSource, read_source
from .do_values import limit_values
from .show import paint

if TYPE_CHECKING:
    from ..retrieve.commands.command import SystemCommand
    from ..retrieve.commands.command_index import CommandIndex
    from ..retrieve.index import ToolIndex
    from ..retrieve.vectors import Encoder

__all__ = ["NOTHING_FITS", "CandidateOffer", "Candidates", "cache_folder", "load_candidates"]

NOTHING_FITS = "nothing_fits"
"""The name of the function that a model calls if no candidate fits."""

_OPTIONS = 40  # of one command in a declaration; pages have up to 250
_FEW_OPTIONS = 10  # for a small model, whose context is short
_FEW_COMMANDS = 1  # for a small model, which chooses worse than the index


class CandidateOffer:
    """The tools that the model sees, each with its command or its source."""

    def __init__(self) -> None:
        self.tools: list[Tool] = []
        self.labels: list[str] = []
        self.commands: dict[str, SystemCommand] = {}
        self.sources: dict[str, ToolSource] = {}
        self.home = str(Path.home())

    def add_command(self, tool: Tool, command: SystemCommand) -> None:
        """Add the tool of a command."""
        self.tools.append(tool)
        self.labels.append(command.name)
        self.commands[tool.name] = command

    def add_tool(self, tool: Tool, source: ToolSource) -> None:
        """Add a tool of another source, unless its name is taken."""
        if tool.name not in self.commands and tool.name not in self.sources and tool.name != NOTHING_FITS:
            self.tools.append(tool)
            self.labels.append(tool.name)
            self.sources[tool.name] = source


class Candidates:
    """All candidates. `sources`: the tools of `-t` by their source."""

    def __init__(self, commands: CommandIndex | None, sources: Sequence[ToolSource], tools: ToolIndex | None) -> None:
        self._commands = commands
        self._tools = tools
        self._sources = {source.name: source for source in sources}

    def search(self, request: str, k: int, *, is_small: bool) -> CandidateOffer:
        """Return the best candidates for a request. For a small model: fewer of them, with fewer options."""
        from ..retrieve.commands.command_tool import declare_command, select_options

        limit = _FEW_OPTIONS if is_small else _OPTIONS
        offer = CandidateOffer()
        if self._commands is not None:
            found = self._commands.search(request, min(k, _FEW_COMMANDS) if is_small else k)
            if is_small and not self._commands.mentions(request, [command for command, _ in found]):
                found = []
            for command, _ in found:
                tool = declare_command(command, select_options(command, request, limit))
                offer.add_command(limit_values(tool, command, request) if is_small else tool, command)
        for hit in [] if self._tools is None else self._tools.search(request, k):
            offer.add_tool(hit.tool, self._sources[hit.server])
        return offer


def load_candidates(arguments: argparse.Namespace) -> Candidates:
    """Read the commands of this machine, those named by `--learn`, and the sources of `-t`."""
    _require_numpy()
    from ..retrieve.index import ToolIndex

    sources = [read_source(source, arguments) for source in arguments.tools]
    tools = None
    if sources:
        tools = ToolIndex(_open_encoder(arguments))
        for source in sources:
            tools.add(source.tools, server=source.name)
    return Candidates(None if arguments.no_commands else _load_commands(arguments), sources, tools)


def _load_commands(arguments: argparse.Namespace) -> CommandIndex:
    from ..retrieve.commands.catalogue import Catalogue, find_roots
    from ..retrieve.commands.command_index import CommandIndex
    from .do_learn import learn_command

    cache = cache_folder()
    commands = Catalogue(find_roots(), cache=cache).load(_show_progress("reading man pages and completions"))
    learned = [command for name in arguments.learn for command in learn_command(name)]
    replaced = {command.words for command in learned}
    every = [*learned, *(command for command in commands if command.words not in replaced)]
    if not every:
        hint = "install man pages (man-db), name a command with --learn, or give tools with -t"
        raise ConfigError("no man pages or completion files were found", hint=hint)
    encoder = _open_encoder(arguments)
    progress = _show_progress("encoding common commands")
    return CommandIndex(every, encoder=encoder, cache=cache / "learned" if learned else cache, progress=progress)


def _open_encoder(arguments: argparse.Namespace) -> Encoder | None:
    """Return the encoder, if it is installed and wanted."""
    if arguments.words_only:
        return None
    from ..retrieve.minilm import open_minilm

    try:
        return open_minilm()
    except MissingExtra:
        return None


def _require_numpy() -> None:
    from importlib.util import find_spec

    if find_spec("numpy") is None:
        raise MissingExtra("`toolwire do` requires numpy", hint=install_command("retrieve"))


def cache_folder() -> Path:
    """Return the folder of toolwire's cache; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "toolwire"


class _CountLine:
    """A line on the terminal that counts; nothing without a terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // max(total, 1)
        if percent == self._shown or not sys.stderr.isatty():
            return
        self._shown = percent
        text = neutralise_line(f"{self._title}: {done:,} of {total:,}")
        print(
            f"\r\x1b[K{paint(text, 'dim', sys.stderr)}",
            end="" if done < total else "\r\x1b[K",
            file=sys.stderr,
            flush=True,
        )


def _show_progress(title: str) -> _CountLine:
    return _CountLine(title)
