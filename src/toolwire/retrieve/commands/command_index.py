"""Search the commands of this machine for a request."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ...ir.errors import ToolwireError
from ...ir.tools import Tool
from ...run.tools.words import split_words
from ..documents import FIELDS, clean_text, make_document
from ..index import ToolIndex
from .command import SystemCommand
from .common_tasks import COMMON_TASKS
from .machine import is_private_file, open_private_folder

if TYPE_CHECKING:
    from ..vectors import Encoder, ProgressCallback

_MAX_OPTIONS = 30  # the rest would drown the description: BM25 normalises by length, and the encoder reads 128 tokens
_MAX_ABOUT = 80  # characters of the description of an option, of up to 30
_WIDTH = 8  # ranked tools per command that is wanted, before common commands are preferred
_COMMON = 1.6  # `ls` before `lsattr` for the same description. Not measured alone
_RANK_OFFSET = 10  # of reciprocal rank fusion; smaller than the usual 60, because only the first few ranks are offered
CommandReader: TypeAlias = Callable[[Sequence[SystemCommand]], list[list[SystemCommand]]]
"""Read commands from their pages, each before its subcommands."""

_MIN_WORDS = 2  # see `mentions`
_MIN_SHARE = 0.45  # about half: a word of two, two of four
_FORMAT = 1  # of the stored index; raise it when the searched text of a command changes
# names and numbers of a request are values, not words that describe a command
_VALUES = (
    (re.compile(r"(?<![\w+.-])[a-z][a-z0-9+.-]*+://\S+", re.IGNORECASE), " url "),
    (re.compile(r"(?:\"[^\"]*\"|'[^'\s][^']*'|`[^`]*`)"), " "),
    (re.compile(r"(?<!\w)(?:~|\.{1,2})?(?:/[\w.@+-]++)++/?"), " "),
    (re.compile(r"(?<![\w-])[\w-]++(?:\.[A-Za-z]\w{0,5}){0,1}\.(tar|gz|tgz|bz2|xz|zip|log|csv)\b"), r" file \1 "),
    (re.compile(r"(?<![\w-])[\w-]++(?:\.[A-Za-z]\w{0,5}){1,2}\b"), " file "),
    (re.compile(r"\b(?:\d[\d.,:]*|one|two|three|four|five|ten)\b", re.IGNORECASE), " "),
)


def search_text(request: str) -> str:
    """Return the words of a request that describe a task: without URLs, quotations, paths and numbers."""
    for pattern, replacement in _VALUES:
        request = pattern.sub(replacement, request[:2_000])
    return request


class CommandIndex:
    """The commands, found by their names, summaries, options and common tasks."""

    def __init__(
        self,
        commands: Sequence[SystemCommand],
        *,
        encoder: Encoder | None = None,
        cache: Path | None = None,
        progress: ProgressCallback | None = None,
        reader: CommandReader | None = None,
    ) -> None:
        """Index the commands by words, and common ones by meaning, too, if there is an encoder.

        `cache`: the folder of a saved index, which is used if the commands are the same. `reader`: reads the pages of
        commands that are found by their summaries.
        """
        self._reader = reader
        self._commands = {command.tool_name: command for command in reversed(commands)}  # the first of a name
        self._commands = dict(reversed(self._commands.items()))
        tools = [_searched_tool(command) for command in self._commands.values()]
        self._index = _open_index(tools, None, cache, progress)
        self._common = None
        if encoder is not None:  # the encoder takes 30 ms per tool, so that only common commands are encoded
            common = [tool for tool in tools if tool.name in _COMMON_NAMES]
            self._common = _open_index(common, encoder, cache, progress)

    def __len__(self) -> int:
        return len(self._commands)

    def find(self, name: str) -> SystemCommand | None:
        """Return the command with this tool name."""
        return self._commands.get(name)

    def search(self, request: str, k: int) -> list[tuple[SystemCommand, float]]:
        """Return the `k` best commands with their scores, the best first; none if no word of the request is known."""
        text = search_text(request)
        hits = self._index.search(text, max(1, _WIDTH * k))
        scores = {hit.tool.name: hit.score * (_COMMON if hit.tool.name in _COMMON_NAMES else 1.0) for hit in hits}
        if self._common is not None:
            by_meaning = [hit.tool.name for hit in self._common.search(text, _WIDTH * k)]
            scores = _join_ranks(sorted(scores, key=lambda name: -scores[name]), by_meaning)
        ranked = (name for name in sorted(scores, key=lambda name: -scores[name]) if name in self._commands)
        best: list[tuple[SystemCommand, float]] = []
        while len(best) < k and (names := list(islice(ranked, k - len(best)))):
            best += [(command, scores[name]) for name, command in self._read(names, text)]
        return best

    def _read(self, names: Sequence[str], text: str) -> Iterator[tuple[str, SystemCommand]]:
        """Yield commands with the content of their pages, or the best subcommand; none for a page that is refused."""
        commands = [self._commands[name] for name in names]
        found = [[command] for command in commands] if self._reader is None else self._reader(commands)
        words = frozenset(split_words(text))
        for name, read in zip(names, found, strict=True):
            if read:
                yield name, max(read, key=lambda one: len(words.intersection(split_words(f"{one.name} {one.summary}"))))

    def mentions(self, request: str, commands: Sequence[SystemCommand]) -> bool:
        """Return True if one of the commands contains two words of the request, or about half of them.

        For a model that cannot refuse: a request with one word in common is most likely about something else.
        """
        words = frozenset(split_words(search_text(request)))
        documents = [make_document(_searched_tool(command)) for command in commands]
        texts = (frozenset(split_words(" ".join(map(document.field_text, FIELDS)))) for document in documents)
        counts = [len(words & text) for text in texts]
        return any(count >= _MIN_WORDS or count >= _MIN_SHARE * len(words) > 0 for count in counts)


def _join_ranks(*rankings: Sequence[str]) -> dict[str, float]:
    """Return scores by the ranks of a name in several rankings."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, name in enumerate(ranking):
            scores[name] = scores.get(name, 0.0) + 1 / (_RANK_OFFSET + rank)
    return scores


