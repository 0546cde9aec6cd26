"""Shorten results: the model gets the beginning and the end of a large one, and a reference in place of a repeated one.

The model reads the rest of a large result with tools (`calls/runtime_tools`). A result that the conversation already
contains is replaced by a reference to it, or by its changed lines.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec.structs import replace

from ...ir.parts import Text, ToolCall, ToolResult
from ...ir.request import Message
from ...ir.value import Value
from .results import NOTES_KEY, annotate

# Shorten large results: the model gets the beginning and the end, and reads the rest with tools (`output_tools`).


LIMIT = 64 * 1024  # characters, about 16,000 tokens: a longer result would take a large part of a model's context
READ_OUTPUT = "read_output"
SEARCH_OUTPUT = "search_output"
_MAX_TEXTS = 256  # texts of all runs; with the limit of each tool's result there are rarely more than a few in a run
_MAX_PATTERN = 200  # characters; a longer literal text is found by its beginning
_CONTEXT = 120  # characters around a match: about a line before and after it


class OutputMatch(Value, frozen=True):
    """A match in a stored output: its position, and the text around it."""

    offset: int
    text: str


class StoredOutputs:
    """The full texts of shortened results, by run and id. Keeps the latest ones, at most `max_size` characters.

    An id is unique within its run. A text can be read only with the id of its run.
    """

    # Characters; four results of the largest size that a generator may yield.
    def __init__(self, max_size: int = 256 * 1024 * 1024) -> None:
        self._max_size = max_size
        self._stored_size = 0
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._ids: OrderedDict[str, int] = OrderedDict()  # the number of the last id of each run

    def store(self, run_id: str, text: str) -> str | None:
        """Store a text and return its id; None if there is no run, or the text alone exceeds the limit.

        The oldest texts beyond the limits are deleted.
        """
        if not run_id or len(text) > self._max_size:
            return None
        number = self._ids.pop(run_id, 0) + 1
        self._ids[run_id] = number
        output_id = f"out{number}"
        self._texts[run_id, output_id] = text
        self._stored_size += len(text)
        while self._stored_size > self._max_size or len(self._texts) > _MAX_TEXTS:
            _, removed = self._texts.popitem(last=False)
            self._stored_size -= len(removed)
        while len(self._ids) > 2 * _MAX_TEXTS:
            self._ids.popitem(last=False)
        return output_id

    def has_any(self, run_id: str) -> bool:
        """Return True if a text of the run was stored, even if it has been deleted since."""
        return run_id in self._ids

    def size(self, run_id: str, output_id: str) -> int | None:
        """Return the length of a text; None if it is not stored, or no longer stored."""
        text = self._texts.get((run_id, output_id))
        return None if text is None else len(text)

    def read(self, run_id: str, output_id: str, offset: int = 0, length: int = LIMIT) -> str | None:
        """Return a slice of the text; None if it is not stored, or no longer stored."""
        text = self._texts.get((run_id, output_id))
        return None if text is None else text[max(0, offset) : max(0, offset) + max(0, length)]

    def search(
        self, run_id: str, output_id: str, pattern: str, *, start: int = 0, limit: int = 20
    ) -> list[OutputMatch] | None:
        """Find a literal text, in time linear in the size of the output; None if it is not stored.

        Without an exact match, upper and lower case are the same. The default limit is as many as `search_output` shows.
        """
        text = self._texts.get((run_id, output_id))
        if text is None:
            return None
        wanted, start = pattern[:_MAX_PATTERN], max(0, start)
        matches = _find_all(text, text, wanted, start, limit)
        if matches or not wanted:
            return matches
        lowered = text.lower()
        # a few letters change their length in lower case; positions would be wrong then
        return _find_all(text, lowered, wanted.lower(), start, limit) if len(lowered) == len(text) else []


def _find_all(text: str, searched: str, wanted: str, start: int, limit: int) -> list[OutputMatch]:
    matches: list[OutputMatch] = []
    at = searched.find(wanted, start) if wanted else -1
    while at >= 0 and len(matches) < limit:
        end = at + len(wanted)
        matches.append(OutputMatch(at, text[max(0, at - _CONTEXT) : end + _CONTEXT]))
        at = searched.find(wanted, max(end, at + _CONTEXT))
    return matches


def cap_result(result: ToolResult, limit: int, outputs: StoredOutputs | None = None, run_id: str = "") -> ToolResult:
    """Limit the text of a result to `limit` characters; media are not changed.

    The beginning and the end are kept. With `outputs`, the full text is stored for the run, and the notice names its
    id.
    """
    text = result.text
    if len(text) <= limit:
        return result
    head, tail = text[: limit * 3 // 4], text[len(text) - limit // 4 :]
    omitted = len(text) - len(head) - len(tail)
    output_id = None if outputs is None else outputs.store(run_id, text)
    instruction = "" if output_id is None else f"; {how_to_read(output_id, len(head))}"
    notice = f"{head}\n\n[… {omitted:,} of {len(text):,} characters omitted{instruction} …]\n\n{tail}"
    media = tuple(part for part in result.parts if not isinstance(part, Text))
    shortened = annotate(replace(result, parts=(Text(notice), *media), structured=None), left_out=omitted)
    return shortened if output_id is None else annotate(shortened, output=output_id)


def how_to_read(output_id: str, offset: int = 0) -> str:
    """Return the instruction for a model to read a stored output."""
    return f'read them with {READ_OUTPUT}(id="{output_id}", offset={offset}) or find text with {SEARCH_OUTPUT}'


_MIN_LENGTH = 400  # characters; a reference would not be much shorter
# Latest results of the same tool that are compared line by line; a model mostly repeats its last calls.
_MAX_COMPARED = 8
_MAX_ARGUMENTS = 200  # characters of the arguments in a reference: enough to recognise the call
_MAX_CHANGED_SHARE = 4  # a result is near-identical if less than a quarter of it has changed
_REPLACING_NOTES = frozenset({"shortened", "summarised", "duplicate_of"})


def replace_duplicate(call: ToolCall, result: ToolResult, messages: Sequence[Message]) -> ToolResult:
    """Return the result, shortened if an earlier one in `messages` has the same text or almost the same lines."""
    text = result.text
    if len(text) < _MIN_LENGTH or any(not isinstance(part, Text) for part in result.parts):
        return result
    for number, (earlier_call, earlier) in enumerate(_earlier_results(call.name, messages)):
        if number == _MAX_COMPARED:
            break
        note = _describe_difference(text, earlier.text, f"{earlier_call.name}({earlier_call.text[:_MAX_ARGUMENTS]})")
        if note is not None:
            shortened = replace(result, parts=(Text(note),), structured=None)
            return annotate(shortened, duplicate_of=earlier.call_id)
    return result


def _earlier_results(name: str, messages: Sequence[Message]) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Yield the results of a tool that the conversation still contains, latest first."""
    results: dict[str, ToolResult] = {}
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(part, ToolResult):
                results[part.call_id] = part
            elif isinstance(part, ToolCall) and part.name == name:
                found = results.get(part.id)
                if found is not None and not _REPLACING_NOTES.intersection(found.extra.get(NOTES_KEY, {})):
                    yield part, found


def _describe_difference(text: str, earlier: str, label: str) -> str | None:
    """Return a reference for an identical text, the changed lines of a similar one, or None."""
    if text == earlier:
        return f"[The same as the earlier result of {label}]"
    lines, earlier_lines = text.split("\n"), earlier.split("\n")
    first = _count_equal(lines, earlier_lines)
    last = _count_equal(lines[first:][::-1], earlier_lines[first:][::-1])
    changed = "\n".join(lines[first : len(lines) - last])
    note = (
        f"[{len(lines)} lines. The first {first} and the last {last} are those of the earlier result of {label}. "
        f"The lines between them:]\n{changed}"
    )
    return note if len(note) * _MAX_CHANGED_SHARE < len(text) else None


def _count_equal(first: Sequence[str], second: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
