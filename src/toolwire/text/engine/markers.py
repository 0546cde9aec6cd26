"""Marks in a turn outside its calls: openers of other formats, reasoning markers, special tokens and Markdown code.

All are compiled once from the data of a format. They decide which text is answer, reasoning, quotation, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

# The text with which only one format begins a call. One table for detection and for turns with mixed formats.


FORMAT_MARKERS: tuple[tuple[str, str], ...] = (
    ("<tool_call>", "hermes"),
    ("<longcat_tool_call>", "longcat"),
    ("<function_call> {", "granite_20b_fc"),
    ("<|function_call|>", "gigachat3"),
    ("<|message_sep|>\n\nfunction call", "gigachat3"),
    ("<|action_start|>", "internlm2"),
    ("<|python_tag|>", "llama3_json"),
    ("<|content_invoke_tool_json|>", "inkling"),
    ("[TOOL_CALLS]", "mistral_v11"),
    ("<|tool_call|>", "granite3"),
    ("<tool_calls>", "jamba"),
    ("<tool_calls:opensource>", "hy3"),
    ("<|tool_call:begin|>", "solar_open"),
    ("<TOOLCALL>", "nemotron_v2"),
    ("functools[", "phi4mini"),
    ("<|START_ACTION|>", "cohere_action"),
    ("<|tools_prefix|>", "apertus"),
    ("<｜tool▁calls▁begin｜>", "deepseek_v31"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<|tool_call_begin|>", "kimi_k2"),
    ("<function=", "function_xml"),
    ("<|channel|>", "harmony"),
    ("<seed:tool_call>", "seed_oss"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("]<]minimax[>[", "minimax_m3"),
    ("<｜DSML｜function_calls>", "deepseek_dsml_v32"),
    ("<｜DSML｜tool_calls>", "deepseek_dsml_v4"),
    ("<｜DSML｜ calls>", "deepseek_dsml_v41"),
    ("<｜GCML｜tool_calls>", "gigachat35"),
    ("<iquest_tool_call>", "iquest_q1"),
    ("<ifm|tool_calls>", "k2_horizon"),
    ("<|plamo:begin_tool_requests:plamo|>", "plamo3"),
    ("<steptml:invoke", "step3"),
    ("<dots_function_call>", "dots"),
    ("<atem:function_calls>", "muse_glimmer"),
    ("<function name=", "minicpm5"),
    ("<function_calls>", "anthropic_legacy_xml"),
    ("<|open|>tools", "kimi_k3"),
    ("<|python_start|>", "llama4_pythonic"),
    ("<|tool_call_start|>", "lfm2"),
    ("<|tool_call>call:", "gemma4"),
    ("<start_function_call>", "functiongemma"),
    ("<<function>>", "gorilla"),
)


@lru_cache(256)
def foreign_markers(own: tuple[str, ...]) -> tuple[str, ...]:
    """Return the signatures of other formats that have no meaning in this one."""
    return tuple(mark for mark, _ in FORMAT_MARKERS if not any(_overlaps(mark, word) for word in own))


def _overlaps(mark: str, word: str) -> bool:
    return bool(word) and (mark.startswith(word) or word.startswith(mark))


_TOKEN = re.compile(r"<[|｜]|\[/?[A-Z_]+\]|.*[|｜]>").match


def is_special_token(marker: str) -> bool:
    """Return whether a model writes the marker only on purpose; tags of plain characters may be text about calls."""
    return _TOKEN(marker) is not None


class ReasoningMarkers:
    """The markers of reasoning.

    `closers` are all closers; `closers_of` has them by opener. `tags` are openers that are recognised anywhere;
    `phrases` are openers in ordinary prose, which open reasoning only at the start of a message. `orphans` are closers
    that are recognised without an opener. `silent` are special tokens that are dropped inside reasoning.
    """

    __slots__ = ("closers", "closers_of", "openers", "orphans", "phrases", "silent", "tags")

    def __init__(self, pairs: Sequence[tuple[str, str]], noise: Sequence[str]) -> None:
        self.closers_of: dict[str, tuple[str, ...]] = {}
        for opener, closer in pairs:
            self.closers_of[opener] = (*self.closers_of.get(opener, ()), closer)
        self.closers = tuple(dict.fromkeys(closer for _, closer in pairs))
        self.openers = tuple(filter(None, self.closers_of))
        self.phrases = tuple(opener for opener in self.openers if _is_phrase(opener))
        self.tags = tuple(opener for opener in self.openers if not _is_phrase(opener))
        self.orphans = frozenset(closer for closer in self.closers if not _is_phrase(closer) and closer not in noise)
        self.silent = tuple(token for token in noise if is_special_token(token) and token not in self.closers)


@lru_cache(256)
def reasoning_markers(pairs: tuple[tuple[str, str], ...], noise: tuple[str, ...]) -> ReasoningMarkers:
    """Compile the pairs of a format, with a cache."""
    return ReasoningMarkers(pairs, noise)


def _is_phrase(marker: str) -> bool:
    return marker[:1].isalpha()


# Special tokens of models, which are never text, even if they open nothing.


HEAD = r"[\w-]*+(?: ++[\w-]++=\"[^\"\n]*+\")*+ *+"
"""The name of a marker and its attributes: ` role="assistant" index="1"`."""
_FENCE = "```"  # a marker may contain the start of a code block, whose end remains
_SPECIAL = re.compile(r"<\|[^|>]*\|?>|<[^|<>]*\|>|<｜[^｜]*｜>")


def begins_with_special_token(text: str) -> bool:
    return _SPECIAL.match(text) is not None


def remove_special_tokens(
    text: str, noise: Iterable[str], markers: Iterable[str], heads: Iterable[tuple[str, str]] = ()
) -> str:
    """Remove special tokens, `noise`, and those `markers` that contain a special token; keep all else byte for byte.

    `heads`: tokens around the name and the attributes of a marker, which are removed with them.

    >>> remove_special_tokens("<|open|>tools<|sep|>a < b<|sep|>", (), ("<|open|>tools<|sep|>", "<tag>"))
    'a < b'
    """
    tokens = [*noise, *(marker for marker in markers if _SPECIAL.search(marker) and _FENCE not in marker)]
    tokens.sort(key=len, reverse=True)
    whole = [f"{re.escape(opening)}{HEAD}{re.escape(closing)}" for opening, closing in heads]
    return re.sub("|".join((*whole, *map(re.escape, tokens), _SPECIAL.pattern)), "", text)


# Detect whether a position in Markdown text is quoted: inside a code block or inline code.
#
# This applies only after other text: a model that puts its whole answer into a code block is not quoting.


_FENCE_LINE = re.compile(r"\s*(`{3,}|~{3,})").match
_LANGUAGES = ("json", "python", "xml", "tool_call", "tool_code", "")
_OPENERS = tuple(f"```{language}{line}" for language in _LANGUAGES for line in ("\n", "\r\n"))
_MAX_LINE = 200  # maximum number of examined characters per line


@lru_cache(256)
def code_block_openers(openers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the opening fences of a code block around calls, except those that are `openers` of calls themselves."""
    return tuple(opener for opener in _OPENERS if opener not in openers)


