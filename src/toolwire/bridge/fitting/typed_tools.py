"""Fit typed tools to a target that does not define them: they are functions there (see `wire/typed_tools.py`).

tool       `fit_typed_tool`      the function for a declaration
history    `express_items`       calls of the function and their results for the items of a wire
answer     `typed_calls`         the calls that the restorer returns in the form of the client's items
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import chain
from operator import add, is_

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.losses import Losses
from ...ir.parts import Opaque, Part, ToolCall
from ...ir.request import Message
from ...ir.tools import Tool
from ...wire import get, names
from ...wire.codec import WireCodec
from ...wire.typed_tools import FitArguments, TypedCodec
from ..conversation.fitted_prefix import PrefixStore
from ..conversation.outline import HistoryOutline


def fit_typed_tool(tool: Tool, path: str, losses: Losses) -> Tool:
    """Return the function for a typed tool. Options without an equivalent are losses, here or in the fields of `extra`."""
    codec = next((found for wire in tool.extra if (found := _typed_codec(wire)) is not None), None)
    function = replace(tool, kind="function") if codec is None else codec.as_function(tool)
    losses.add(path, "typed tool", "rewritten", f"sent as the function {tool.name!r}, with a schema", "info")
    if function.deferred:
        losses.add(f"{path}/defer_loading", "deferred loading", "dropped", "declared from the start", "info")
    return replace(function, deferred=None)


def _typed_codec(wire: str) -> TypedCodec | None:
    try:
        codec = get(wire)
    except ConfigError:
        return None  # a key of `extra` that is no wire
    return codec.typed if isinstance(codec, WireCodec) else None


def typed_calls(fitted: Iterable[tuple[Tool, int]], tools: Sequence[Tool]) -> dict[str, FitArguments]:
    """Return the functions that replace typed tools whose calls have items of their own, by their names on the target."""
    found: dict[str, FitArguments] = {}
    for tool, index in fitted:
        original = tools[index] if index >= 0 else tool
        if original.kind != "typed" or tool.kind == "typed":
            continue
        for wire in original.extra:
            codec = _typed_codec(wire)
            fit = None if codec is None else codec.fit_item(original)
            if fit is not None:
                found[tool.name] = fit
    return found


def express_items(messages: tuple[Message, ...], target: str, store: PrefixStore | None = None) -> tuple[Message, ...]:
    """Return the messages with calls and results of functions in place of the items of typed tools.

    It is the same object if there are none. The items of `target` stay, unless another provider made one of the calls
    in the conversation: a result must have the form of its call. `store` has the messages of earlier requests, so that
    these are the same objects again.
    """
    own = target if _typed_codec(target) is not None and not _has_typed_calls(messages) else ""
    express = partial(_express_all, own=own)
    expressed = express(messages) if store is None else store.scan(("typed items", own), messages, express, add)
    return messages if all(map(is_, expressed, messages)) else expressed


def _has_typed_calls(messages: tuple[Message, ...]) -> bool:
    parts = chain.from_iterable([message.parts for message in messages])
    return any(type(part) is ToolCall and part.kind == "typed" for part in parts)


def _express_all(messages: tuple[Message, ...], own: str) -> tuple[Message, ...]:
    return tuple([_express_message(message, own) for message in messages])


def _express_message(message: Message, own: str) -> Message:
    if _CONVERTED.isdisjoint(map(type, message.parts)):
        return message
    parts = tuple([_express_part(part, own) for part in message.parts])
    return message if all(map(is_, parts, message.parts)) else replace(message, parts=parts)


_CONVERTED = frozenset({Opaque, ToolCall})


def _express_part(part: Part, own: str) -> Part:
    """Return a part in the form of a function if it is a call or a result of a typed tool of another wire than `own`."""
    expressed: Part | None = None
    if isinstance(part, Opaque):
        codec = None if part.wire == own else _typed_codec(part.wire)
        expressed = None if codec is None or codec.read_part is None else codec.read_part(part)
    elif isinstance(part, ToolCall) and part.extra:
        for wire, read_call in _call_readers().items():
            if wire != own and wire in part.extra:
                expressed = expressed or read_call(part)
    return part if expressed is None else expressed


def has_typed_parts(outline: HistoryOutline) -> bool:
    """Return whether a part may be a call or a result of a typed tool."""
    return outline.has_opaque_parts or not outline.fields.keys().isdisjoint(_call_readers())


@cache
def _call_readers() -> dict[str, Callable[[ToolCall], ToolCall | None]]:
    """Return the functions that read calls of typed tools, by wire."""
    codecs = {wire: codec for wire in names() if (codec := _typed_codec(wire)) is not None}
    return {wire: codec.read_call for wire, codec in codecs.items() if codec.read_call is not None}
