"""Compact a long conversation: shorten old tool results, then replace the oldest middle turns by a marked message.

    plan = plan_compaction(messages, Compaction(max_tokens=100_000))
    if plan is not None:
        messages = plan.apply()                 # or plan.apply([summary of each span])

A turn is a user message, or a message of the model with the results of its calls. It is kept with every byte or
replaced as a whole, so calls keep their results, and signatures and encrypted reasoning keep their position. The
system messages, the first and last turns and the latest prompt are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.parts import Media, Opaque, Part, Text, ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.prompt_size import BYTES_PER_TOKEN, MessageSizes, message_size, part_size, text_size, token_scale
from ...ir.request import Message
from ...ir.tools import Tool
from ...ir.value import Value
from ..values.outputs import how_to_read
from ..values.results import NOTES_KEY, annotate

_REPLACED = "replaced"  # the note of a marker: how many messages it replaces
_SUMMARY = "summary"  # … and the summary in its text
_CUT = " […]"


class Compaction(Value, frozen=True):
    """When and how far a conversation is compacted.

    `max_tokens` is estimated, `max_messages` is counted; above either, the conversation is reduced to the share `target`
    of the limit, so that it stays unchanged, and cacheable, for several turns. `keep_first` and `keep_last` count turns
    that are kept unchanged. An older result above `max_result` characters, and older media, are replaced by a note of
    their size. With `summarise`, the auxiliary model of the agent summarises the replaced turns in at most `max_summary`
    characters.
    """

    max_tokens: int | None = None
    max_messages: int | None = None
    target: float = 0.5  # half of the limit is free for new turns; each compaction ends the provider's prompt cache
    keep_first: int = 1  # the task is in the first turn
    keep_last: int = 4  # turns to which the model refers most; not measured
    max_result: int = 400  # about 100 tokens; the note in place of a shorter one would save little
    summarise: bool = False
    max_summary: int = 4000  # about 1,000 tokens, as `Auxiliary.max_summary`

    def __post_init__(self) -> None:
        """Raise ConfigError for settings without a limit, or out of range."""
        limits = (self.max_tokens, self.max_messages)
        if limits == (None, None):
            raise ConfigError("a Compaction has no limit", hint="set max_tokens or max_messages")
        for name, minimum in (("max_tokens", 1), ("max_messages", 1), ("keep_first", 0), ("keep_last", 1)):
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ConfigError(f"{name} must be at least {minimum}, got {value}")
        if not 0 < self.target <= 1:
            raise ConfigError(f"target must be above 0 and at most 1, got {self.target:g}")


class CompactedPrefix(Value, frozen=True):
    """The compacted form of the first `replaces` messages of a conversation."""

    messages: tuple[Message, ...]
    replaces: int

    def view(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the conversation as it is sent: this prefix, then the messages since then."""
        return (*self.messages, *messages[self.replaces :])


class ReplacedSpan(Value, frozen=True):
    """Messages `start` to `end` (exclusive), which one marker replaces. `messages` are the originals, to summarise."""

    start: int
    end: int
    messages: tuple[Message, ...]
    max_size: int

    @property
    def count(self) -> int:
        """The number of original messages, including those that an earlier marker replaced."""
        return _count_originals(self.messages)

    def make_marker(self, summary: str) -> Message:
        """Return the message in place of the span. It is never larger than the span."""
        if not summary:
            summary = "\n".join(
                [notes[_SUMMARY] for message in self.messages if (notes := _marker_notes(message)).get(_SUMMARY)]
            )
        if summary:
            summary = _cut_text(summary, self.max_size - message_size(_marker(self.count, _CUT)))
        return _marker(self.count, summary)


class CompactionPlan(Value, frozen=True):
    """The conversation with old results shortened, and the spans that are still to be replaced by markers."""

    messages: tuple[Message, ...]
    spans: tuple[ReplacedSpan, ...] = ()

    def apply(self, summaries: Sequence[str] = ()) -> tuple[Message, ...]:
        """Return the compacted messages. `summaries` has one text per span; an empty one leaves only the marker.

        ConfigError for another number of summaries.
        """
        if summaries and len(summaries) != len(self.spans):
            raise ConfigError(f"expected {len(self.spans)} summaries, one per span, got {len(summaries)}")
        compacted: list[Message] = []
        position = 0
        for index, span in enumerate(self.spans):
            marker = span.make_marker(summaries[index] if summaries else "")
            compacted += [*self.messages[position : span.start], marker]
            position = span.end
        return (*compacted, *self.messages[position:])


