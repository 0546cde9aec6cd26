"""Long conversations of a coding agent as documents of any wire, and random edits of them."""

import json

from msgspec.structs import replace

import toolwire
from toolwire.ir.parts import Artefact, Media, Reasoning, Text, ToolCall, ToolResult
from toolwire.ir.request import Message, Params, Request
from toolwire.ir.tools import Tool
from toolwire.wire import get

TOOL_NAMES = ("Read", "Edit", "Bash", "search files", "mcp__git.status", "x" * 70)
WORDS = (
    "test",
    "fails",
    "in",
    "line",
    "return",
    "null",
    "NaN",
    "é",
    "😀",
    '"quoted"',
    "\\",
    "{",
    "],",
    "\n    ",
    "1e999",
)
PROPERTIES = {"path": {"type": "string"}, "limit": {"type": "integer"}, "tags": {"type": "object"}}


def random_text(rng, size):
    return " ".join(rng.choices(WORDS, k=max(size // 5, 1)))


def random_tools(rng):
    count = rng.randint(1, len(TOOL_NAMES))
    schema = {"type": "object", "properties": PROPERTIES, "required": ["path"]}
    return tuple(
        Tool(name, random_text(rng, 20), schema, strict=rng.choice((None, None, True)))
        for name in rng.sample(TOOL_NAMES, count)
    )


def random_turn(rng):
    """Return a turn of the model and the results of its calls; some have reasoning, images or errors."""
    parts = [Text(random_text(rng, 30))] if rng.random() < 0.6 else []
    if rng.random() < 0.1:
        parts.insert(0, Reasoning("thinking", (), (Artefact("anthropic", "signature", "c2ln"),)))
    results = []
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        call_id = rng.choice((f"call_{rng.getrandbits(40):x}", "0", "id with space"))
        name = rng.choice(TOOL_NAMES)
        arguments = {"path": random_text(rng, 8), "limit": rng.choice((1, 1.0, 2**60)), "tags": {"a": [True, None]}}
        parts.append(ToolCall(call_id, name, arguments))
        content = [Text(random_text(rng, rng.choice((5, 300))))]
        if rng.random() < 0.1:
            content.append(Media("image", "image/png", "aGVsbG8="))
        results.append(ToolResult(call_id, name, tuple(content), is_error=rng.random() < 0.1))
    answer = [*results, *([Text(random_text(rng, 20))] if not results or rng.random() < 0.2 else [])]
    return [Message("assistant", tuple(parts or [Text("done")])), Message("user", tuple(answer))]


def random_request(rng, turns):
    """Return a conversation that is long enough for the cache."""
    messages = [Message("user", (Text(random_text(rng, 9000)),))]
    if rng.random() < 0.7:
        messages.insert(0, Message("system", (Text(random_text(rng, 50)),)))
    for _ in range(turns):
        messages += random_turn(rng)
    return Request("client-model", tuple(messages), random_tools(rng), params=Params(max_tokens=4000))


def to_document(request, wire):
    """Return the request as a client of `wire` would write it."""
    codec = get(wire)
    return json.loads(json.dumps(codec.encode_request(toolwire.prepare(request, codec).request).body))


def grow(rng, request, turns):
    return replace(request, messages=(*request.messages, *(one for _ in range(turns) for one in random_turn(rng))))


def edit_items(rng, items):
    """Change one item at random: remove, repeat, move, exchange or alter it."""
    index = rng.randrange(len(items))
    match rng.randrange(8):
        case 0:
            del items[index]
        case 1:
            items.insert(rng.randrange(len(items)), items[index])
        case 2:
            items.insert(rng.randrange(len(items)), items.pop(index))
        case 3:
            items.insert(index, {"role": "system", "content": "Be brief."})
        case 4:
            items.insert(index, {"role": "user", "content": "   "})
        case 5:
            items[index] = _alter(rng, items[index])
        case 6:
            items[index] = rng.choice((7, None, {}, {"role": "nobody"}, {"role": "user", "content": 5}))
        case _:
            del items[index:]
    return items


def _alter(rng, value):
    """Return a value with one scalar in it changed, such as 1 to 1.0, or with another field."""
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {
                **value,
                rng.choice(("cache_control", "name", "id", "extra")): rng.choice(("x", {"type": "ephemeral"})),
            }
        return {**value, key: _alter(rng, value[key])}
    if isinstance(value, list) and value:
        index = rng.randrange(len(value))
        return [*value[:index], _alter(rng, value[index]), *value[index + 1 :]]
    if isinstance(value, bool) or value is None:
        return rng.choice((True, False, None, 0))
    if isinstance(value, int | float):
        return rng.choice((value + 1, float(value), int(value)))
    return f"{value}!" if isinstance(value, str) else value