def _open_index(
    tools: Sequence[Tool], encoder: Encoder | None, cache: Path | None, progress: ProgressCallback | None
) -> ToolIndex:
    """Load the saved index of these tools, or build and save it.

    Older indexes of the kind are removed; a cache that cannot be used is ignored.
    """
    if cache is None:
        return _build(tools, encoder, progress)
    name = "words" if encoder is None else re.sub(r"\W+", "-", encoder.name)[:40]
    content = hashlib.sha256(msgspec.json.encode([_FORMAT, tools])).hexdigest()[:24]
    file = cache / f"commands-{name}-{content}.index"
    if not open_private_folder(cache):
        return _build(tools, encoder, progress)
    with suppress(ToolwireError, OSError, ValueError, RecursionError):
        if is_private_file(file):
            return ToolIndex.load(file, encoder)
    index = _build(tools, encoder, progress)
    with suppress(OSError):
        for old in cache.glob(f"commands-{name}-*.index"):
            old.unlink()
        index.save(file)
    return index


def _build(tools: Sequence[Tool], encoder: Encoder | None, progress: ProgressCallback | None) -> ToolIndex:
    index = ToolIndex(encoder)
    index.add(tools, progress=progress)
    return index


def _searched_tool(command: SystemCommand) -> Tool:
    """Return the text of a command as a tool: the summary, its tasks, and the first options."""
    tasks = COMMON_TASKS.get(command.name, "")
    about = ". ".join(text for text in (command.summary, tasks, "" if tasks else command.description[:200]) if text)
    properties = {option.name: {"description": option.description[:_MAX_ABOUT]} for option in command.options}
    kept = dict(list(properties.items())[:_MAX_OPTIONS])
    return Tool(command.tool_name, clean_text(about), {"type": "object", "properties": kept})


_COMMON_NAMES = frozenset(SystemCommand(tuple(name.split())).tool_name for name in COMMON_TASKS)