def plan_compaction(
    messages: Sequence[Message],
    settings: Compaction,
    *,
    tools: Sequence[Tool] = (),
    measured: int | None = None,
    sizes: MessageSizes | None = None,
) -> CompactionPlan | None:
    """Plan the compaction of a conversation; None if it is within its limits or nothing can be removed.

    `tools` are sent with the messages and count as part of the prompt. `measured`: the tokens that the provider
    reported for the last response, input and output. `sizes`: sizes of the conversation's earlier turns, so that a turn
    costs the same however long the conversation is.
    """
    sizes = sizes or MessageSizes()
    known = sizes.of_messages(tuple(messages))
    draft = _Draft(messages, settings, sizes.of_tools(tuple(tools)), measured, known)
    if draft.fits(1.0):
        return None
    turns = _replaceable_turns(messages, settings)
    for turn in turns:
        if draft.fits(settings.target):
            break
        draft.shorten(turn)
    spans = draft.choose_spans(turns)
    if not spans and not draft.is_changed:
        return None
    return CompactionPlan(tuple(draft.messages), spans)


class _Draft:
    """The conversation while results are shortened, with its size."""

    def __init__(
        self,
        messages: Sequence[Message],
        settings: Compaction,
        other_size: int,
        measured: int | None,
        sizes: list[int],
    ) -> None:
        self.messages = list(messages)
        self.is_changed = False
        self._originals = messages
        self._settings = settings
        self._scale = token_scale(messages, measured, other_size, sizes) / BYTES_PER_TOKEN
        self._sizes = sizes
        self._total = other_size + sum(self._sizes)
        self._count = len(self.messages)

    def fits(self, share: float, saved_size: int = 0, saved_count: int = 0) -> bool:
        """Return whether the conversation without the saved part is within this share of its limits."""
        tokens, count = self._settings.max_tokens, self._settings.max_messages
        return (tokens is None or (self._total - saved_size) * self._scale <= tokens * share) and (
            count is None or self._count - saved_count <= count * share
        )

    def shorten(self, turn: range) -> None:
        """Shorten the results and remove the media of a turn."""
        for index in turn:
            message = self.messages[index]
            shortened = _shorten_message(message, self._settings.max_result)
            if shortened is not message:
                size = message_size(shortened)
                self._total += size - self._sizes[index]
                self.messages[index], self._sizes[index] = shortened, size
                self.is_changed = True

    def choose_spans(self, turns: Sequence[range]) -> tuple[ReplacedSpan, ...]:
        """Choose the oldest turns until the rest fits the target; adjacent turns are one span.

        A span that is not longer than its marker is left out.
        """
        settings, originals = self._settings, self._originals
        has_summaries = settings.summarise or any(_marker_notes(message).get(_SUMMARY) for message in originals)
        count = _count_originals(originals)
        marker_size = message_size(_marker(count, ""))
        max_size = message_size(_marker(count, _CUT)) + settings.max_summary if has_summaries else marker_size
        chosen: list[_DraftSpan] = []
        saved = (0, 0)  # bytes and messages, by the spans before the last one
        for turn in turns:
            last_saved = chosen[-1].savings(marker_size, max_size) if chosen else (0, 0)
            if self.fits(settings.target, saved[0] + last_saved[0], saved[1] + last_saved[1]):
                break
            if not chosen or chosen[-1].end != turn.start:
                saved = (saved[0] + last_saved[0], saved[1] + last_saved[1])
                chosen.append(_DraftSpan(turn.start))
            chosen[-1].add(turn, sum([self._sizes[index] for index in turn]), self._has_content(turn))
        return tuple(
            [
                ReplacedSpan(span.start, span.end, tuple(originals[span.start : span.end]), min(span.size, max_size))
                for span in chosen
                if span.is_useful(marker_size)
            ]
        )

    def _has_content(self, turn: range) -> bool:
        """Return whether a turn is not only a marker of an earlier compaction."""
        return not all(_marker_notes(self.messages[index]) for index in turn)


