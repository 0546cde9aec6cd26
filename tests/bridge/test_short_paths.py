"""Short paths of a translation give the results of the full ones: repeated tools, and answers without changes."""

import pytest

from tables import every_case
from toolwire.bridge.conversation.names import NameMap
from toolwire.bridge.fitting import tools as fitting
from toolwire.bridge.fitting.tool_search import NO_SEARCH
from toolwire.bridge.restoration.restorer import Restorer
from toolwire.bridge.translation.exchange import Exchange
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir import CallDelta, CallStart, Message, Opaque, Request, Response, Stop, Text, Tool, ToolCall
from toolwire.ir.losses import Losses
from toolwire.testing import load_vectors
from toolwire.wire import get

WIRES = ("openai_chat", "anthropic", "cohere", "gemini", "ollama", "openai_responses", "gemini_interactions")


def requests(wire):
    vectors = load_vectors(f"tests/vectors/wire/{wire}.json")
    return [get(wire).decode_request(vector.body) for vector in vectors if vector.kind == "request"]


def responses(wire):
    vectors = load_vectors(f"tests/vectors/wire/{wire}.json")
    return [get(wire).decode_response(vector.body) for vector in vectors if vector.kind == "response"]


def fit(request, target, fit_function):
    names, losses = NameMap(target.limits, target.capabilities.namespaces), Losses()
    tools, lifts = fit_function(request, target, names, losses, (0, 0), None, NO_SEARCH)
    mapped = [names.to_wire(tool.namespace, tool.name) for tool in request.tools]
    return tools, {name: lifts[name].schema for name in lifts}, mapped, list(losses)


@every_case("target", WIRES)
@every_case("source", WIRES)
def test_repeated_tools_are_fitted_as_the_first_time(source, target):
    codec = get(target)
    for request in requests(source):
        plain = Request(tools=tuple(tool for tool in request.tools if tool.kind == "function" and not tool.deferred))
        if plain.tools and len({(tool.namespace, tool.name) for tool in plain.tools}) == len(plain.tools):
            full = fit(plain, codec, fitting._fit_any)
            assert fit(plain, codec, fitting.fit_tools) == full
            assert fit(plain, codec, fitting.fit_tools) == full


def test_tools_with_another_value_are_fitted_again():
    target = get("anthropic")
    first = Request(tools=(Tool("f", "a", {"type": "object", "properties": {"x": {"const": 1}}}),))
    second = Request(tools=(Tool("f", "a", {"type": "object", "properties": {"x": {"const": 1.0}}}),))
    for request in (first, second, first):
        fitted = fit(request, target, fitting.fit_tools)[0]
        assert repr(fitted) == repr([(request.tools[0], 0)])


@every_case("target", WIRES)
@every_case("source", WIRES)
def test_unchanged_answer_equals_that_of_the_restorer(source, target):
    client = get(target).capabilities
    for response in responses(source):
        for exchange in (Exchange(), *(prepare_all(response, source))):
            losses, full_losses = Losses(), Losses()
            restored = exchange.restore(response, losses, client)
            assert restored == exchange.make_restorer(full_losses, client).restore(response)
            assert list(losses) == list(full_losses)


def prepare_all(response, source):
    """Yield the exchanges of requests that a call of the answer concerns in different ways."""
    call = next(iter(response.calls), ToolCall("c1", "f", {}))
    schema = {"type": "object"}
    messages = (Message("user", (Text("x"),)),)
    earlier = (*messages, Message("assistant", (ToolCall(call.id or "c0", "f", {}),)))
    for request in (
        Request("m", messages, (Tool(call.name, "d", schema),)),
        Request("m", messages, (Tool(call.name, "d", schema),), parallel=False),
        Request("m", messages, (Tool(call.name, "d", kind="freeform"),)),
        Request("m", messages, (Tool(f"{call.name}.x", "d", schema),)),
        Request("m", earlier, (Tool(call.name, "d", schema),)),
    ):
        yield prepare(request, source).exchange


@pytest.mark.parametrize(
    "response",
    [
        Response(parts=(ToolCall("", "f", {}),), stop=Stop("tool_calls")),
        Response(parts=(ToolCall("a", "f", {}), ToolCall("a", "f", {})), stop=Stop("tool_calls")),
        Response(parts=(ToolCall("a", "f", None, "{", "truncated"),), stop=Stop("tool_calls")),
        Response(parts=(ToolCall("a", "f", {}, ""),), stop=Stop("tool_calls")),
        Response(parts=(Text("a"),)),
        Response(),
        Response(parts=(Text("a"),), stop=Stop("refusal", detail="No.")),
        Response(parts=(Opaque("anthropic", "x", {"type": "x"}),), stop=Stop("stop")),
    ],
)
def test_unusual_answer_is_restored_as_before(response):
    for target in WIRES:
        client = get(target).capabilities
        losses, full_losses = Losses(), Losses()
        restored = Exchange().restore(response, losses, client)
        assert restored == Exchange().make_restorer(full_losses, client).restore(response)
        assert list(losses) == list(full_losses)


def test_arguments_pass_together_once_they_cannot_be_null(monkeypatch):
    """The first fragments are held, because they may become `null`; the others take no step each."""
    steps, feed = [], Restorer.feed

    def count(self, event):
        steps.append(event)
        return feed(self, event)

    monkeypatch.setattr(Restorer, "feed", count)
    deltas = [CallDelta(0, b" "), CallDelta.of(0, '{"a":['), *[CallDelta(0, b"1,")] * 100, CallDelta(0, b"1]}")]
    start = CallStart(0, "c1", "f")
    restored = Exchange().make_restorer(Losses(), get("openai_chat").capabilities).feed_all([start, *deltas])
    assert restored == [start, CallDelta.of(0, ' {"a":['), *deltas[2:]]
    assert steps == [start, *deltas[:2]]
