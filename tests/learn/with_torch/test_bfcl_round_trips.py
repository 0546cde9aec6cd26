"""The leaderboard's calls through every wire and every text format: identical names, arguments and types come back.

Entries whose tools do not conflict share one document, because most of the time would be spent on declarations. Equal
calls of equal tools are written once by the text formats: writing and parsing depend on nothing else.
"""

import json
from functools import cache

import jsonschema_rs
import pytest
from msgspec.structs import replace

import toolwire.text
import toolwire.wire
from toolwire.bridge import prepare
from toolwire.ir.events import ResponseEnd
from toolwire.ir.folding import fold, unfold
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.request import Message, Request
from toolwire.ir.response import Response, Stop
from toolwire.ir.text import to_bytes
from toolwire.learn import check_calls, read_bfcl
from toolwire.learn.bfcl.entries import CALL_CATEGORIES, MULTI_TURN_CATEGORIES, RELEVANCE_CATEGORIES
from toolwire.testing import same

WIRES = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
MAX_TOOLS = 120  # the smallest provider limit is 128
GROUP = 100  # calls written in one turn
PIECE = 37  # characters, a length that cuts tags at different positions


class Batch:
    """Entries whose tools fit into one request, and all their calls, with distinct ids."""

    def __init__(self):
        self.tools = {}
        self.entries = []
        self.calls = []

    def takes(self, entry):
        """Return whether the tools of `entry` neither conflict with those of the batch nor exceed its size."""
        added = 0
        for tool in entry.tools:
            known = self.tools.get(tool.name)
            if known is None:
                added += 1
            elif known is not tool and known != tool:
                return False
        return len(self.tools) + added <= MAX_TOOLS

    def add(self, entry):
        for tool in entry.tools:
            self.tools.setdefault(tool.name, tool)
        self.entries.append((entry, len(self.calls), len(self.calls) + len(entry.all_calls)))
        self.calls += [replace(call, id=f"call_{len(self.calls) + at}") for at, call in enumerate(entry.all_calls)]


@cache
def batches():
    found = []
    for entry in read_bfcl(CALL_CATEGORIES + MULTI_TURN_CATEGORIES):
        batch = next((one for one in found if one.takes(entry)), None)
        if batch is None:
            batch = Batch()
            found.append(batch)
        batch.add(entry)
    return found


@cache
def checked_before():
    """Return the checker's results for the expected calls, by entry."""
    entries = [entry for batch in batches() for entry, _, _ in batch.entries if has_check(entry)]
    return {entry.id: check_calls(entry, entry.all_calls) for entry in entries}


def has_check(entry):
    return entry.category in CALL_CATEGORIES and entry.language == "python"


def meanings(calls):
    return [[call.name, call.arguments, call.state] for call in calls]


def find_calls(parts):
    return [part for part in parts if isinstance(part, ToolCall)]


def test_batches_hold_all_calls():
    calls = dict.fromkeys((CALL_CATEGORIES, MULTI_TURN_CATEGORIES), 0)
    for batch in batches():
        for entry, start, end in batch.entries:
            calls[CALL_CATEGORIES if entry.category in CALL_CATEGORIES else MULTI_TURN_CATEGORIES] += end - start
    assert list(calls.values()) == [3_302, 4_625]
    assert sum(result.valid for result in checked_before().values()) == 2_347
    assert len(checked_before()) == 2_351


def through_history(wire, prepared):
    """Send the calls as the history of a request, and return those that the provider reads."""
    body = json.loads(json.dumps(wire.encode_request(prepared.request).body))
    return Response(parts=tuple(find_calls(part for one in wire.decode_request(body).messages for part in one.parts)))


def through_response(wire, answer):
    return wire.decode_response(json.loads(json.dumps(wire.encode_response(answer).body)))


def through_stream(wire, answer, exchange):
    encoder, decoder, restorer = wire.stream_encoder(), wire.stream_decoder(), exchange.make_restorer()
    data = b"".join(encoder.feed(event) for event in unfold(answer))
    half = len(data) // 2
    events = [*decoder.feed(data[:half]), *decoder.feed(data[half:]), *decoder.close()]
    return fold([restored for event in events for restored in restorer.feed(event)])


@pytest.mark.parametrize("name", WIRES)
def test_calls_are_identical_after_a_wire(name):
    wire = toolwire.wire.get(name)
    results = {}
    for batch in batches():
        history = (
            Message("user", (Text("Begin."),)),
            Message("assistant", tuple(batch.calls)),
            Message("user", tuple(call.result("done") for call in batch.calls)),
        )
        prepared = prepare(Request("model", history, tuple(batch.tools.values())), wire)
        assert len(prepared.request.tools) == len(batch.tools)
        sent = find_calls(part for message in prepared.request.messages for part in message.parts)
        answer = Response(id="answer", model="model", parts=tuple(sent), stop=Stop("tool_calls"))
        restored = {
            "history": prepared.exchange.restore(through_history(wire, prepared)),
            "response": prepared.exchange.restore(through_response(wire, answer)),
            "stream": through_stream(wire, answer, prepared.exchange),
        }
        for kind, response in restored.items():
            calls = find_calls(response.parts)
            assert same(meanings(calls), meanings(batch.calls)), f"{kind}: {first_difference(calls, batch.calls)}"
        calls = find_calls(restored["stream"].parts)
        for entry, start, end in batch.entries:
            if has_check(entry):
                results[entry.id] = check_calls(entry, calls[start:end])
    assert results == checked_before()