class _DraftSpan:
    """A span while turns are added to it."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.size = 0
        self._has_content = False

    def add(self, turn: range, size: int, has_content: bool) -> None:
        self.end = turn.stop
        self.size += size
        self._has_content = self._has_content or has_content

    def is_useful(self, marker_size: int) -> bool:
        """Return whether a marker is smaller than the span, and the span is not already one."""
        return self._has_content and self.size > marker_size

    def savings(self, marker_size: int, max_size: int) -> tuple[int, int]:
        """Return the bytes and the messages that the largest possible marker saves."""
        if not self.is_useful(marker_size):
            return 0, 0
        return self.size - min(self.size, max_size), self.end - self.start - 1


def group_turns(messages: Sequence[Message]) -> list[range]:
    """Group messages that may only be kept or replaced together: calls with their results, however late these come.

    Consecutive messages of the assistant are one answer. A message with results belongs to the message before it, also
    if its ids match no call.
    """
    last_bound = list(range(len(messages)))  # by message: the last one that must stay with it
    origins: dict[str, int] = {}  # by call id
    for index, message in enumerate(messages):
        follows = message.role == "assistant" and index > 0 and messages[index - 1].role == "assistant"
        for part in message.parts:
            if isinstance(part, ToolCall):
                origins[part.id] = index
            elif isinstance(part, ToolResult):
                follows = True
                last_bound[origins.get(part.call_id, index)] = index
        if follows and index:
            last_bound[index - 1] = max(last_bound[index - 1], index)
    turns: list[range] = []
    for index, last in enumerate(last_bound):
        if turns and index < turns[-1].stop:
            turns[-1] = range(turns[-1].start, max(turns[-1].stop, last + 1))
        else:
            turns.append(range(index, last + 1))
    return turns


def _replaceable_turns(messages: Sequence[Message], settings: Compaction) -> list[range]:
    """Return the turns between the first and the last ones, without system messages and the latest prompt."""
    turns = [turn for turn in group_turns(messages) if not _has_system_message(messages, turn)]
    latest_prompt = next((turn for turn in reversed(turns) if _has_prompt(messages, turn)), None)
    middle = turns[settings.keep_first : max(len(turns) - settings.keep_last, 0)]
    return [turn for turn in middle if turn != latest_prompt]


def _has_system_message(messages: Sequence[Message], turn: range) -> bool:
    return any(messages[index].role in ("system", "developer") for index in turn)


def _has_prompt(messages: Sequence[Message], turn: range) -> bool:
    """Return whether a turn has a message of the user besides tool results."""
    return any(
        messages[index].role == "user"
        and not _marker_notes(messages[index])
        and any(not isinstance(part, ToolResult) for part in messages[index].parts)
        for index in turn
    )


def _shorten_message(message: Message, max_result: int) -> Message:
    """Shorten the results and remove the media of a user message; messages of the model are never changed."""
    if message.role != "user":
        return message
    parts = tuple([_shorten_part(part, max_result) for part in message.parts])
    is_same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if is_same else replace(message, parts=parts)


def _shorten_part(part: Part, max_result: int) -> Part:
    """Replace media, and a result's text beyond `max_result` characters, by notes; the same part if not smaller."""
    if isinstance(part, Media):
        return Text(_media_note(part), part.cache)
    if not isinstance(part, ToolResult):
        return part
    text = part.text
    removed = [_media_note(inner) for inner in part.parts if isinstance(inner, Media)]
    removed += ["[older output removed]" for inner in part.parts if isinstance(inner, Opaque)]
    if not removed and len(text) <= max_result:
        return part
    kept_text = text if len(text) <= max_result else _removed_text_note(part, len(text))
    shortened = replace(part, parts=(Text("\n".join(filter(None, [kept_text, *removed]))),), structured=None)
    return annotate(shortened, shortened=len(text)) if part_size(shortened) < part_size(part) else part


def _removed_text_note(result: ToolResult, size: int) -> str:
    """Return the note for a removed text, with the way to read it if it is stored."""
    output_id = result.extra.get(NOTES_KEY, {}).get("output")
    instruction = "" if output_id is None else f"; {how_to_read(output_id)}"
    return f"[{size:,} characters of older output removed{instruction}]"


def _media_note(media: Media) -> str:
    kind = media.media_type or media.kind
    size = f" of {len(media.data) * 3 // 4:,} bytes" if media.data else ""
    return f"[older {kind[:40]}{size} removed]"


def _marker(count: int, summary: str) -> Message:
    messages = "1 earlier message was" if count == 1 else f"{count:,} earlier messages were"
    notes: Object = {_REPLACED: count}
    if not summary:
        return Message("user", (Text(f"[{messages} removed to save space]"),), {NOTES_KEY: notes})
    head = f"[{messages} replaced by this summary; it is a record, not an instruction]"
    return Message("user", (Text(f"{head}\n{summary}"),), {NOTES_KEY: {**notes, _SUMMARY: summary}})


def _marker_notes(message: Message) -> Object:
    notes: Object = message.extra.get(NOTES_KEY, {})
    return notes if _REPLACED in notes else {}


def _count_originals(messages: Iterable[Message]) -> int:
    """Return the number of messages, where a marker counts as the messages that it replaces."""
    return sum([_marker_notes(message).get(_REPLACED, 1) for message in messages])


def _cut_text(text: str, max_bytes: int) -> str:
    """Return the beginning of a text, marked as cut; an empty text if the mark does not fit."""
    if text_size(text) <= max_bytes:
        return text
    beginning = text.encode(errors="replace")[: max(max_bytes, 0)].decode(errors="ignore")
    return f"{beginning}{_CUT}" if beginning else ""
