"""A plain history is fitted to the same request, losses and origins as by the rules for any history."""

import random
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from recordings import WIRES
from toolwire.bridge.conversation import outline as history_outline
from toolwire.bridge.conversation.names import NameMap
from toolwire.bridge.conversation.outline import fit_plain, read_plain
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir.errors import ToolwireError
from toolwire.ir.losses import Losses
from toolwire.ir.parts import Artefact, Media, Opaque, Reasoning, Refusal, Text, ToolCall, ToolResult
from toolwire.ir.request import Message, Request
from toolwire.ir.tools import Tool
from toolwire.wire import get
from toolwire.wire.models.vendors import find, names

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
COUNTS = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
NAMES = ("get_weather", "get_time", "f")
STORED = (
    {"openai_responses": {"previous_response_id": "r"}},
    {"gemini": {"cachedContent": "c"}},
    {"anthropic": {"thread": {"id": "t"}}},
)
FORM = {"ollama~": {"content": ""}}
FOREIGN = {"openai_responses": {"id": "i", "status": "completed"}}
MODELS = {"openai_chat": "gpt-4o", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-3-pro-preview"}
DEFECTS = (
    lambda rng, part: replace(part, extra=rng.choice((FORM, FOREIGN, {**FORM, **FOREIGN}))),
    lambda rng, part: replace(part, cache="5m") if not isinstance(part, (Reasoning, Refusal)) else part,
    lambda rng, part: Text(rng.choice(("", " ", "\n\t"))),
    lambda rng, part: rng.choice(
        (
            Reasoning("hm", artefacts=(Artefact("anthropic", "signature", "s"),)),
            Refusal("No."),
            Media("image", "image/png", data="AA=="),
            Opaque("anthropic", "server_tool_use", {"type": "server_tool_use"}),
            Opaque("openai_responses", "item_reference", {"type": "item_reference", "id": "i"}),
            ToolCall("c", "f", {}),
            ToolResult("c", None, (Text("orphan"),)),
        )
    ),
    lambda rng, part: _break_call(rng, part) if isinstance(part, ToolCall) else part,
    lambda rng, part: _break_call(rng, part) if isinstance(part, ToolCall) else part,
    lambda rng, part: _break_result(rng, part) if isinstance(part, ToolResult) else part,
    lambda rng, part: _break_result(rng, part) if isinstance(part, ToolResult) else part,
)


def _break_call(rng, call):
    return rng.choice(
        (
            replace(call, id=rng.choice(("", "c0", "c1", "id with space", "x" * 70))),
            replace(call, name=rng.choice(("a.b", "undeclared", "n" * 70, ""))),
            replace(call, raw=""),
            replace(call, raw='{"n":12345678901234567890}', arguments={"n": 12345678901234567890}),
            replace(call, arguments=None, raw="{", state="invalid"),
            replace(call, kind="freeform", raw="text", arguments=None),
            replace(call, kind="search"),
            replace(call, namespace=rng.choice(("mcp", call.name))),
            replace(call, artefacts=(Artefact("google", "thought_signature", "s"),)),
        )
    )


def _break_result(rng, result):
    return rng.choice(
        (
            replace(result, call_id=rng.choice(("", "c0", "nobody"))),
            replace(result, name=rng.choice((*NAMES, None))),
            replace(result, is_error=True),
            replace(result, parts=(), structured={"a": 1}),
            replace(result, parts=()),
            replace(result, parts=(Text("a"), Text("b"))),
            replace(result, parts=(Text("a", cache="5m"),)),
            replace(result, parts=(Text(" "),)),
            replace(result, parts=(Media("image", "image/png", data="AA=="),)),
            replace(result, kind="freeform"),
            replace(result, namespace="mcp"),
            replace(result, found=("f",)),
            replace(result, cache="1h"),
        )
    )


def random_history(rng):
    """Return a plain history with a few random defects, often with none."""
    messages = [Message("system", (Text("Be brief."),))] * rng.choice((0, 1, 1, 2))
    count = 0
    for _ in range(rng.randint(0, 3)):
        if rng.random() < 0.9:
            messages.append(Message("user", tuple(Text(f"question {n}") for n in range(rng.choice((1, 1, 2))))))
        calls = [_random_call(rng, count + number) for number in range(rng.randint(0, 3))]
        count += len(calls)
        texts = (Text("answer"),) * rng.choice((0, 1)) if calls else (Text("answer"),)
        parts = (*texts, *calls)
        cut = rng.randint(0, len(parts)) if rng.random() < 0.3 else len(parts)
        messages += [Message("assistant", group) for group in (parts[:cut], parts[cut:]) if group]
        results = tuple(_result_of(rng, call) for call in calls)
        cut = rng.randint(0, len(results))
        messages += [Message("user", group) for group in (results[:cut], results[cut:]) if group]
    if rng.random() < 0.8:
        messages.append(Message("user", (Text("And now?"),)))
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        if messages:
            _break_message(rng, messages)
    return tuple(messages)


def _random_call(rng, number):
    call_id = f"c{number}" if rng.random() < 0.9 else rng.choice(("c0", "id with space", "x" * 70))
    name = rng.choice(NAMES) if rng.random() < 0.9 else rng.choice(("search_tools", "late", "counts", "a.b"))
    return ToolCall(call_id, name, {"city": "Paris"}, rng.choice((None, '{"city":"Paris"}')))


def _result_of(rng, call):
    return ToolResult(call.id, rng.choice((None, call.name)), (Text("12 degrees"),), is_error=rng.random() < 0.1)


def _break_message(rng, messages):
    index = rng.randrange(len(messages))
    message = messages[index]
    kind = rng.randrange(8)
    if kind == 0:
        del messages[index]
    elif kind == 1:
        messages.insert(rng.randrange(len(messages) + 1), message)
    elif kind == 2:
        messages[index] = replace(message, role=rng.choice(("system", "developer", "user", "assistant")))
    elif kind == 3:
        messages[index] = replace(message, parts=rng.choice(((), message.parts[::-1], message.parts * 2)))
    elif kind == 4:
        messages[index] = replace(message, extra=rng.choice((FORM, FOREIGN)))
    elif message.parts:
        number = rng.randrange(len(message.parts))
        part = message.parts[number]
        if not isinstance(part, Opaque):
            broken = rng.choice(DEFECTS)(rng, part)
            messages[index] = replace(message, parts=(*message.parts[:number], broken, *message.parts[number + 1 :]))


def random_request(rng, wire):
    tools = tuple(Tool(name, "d", SCHEMA) for name in NAMES[: rng.randint(0, 3)])
    if rng.random() < 0.1:
        tools = (*tools, Tool("run", "d", kind="freeform"))
    if rng.random() < 0.3:
        search = Tool("search_tools", "d", SCHEMA, kind=rng.choice(("function", "search")))
        tools = (*tools, search, Tool("late", "d", SCHEMA, deferred=True))
    if rng.random() < 0.3:  # its arguments have another shape on a target with strict tools
        tools = (*tools, Tool("counts", "d", COUNTS, strict=True))
    extra = {} if rng.random() < 0.7 else rng.choice(STORED)
    return Request(rng.choice(("m", MODELS.get(wire, "m"))), random_history(rng), tools, extra=extra)


@contextmanager
def any_history():
    """Fit all histories by the rules for any history."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_outline, "read_plain", lambda messages: None)
        yield


def outcome(request, wire):
    """Return everything that a caller sees of a fitted request."""
    try:
        prepared = prepare(request, wire)
    except ToolwireError as error:
        return type(error), error.message, error.pointer, error.hint
    fitted = prepared.request
    origins = [
        prepared.origin(f"/messages/{index}/parts/{number}")
        for index, message in enumerate(fitted.messages)
        for number in range(len(message.parts))
    ]
    destinations = [
        prepared.destination(f"/messages/{index}/parts/{number}")
        for index, message in enumerate(request.messages)
        for number in range(len(message.parts))
    ]
    exchange = prepared.exchange
    originals = [exchange.original_name(None, name) for name in (*NAMES, "a.b", "undeclared", "n" * 70)]
    return repr(fitted), list(prepared.losses), origins, destinations, originals, list(exchange.call_ids)


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_plain_history_is_fitted_as_any_history(wire, seed):
    request = random_request(random.Random(seed), wire)
    found = outcome(request, wire)
    with any_history():
        assert outcome(request, wire) == found


@pytest.mark.parametrize("wire", WIRES)
def test_many_random_histories_are_plain(wire):
    rng, target = random.Random(1), get(wire)
    histories = [read_plain(random_history(rng)) for _ in range(300)]
    plain = [history for history in histories if history is not None]
    assert len(plain) > 60
    fitted = [fit_plain(history, target, NameMap(target.limits, False), Losses(), {}) for history in plain]
    assert sum(turns is not None for turns in fitted) > len(plain) // 2


def test_no_vendor_rejects_a_source_form():
    groups = {group for name in names() for group, _ in find(name).rejected_fields}
    assert groups
    assert not any(group.endswith("~") for group in groups)
