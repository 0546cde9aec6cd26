"""Prompt-cache marks: mark the stable prefix of a request, and fit marks to the target.

A target supports marks at some places only, up to a number, and with its own times to live.

A provider bills a cached prefix at a fraction of the price. OpenAI caches by itself and routes requests with the same
key to the same cache, Gemini needs neither. Anthropic caches only prefixes that a request marks. Its rules, as of
2026-10-08 (https://platform.claude.com/docs/en/build-with-claude/prompt-caching), and the marks that follow from them:

- A mark writes one cache entry, for the prefix that ends with the marked block. So the last user turn is marked: the
  next request of the conversation repeats everything up to it.
- A mark reads the longest entry that ends with its own block or with one of the 19 blocks before it. So the previous
  user turn is marked, too: it was the last one in the previous request, and the turns between may have more blocks.
- Other conversations share the tools and the system prompt. So the ends of both are marked.
- A request has at most four marks, and a prefix below the model's minimum is not cached.

A mark that was not needed costs nothing, but writing an entry costs a quarter more than plain input. A request without
tools and without an assistant turn is not marked, because nothing indicates that a second one will follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import accumulate
from typing import TypeAlias

from msgspec.structs import replace

from ...ir.losses import Losses
from ...ir.parts import Extra, Media, Part, Text, ToolCall, ToolResult
from ...ir.prompt_size import BYTES_PER_TOKEN, message_size, tools_size
from ...ir.request import Message, Request
from ...ir.tools import Tool
from ...wire.codec import WireCodec
from ...wire.models.capabilities import UNKNOWN_MODEL, ModelCapabilities
from ...wire.models.profiles import fit_codec
from ...wire.protocol import Wire
from ..conversation.history import DraftMessage, location_pointer

_Marked: TypeAlias = Text | Media | ToolCall | ToolResult | Tool
_MINUTES = {"5m": 5, "30m": 30, "1h": 60, "12h": 720}


def has_body_mark(extra: Extra, wire: str) -> bool:
    """Return whether the fields of a request on `wire` have Anthropic's mark of the whole body.

    Anthropic sets it on the last block, and counts it as one of the marks. Chat routers read it, too.
    """
    return wire in extra and type(extra[wire].get("cache_control")) is dict


def fit_mark(marked: _Marked, element: str, wire: Wire, path: str, losses: Losses) -> str | None:
    """Return the target's time to live: the shortest sufficient, or the longest if none is; None if no mark is allowed.

    A mark that the target's own wire has written in another form (`:cache`) is kept. Changes are added to `losses`.
    """
    ttl, can = marked.cache, wire.capabilities
    if ttl is None or ":cache" in marked.extra.get(f"{wire.name}~", {}):
        return ttl
    if element not in can.cache:
        losses.add(f"{path}/cache", "cache mark", "dropped", f"the target does not support one on a {element}", "info")
        return None
    if ttl == "default" or ttl in can.cache_ttls:
        return ttl
    wanted = _MINUTES.get(ttl, 0)
    fitted = next((known for known in can.cache_ttls if _MINUTES[known] >= wanted), can.cache_ttls[-1])
    losses.add(f"{path}/cache", "cache time to live", "rewritten", f"{ttl} was changed to {fitted}", "info")
    return fitted


def limit_marks(
    turns: list[DraftMessage], tools: list[Tool], wire: Wire, count: int, losses: Losses, *, has_body_mark: bool = False
) -> list[Tool]:
    """Keep as many marks as the target accepts, the last ones, and put longer times to live first. Return the tools.

    The prompt begins with the tools, then come the messages, which are changed in place; they have `count` marks.
    Dropped marks are losses.
    """
    limit = wire.limits.cache_marks
    if limit is None:
        return tools
    limit -= has_body_mark
    marked_tools = [index for index, tool in enumerate(tools) if tool.cache is not None]
    surplus = len(marked_tools) + count - limit
    if surplus > 0:
        detail = f"the target accepts {limit}; the last ones are kept"
        dropped = set(marked_tools[:surplus])
        for index in marked_tools[:surplus]:
            losses.add(f"/tools/{index}/cache", "cache mark", "dropped", detail, "info")
        tools = [replace(tool, cache=None) if index in dropped else tool for index, tool in enumerate(tools)]
        _drop_first_marks(turns, surplus - len(dropped), detail, losses)
    return _order_ttls(turns, tools, wire.capabilities.cache_ttls, losses)


def _drop_first_marks(turns: list[DraftMessage], surplus: int, detail: str, losses: Losses) -> None:
    """Remove the first `surplus` marks of the messages in place, each with a loss."""
    for number, turn in enumerate(turns):
        marked = _marked_parts(turn)
        if surplus and marked:
            for index in marked[:surplus]:
                path = location_pointer(turn.locations[index])
                losses.add(f"{path}/cache", "cache mark", "dropped", detail, "info")
            turns[number] = _with_marks(turn, dict.fromkeys(marked[:surplus]))
            surplus -= min(surplus, len(marked))


def _order_ttls(turns: list[DraftMessage], tools: list[Tool], ttls: tuple[str, ...], losses: Losses) -> list[Tool]:
    """Raise the time to live of each mark to the longest after it. Return the tools; messages are changed in place.

    Anthropic rejects a longer time after a shorter one (agno-agi/agno#8406). The later mark stores everything before it
    for as long, and at the same price.
    """
    marks: list[tuple[int, int, str | None]] = [
        (-1, index, tool.cache) for index, tool in enumerate(tools) if tool.cache is not None
    ]
    marks += [
        (number, index, _mark_of(turn.parts[index]))
        for number, turn in enumerate(turns)
        for index in _marked_parts(turn)
    ]
    ranks = [ttls.index(ttl) if ttl in ttls else 0 for _, _, ttl in marks]  # "default" is the first
    longest_after = [*accumulate(reversed(ranks), max)][::-1]
    for (number, index, ttl), rank, longest in zip(marks, ranks, longest_after, strict=True):
        if rank == longest:
            continue
        path = f"/tools/{index}" if number < 0 else location_pointer(turns[number].locations[index])
        detail = f"{ttl} was changed to {ttls[longest]}, which a later mark has"
        losses.add(f"{path}/cache", "cache time to live", "rewritten", detail, "info")
        if number < 0:
            tools = [*tools[:index], replace(tools[index], cache=ttls[longest]), *tools[index + 1 :]]
        else:
            turns[number] = _with_marks(turns[number], {index: ttls[longest]})
    return tools


def _mark_of(part: Part) -> str | None:
    return getattr(part, "cache", None)


def _marked_parts(turn: DraftMessage) -> list[int]:
    return [index for index, part in enumerate(turn.parts) if _mark_of(part) is not None]


def _with_marks(turn: DraftMessage, marks: Mapping[int, str | None]) -> DraftMessage:
    parts = tuple([_with_mark(part, marks[index]) if index in marks else part for index, part in enumerate(turn.parts)])
    return DraftMessage(replace(turn.message, parts=parts), parts, turn.locations)


def _with_mark(part: Part, ttl: str | None) -> Part:
    return replace(part, cache=ttl) if isinstance(part, (Text, Media, ToolCall, ToolResult)) else part


_SYSTEM_ROLES = ("system", "developer")
_TTL = "default"
_MARKED_TURNS = 2  # the end of this request, and the end of the previous one, which has its entry there
_LOOKBACK = 20  # blocks in which a mark finds an entry, with its own

_Position: TypeAlias = tuple[int, int]  # of a message in a request, and of a part in it
RememberMarked: TypeAlias = Callable[[Message, Callable[[Message], Message]], Message]


def mark_stable_prefix(request: Request, wire: Wire, model: ModelCapabilities = UNKNOWN_MODEL) -> Request:
    """Return the request with cache marks or a cache key, as its wire and its model support them.

    Marks and keys that the request already has are kept: its author chose them.
    """
    if model is not UNKNOWN_MODEL and isinstance(wire, WireCodec):
        wire = fit_codec(wire, model)
    if "part" not in wire.capabilities.cache or _has_marks(request):
        return request
    if wire.limits.cache_marks is not None:
        return place_marks(request, wire)
    if request.params.cache_key is not None:
        return request
    return replace(request, params=replace(request.params, cache_key=_make_key(request)))


def place_marks(request: Request, wire: Wire, remember: RememberMarked | None = None) -> Request:
    """Return a request without marks with the marks of this module; the same object if it gets none.

    The cost depends on the last turns, not on the length of the conversation. `remember` returns the marked system
    message of an earlier request, so that the text of the messages after it can be reused.
    """
    messages, can, max_marks = request.messages, wire.capabilities.cache, wire.limits.cache_marks
    if not can or max_marks is None or not (request.tools or any(map(_is_assistant, messages))):
        return request
    first = _first_cacheable(request, wire.limits.cache_minimum)
    # first < 0: the tools alone are long enough to be cached
    tools = _mark_tools(request.tools) if first < 0 and "tool" in can else request.tools
    turns = [position for index in _last_turns(messages) if (position := _last_markable(messages, index, can))]
    positions = [position for position in turns if position[0] >= first]
    system = _count_system(messages) - 1
    if system >= max(first, 0) and (position := _last_markable(messages, system, can)):
        positions.append(position)
    positions += _positions_between(messages, positions, can)
    if tools is request.tools and not positions:
        return request
    marked = list(messages)
    for index, number in positions[: max_marks - (tools is not request.tools)]:
        mark = partial(_mark_part, number=number)
        marked[index] = remember(messages[index], mark) if remember and index == system else mark(marked[index])
    return replace(request, tools=tools, messages=tuple(marked))


def _has_marks(request: Request) -> bool:
    if any(has_body_mark(request.extra, wire) for wire in request.extra):
        return True
    if any(tool.cache is not None for tool in request.tools):
        return True
    return any(getattr(part, "cache", None) is not None for message in request.messages for part in message.parts)


def _make_key(request: Request) -> str:
    """Return a key for the beginning of the prompt: the model, the first tool and the system messages.

    Tools that appear during a run are appended last and do not change it.
    """
    digest = sha256(request.model.encode())
    if request.tools:
        digest.update(b"\x00tool\x00" + request.tools[0].name.encode(errors="replace"))
    for message in request.messages[: _count_system(request.messages)]:
        for part in message.parts:
            digest.update(b"\x00system\x00" + getattr(part, "text", "").encode(errors="replace"))
    return f"tw-{digest.hexdigest()[:32]}"


def _is_assistant(message: Message) -> bool:
    return message.role == "assistant"


def _count_system(messages: Sequence[Message]) -> int:
    """Return the number of leading system messages."""
    roles = (index for index, message in enumerate(messages) if message.role not in _SYSTEM_ROLES)
    return next(roles, len(messages))


def _first_cacheable(request: Request, minimum: int) -> int:
    """Return the index of the first message that ends a prefix of `minimum` tokens, or -1 if the tools are enough.

    If the whole request is shorter, return the number of messages.
    """
    missing = minimum * BYTES_PER_TOKEN
    tools = [tool for tool in request.tools if not tool.deferred]  # a deferred one is not at the prompt's beginning
    # the descriptions of most agents are enough, and no schema has to be written to find its size
    if sum([len(tool.description or "") for tool in tools]) >= missing or (missing := missing - tools_size(tools)) <= 0:
        return -1
    for index, message in enumerate(request.messages):
        missing -= message_size(message)
        if missing <= 0:
            return index
    return len(request.messages)


def _last_turns(messages: Sequence[Message]) -> Iterator[int]:
    """Yield the indices of the messages that end the last user turns, the last one first."""
    count, next_role = 0, ""
    for index in range(len(messages) - 1, -1, -1):
        role = messages[index].role
        if role == "user" and next_role != "user":  # adjacent user messages are one turn
            yield index
            count += 1
            if count == _MARKED_TURNS:
                return
        next_role = role


def _last_markable(messages: Sequence[Message], index: int, can: frozenset[str]) -> _Position | None:
    parts = messages[index].parts
    return next(((index, number) for number in range(len(parts) - 1, -1, -1) if _is_markable(parts[number], can)), None)


_KINDS: dict[type, str] = {Text: "part", Media: "part", ToolResult: "result", ToolCall: "call"}


def _is_markable(part: Part, can: frozenset[str]) -> bool:
    """Return whether a part may have a mark. Providers reject a mark on a blank text or on reasoning."""
    return _KINDS.get(type(part)) in can and not (type(part) is Text and (not part.text or part.text.isspace()))


def _positions_between(messages: Sequence[Message], marked: list[_Position], can: frozenset[str]) -> list[_Position]:
    """Return more positions between the last two user turns if the earlier one is outside the last mark's lookback.

    A client that goes back to the middle of a turn with many calls then finds an entry there.
    """
    if len(marked) < _MARKED_TURNS:
        return []
    (last, last_number), (start, start_number) = marked[:_MARKED_TURNS]
    blocks = [
        (index, number)
        for index in range(start, last + 1)
        for number in range(len(messages[index].parts))
        if (start, start_number) < (index, number) < (last, last_number)
    ]
    # the same blocks in each request until the next turn, because they are counted from the earlier mark
    regular = range(_LOOKBACK - 1, len(blocks), _LOOKBACK)
    return [blocks[at] for at in regular if _is_markable(messages[blocks[at][0]].parts[blocks[at][1]], can)]


def _mark_tools(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Mark the last tool that may have a mark: not a deferred one, which is not part of the prompt's beginning."""
    for index in range(len(tools) - 1, -1, -1):
        tool = tools[index]
        if tool.kind == "function" and not tool.deferred:
            return (*tools[:index], replace(tool, cache=_TTL), *tools[index + 1 :])
    return tools


def _mark_part(message: Message, number: int) -> Message:
    parts = message.parts
    part = parts[number]
    assert isinstance(part, (Text, Media, ToolCall, ToolResult))
    return replace(message, parts=(*parts[:number], replace(part, cache=_TTL), *parts[number + 1 :]))