class Fences:
    """Track code in the text given to `feed`: `in_code` is the state after it.

    `hold` keeps that state, because inline code may continue on the next line.
    """

    __slots__ = ("_after_text", "_has_text", "_held", "_line", "_mark", "_ticks")

    def __init__(self) -> None:
        self._line = ""  # the beginning of this line, without leading white space
        self._ticks = 0  # backticks in this line
        self._held = False  # inline code that contains a quoted tag continues on the next line
        self._mark = ""  # the opening fence of the current block
        self._has_text = False  # there is text before this line, outside blocks
        self._after_text = False  # the open block follows text

    def feed(self, piece: str) -> None:
        """Add text and update the state line by line; lines without marks are skipped."""
        stop = piece.find("\n")
        if stop < 0:
            self._append(piece)
            return
        if stop == len(piece) - 1:  # such as the end of a line between two calls
            self._append(piece[:stop])
            self.end_line()
            return
        marks = _Marks(piece)
        at = 0
        while stop >= 0:
            self._append(piece[at:stop])
            self.end_line()
            at = self._skip_plain_lines(piece, stop + 1, marks)
            stop = piece.find("\n", at)
        self._append(piece[at:])

    def _skip_plain_lines(self, piece: str, at: int, marks: _Marks) -> int:
        """Skip the complete lines before the next mark: their only effect is that there is text."""
        stop = -1 if self._held else piece.rfind("\n", at, marks.next(at))
        if stop < 0:
            return at
        if not (self._mark or self._has_text or piece[at : stop + 1].isspace()):
            self._has_text = True
        return stop + 1

    def _append(self, piece: str) -> None:
        if piece.find("`") >= 0:  # `count` is slower, and `in`
            self._ticks += piece.count("`")
        if len(self._line) < _MAX_LINE:
            self._line += (piece if self._line else piece.lstrip())[: _MAX_LINE - len(self._line)]

    def end_line(self) -> None:
        """Update the state at the end of a line: a fence opens or closes a block, and inline code usually ends."""
        fence, line = _FENCE_LINE(self._line), self._line.strip()
        if self._mark:
            if fence is not None and line.startswith(self._mark) and not line.strip(self._mark[0]):
                self._mark, self._has_text = "", True
        elif fence is not None and "`" not in line.lstrip("`"):
            self._mark, self._after_text = fence[1], self._has_text
        elif line:
            self._has_text = True
        self._held = self._held and bool(line) and self._ticks % 2 == 1
        self._ticks = 1 if self._held else 0
        self._line = ""

    def hold(self) -> None:
        self._held = not self._mark

    @property
    def in_code(self) -> bool:
        """Return whether the current position is inside a code block that follows text, or inside inline code."""
        if self._mark:
            return self._after_text
        if _FENCE_LINE(self._line) is not None:
            return self._has_text
        before = self._line.partition("`")[0].strip()
        return self._ticks % 2 == 1 and (self._has_text or bool(before))


class _Marks:
    """The positions of backticks and tildes in a piece."""

    __slots__ = ("_backtick", "_piece", "_tildes")

    def __init__(self, piece: str) -> None:
        self._piece = piece
        self._backtick = self._tildes = -1

    def next(self, at: int) -> int:
        """Return the position of the first mark from `at` on, or the end. `at` never decreases."""
        if self._backtick < at:
            self._backtick = self._find("`", at)
        if self._tildes < at:
            self._tildes = self._find("~~~", at)
        return min(self._backtick, self._tildes)

    def _find(self, mark: str, at: int) -> int:
        found = self._piece.find(mark, at)
        return len(self._piece) if found < 0 else found
