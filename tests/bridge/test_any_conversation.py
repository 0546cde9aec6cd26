"""A conversation is translated to the same bytes, losses and errors with and without the cache of translations."""

import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from agent_conversations import edit_items, grow, random_request, random_tools, to_document
from recordings import WIRES
from toolwire.bridge.conversation.restored_turns import find_turn_keys, restore_known_turns, restore_turns, turn_keys
from toolwire.bridge.conversation.turns import StoredTurn
from toolwire.ir.errors import ToolwireError
from toolwire.ir.losses import Losses
from toolwire.ir.parts import Artefact, Reasoning, Text, ToolCall
from toolwire.ir.response import Response, Stop
from toolwire.net.model.endpoint import resolve
from toolwire.net.model.endpoint_request import EndpointRequest
from toolwire.net.model.translation_cache import TranslationCache
from toolwire.stream.strict import count_values, parse_object
from toolwire.wire import get

KEYS = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "key-of-a-test")
ENDPOINTS = [
    resolve("openai/gpt-4o", KEYS, wire="openai_chat"),
    resolve("openai/gpt-5", KEYS, wire="openai_responses"),
    resolve("anthropic/claude-sonnet-4-5", KEYS),
    resolve("anthropic/claude-sonnet-4-5", KEYS, wire="anthropic@2023-06-01"),
    resolve("gemini/gemini-3-pro-preview", KEYS),
    resolve("ollama/llama3.2", KEYS, extra_body={"keep_alive": 5}),
]
ANSWER = (Text("ok"), ToolCall("", "Read", {"path": "a"}), ToolCall("0", "mcp__git_status", {}))


def translate(request, endpoint, options, store):
    """Return everything that a caller sees of a translation."""
    losses = Losses()
    sent = EndpointRequest(
        replace(request, model=options["model"]),
        endpoint,
        stream=options["stream"],
        text=None,
        losses=losses,
        is_alias=options["is_alias"],
        store=store,
    )
    answer = sent.restore(Response("r", "m", ANSWER, Stop("tool_calls")))
    return sent.body, list(losses), dict(sent.headers), answer


def outcome(run):
    try:
        return run()
    except ToolwireError as error:
        return type(error), error.message, error.pointer, error.hint


def without_cache(wire, body, endpoint, options):
    def run():
        request = wire.decode_request(parse_object(body))
        keys = [find_turn_keys(request, by_text=by_text) for by_text in (True, False)]
        restored = restore_turns(request, options["turns"], endpoint.turn_origin)
        return msgspec.json.encode(request), keys, translate(restored, endpoint, options, None)

    return count_values(body), outcome(run)


def with_cache(cache, owner, wire, body, endpoint, options):
    reading = cache.open(owner, wire, body)

    def run():
        request, store = reading.decode(), reading.store
        keys = [find_turn_keys(request, by_text=by_text, store=store) for by_text in (True, False)]
        restored, store = restore_known_turns(request, options["turns"], endpoint.turn_origin, store)
        return msgspec.json.encode(request), keys, translate(restored, endpoint, options, store)

    if len(body) % 2:
        return reading.values, outcome(run), reading.reused
    result = outcome(run)
    return reading.values, result, reading.reused


def to_body(rng, document, field):
    """Write a document with the conversation in any place, and with any whitespace."""
    items = list(document.items())
    rng.shuffle(items)
    options = rng.choice(({}, {"separators": (",", ":"), "ensure_ascii": False}, {"indent": 1}))
    text = json.dumps(dict(items), **options)
    if rng.random() < 0.03:  # invalid documents
        text = rng.choice((text[:-1], text.replace("}", "}}", 1), f'{text[:-1]}, "{field}": []}}', text + "x"))
    return text.encode()


@settings(max_examples=settings.default.max_examples // 2)
@pytest.mark.parametrize("source", WIRES)
@given(seed=st.integers(0, 2**32))
def test_cache_changes_no_byte_of_a_conversation(source, seed):
    rng, wire = random.Random(seed), get(source)
    cache = TranslationCache(rng.choice((128 * 1024, *[4 * 1024 * 1024] * 4)))
    request = random_request(rng, rng.randint(1, 9))
    document, style, endpoints = to_document(request, source), random.Random(seed), rng.sample(ENDPOINTS, 2)
    turns, is_stored = {}, rng.random() < 0.4
    for _ in range(6):
        options = {
            "model": rng.choice(("client-model", "client-model", "gpt-5", "claude-sonnet-4-5")),
            "stream": rng.random() < 0.8,
            "is_alias": rng.random() < 0.8,
            "turns": _stored_turns(rng, request, endpoints[0], turns) if is_stored else {},
        }
        body = to_body(style, document, wire.conversation)
        style.seed(seed if rng.random() < 0.95 else rng.random())
        owner = "a" if rng.random() < 0.9 else "b"
        for endpoint in {rng.choice(endpoints), rng.choice(endpoints)}:
            *cached, _ = with_cache(cache, owner, wire, body, endpoint, options)
            assert tuple(cached) == without_cache(wire, body, endpoint, options)
        request, document = _next(rng, request, document, source)


def _stored_turns(rng, request, endpoint, turns):
    """Store some of the answers in the request with their reasoning, and return all that are stored."""
    for message in request.messages:
        if message.role == "assistant" and rng.random() < 0.3:
            signature = Artefact(endpoint.wire.provider, "signature", "c2ln", endpoint.model)
            hidden = rng.random() < 0.1
            call = ToolCall("hidden", "own", {}) if hidden else None
            parts = (Reasoning("thoughts", (), (signature,)), *([call] if call else []), *message.parts)
            results = (call.result("found"),) if call else ()
            turn = StoredTurn(parts, (), ("hidden",) if call else (), results, endpoint.turn_origin)
            turns.update((key, turn) for key in turn_keys(turn) if key not in turns)
    return dict(turns)


def _next(rng, request, document, source):
    """Return the next request of the client: usually a longer one, at times an edited one, or one with other tools."""
    change = rng.random()
    if change < 0.2:
        field = get(source).conversation
        return request, {**document, field: edit_items(rng, list(document[field]) or [{}])}
    if change < 0.3:
        request = replace(request, tools=random_tools(rng))
    elif change < 0.4:
        request = replace(request, messages=request.messages[: rng.randrange(1, len(request.messages) + 1)])
    elif change < 0.5:
        request = replace(request, params=replace(request.params, temperature=rng.random()))
    else:
        request = grow(rng, request, rng.randint(1, 3))
    try:
        return request, to_document(request, source)
    except ToolwireError:  # the conversation has no message to answer any more
        return request, document


@pytest.mark.parametrize("source", WIRES)
def test_growing_conversation_is_reused_by_its_owner_only(source):
    rng, wire, cache = random.Random(source), get(source), TranslationCache(4 * 1024 * 1024)
    request, reused = random_request(rng, 4), []
    options = {"model": "client-model", "stream": True, "is_alias": True, "turns": {}}
    for _ in range(4):
        body = json.dumps(to_document(request, source)).encode()
        *_, count = with_cache(cache, "a", wire, body, ENDPOINTS[2], options)
        reused.append(count)
        assert cache.open("b", wire, body).decode() == wire.decode_request(parse_object(body))
        request = grow(rng, request, 2)
    assert reused[0] == 0
    assert reused[1:] == sorted(reused[1:])
    assert reused[1] > 0