def first_difference(calls, expected):
    pairs = zip(meanings(calls), meanings(expected), strict=False)
    return next((pair for pair in pairs if not same(*pair)), (len(calls), len(expected)))


def test_names_that_break_provider_rules_come_back():
    """The name of every tool, also of those without a call, is legal on the wire, unique, and maps back."""
    entries = read_bfcl(CALL_CATEGORIES + RELEVANCE_CATEGORIES)
    tools = {tool.name: tool for entry in entries for tool in entry.tools}
    listed = list(tools.values())
    changed = set()
    wire = toolwire.wire.get("openai_chat")
    for start in range(0, len(listed), MAX_TOOLS):
        some = listed[start : start + MAX_TOOLS]
        prepared = prepare(Request("model", (Message("user", (Text("Begin."),)),), tuple(some)), wire)
        assert len({tool.name for tool in prepared.request.tools}) == len(some)
        for tool, fitted in zip(some, prepared.request.tools, strict=True):
            assert prepared.exchange.original_name(None, fitted.name) == (None, tool.name)
            if fitted.name != tool.name:
                changed.add(tool.name)
    assert (len(tools), len(changed)) == (1_853, 871)


@cache
def groups():
    """Return groups of distinct calls with the tools of their batch."""
    found = []
    for batch in batches():
        distinct = list({(call.name, to_bytes(call.arguments)): call for call in batch.calls}.values())
        found += [(distinct[start : start + GROUP], batch.tools) for start in range(0, len(distinct), GROUP)]
    return found


def test_groups_hold_every_distinct_call():
    assert sum(len(calls) for calls, _ in groups()) == 4_000


def render(form, calls, tools):
    """Yield turns: calls, their text, and the indices of those that `render_calls` reports as lost.

    If one call breaks the reading of all others, the turn is split.
    """
    rendered = form.render_calls(calls, tools)
    lost = {int(loss.path.split("/")[2]) for loss in rendered.losses}
    if 1 < len(calls) == len(lost):
        half = len(calls) // 2
        yield from render(form, calls[:half], tools)
        yield from render(form, calls[half:], tools)
    else:
        yield calls, rendered.text, lost


ANY_TYPE = {  # a parameter of any type has a text that reads as another JSON value
    "RedissonAsyncCache.putIfAbsent",
    "NFILibrary.isMemberReadable",
    "invokeCallback",
    "propertyTransferredToCollectorBuilder",
}


def is_unavoidable(form, call, tool):
    """Return whether raw text cannot carry the call.

    Its arguments contradict the declared types, are undeclared, or have no declared type. A tag cannot have every name.
    """
    if call.name in ANY_TYPE or not jsonschema_rs.is_valid(tool.input_schema, call.arguments):
        return True
    if not call.arguments.keys() <= tool.input_schema["properties"].keys():
        return form.name == "cline_xml"
    return form.name == "minimax_m3" and "/Applications/MyApp.app" in json.dumps(call.arguments)


RAW_TEXT = {
    "anthropic_legacy_xml": 130, "cline_xml": 132, "dots": 130, "function_xml": 130, "glm45": 130, "glm47": 130,
    "hunyuan": 130, "hy3": 130, "iquest_q1": 130, "k2_horizon": 130, "minicpm5": 130, "minimax_m2": 130,
    "minimax_m3": 133, "muse_glimmer": 130, "poolside_v1": 130, "qwen3_xml": 130, "seed_oss": 130, "step3": 130,
    "toolformer": 1,
}  # fmt: skip
"""Distinct calls, of 4,000, that these formats report as lost; all others lose none."""


@pytest.mark.parametrize("name", toolwire.text.names())
def test_calls_are_identical_after_a_text_format(name):
    form = toolwire.text.get(name)
    reported = 0
    for number, (calls, declared) in enumerate(groups()):
        size = 1 if form.one_call else len(calls)
        for start in range(0, len(calls), size):
            some = calls[start : start + size]
            tools = [declared[call.name] for call in some] if form.one_call else list(declared.values())
            for turn, text, lost in render(form, some, tools):
                reported += len(lost)
                avoidable = [turn[at] for at in lost if not is_unavoidable(form, turn[at], declared[turn[at].name])]
                assert avoidable == []
                if (number + len(name)) % 8 == 0:
                    require_same_in_pieces(form, turn, text, lost, tools)
    assert reported == RAW_TEXT.get(name, 0)


def require_same_in_pieces(form, calls, text, lost, tools):
    """Check that every call without a reported loss is read unchanged from a stream."""
    parser = form.parser(tools)
    events = [event for start in range(0, len(text), PIECE) for event in parser.feed(text[start : start + PIECE])]
    found = find_calls(fold([*events, *parser.close(), ResponseEnd((Stop("stop"),))]).parts)
    assert len(found) == len(calls)
    for at, (call, expected) in enumerate(zip(found, calls, strict=True)):
        assert at in lost or same(meanings([call]), meanings([expected]))
