"""The cache of translations: what it stores, for whom, and how much."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolwire.bridge import prepare
from toolwire.ir.errors import ProtocolError
from toolwire.ir.text import to_bytes
from toolwire.net.model.translation_cache import TranslationCache
from toolwire.stream.strict import count_values, parse_object
from toolwire.wire import get

CHAT = get("openai_chat")
LONG = "The test fails in line 7. " * 400
MEGABYTE = 1024 * 1024


def turn(number):
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "run", "arguments": f'{{"n": {number}}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"result {number}"},
    ]


def make_body(turns, task=LONG, **fields):
    messages = [{"role": "user", "content": task}, *(item for number in range(turns) for item in turn(number))]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def read(cache, body, owner="a", wire=CHAT):
    """Decode a request twice, and return the number of reused messages."""
    reading = cache.open(owner, wire, body)
    assert reading.values == count_values(body)
    assert reading.decode() == wire.decode_request(parse_object(body))
    return reading.reused


def test_second_request_reuses_all_but_the_last_turns():
    cache = TranslationCache(MEGABYTE)
    assert [read(cache, make_body(turns)) for turns in (5, 6, 6, 9)] == [0, 7, 9, 9]
    assert len(cache) == 1


def test_repeated_request_is_reused():
    cache = TranslationCache(MEGABYTE)
    assert [read(cache, make_body(5)) for _ in range(3)] == [0, 7, 7]


def test_small_document_is_not_stored():
    cache = TranslationCache(MEGABYTE)
    assert [read(cache, make_body(5, task="short")) for _ in range(2)] == [0, 0]
    assert len(cache) == cache.size == 0


def test_conversation_of_another_owner_is_not_used():
    cache = TranslationCache(MEGABYTE)
    assert read(cache, make_body(5), owner="a") == 0
    assert read(cache, make_body(6), owner="b") == 0
    assert read(cache, make_body(6), owner="a") == 7


def test_conversation_of_another_wire_is_not_used():
    cache = TranslationCache(MEGABYTE)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": LONG}] * 2}).encode()
    assert read(cache, body) == 0
    assert read(cache, body, wire=get("ollama")) == 0


def test_bytes_are_bounded_and_other_owners_keep_theirs():
    cache = TranslationCache(MEGABYTE)
    for owner in ("b", "c"):
        read(cache, make_body(5, task=f"{owner}{LONG}"), owner=owner)
    for number in range(200):
        read(cache, make_body(5, task=f"{number}{LONG}"), owner="a")
        assert cache.size <= MEGABYTE
    assert len(cache) > 10
    assert read(cache, make_body(6, task=f"b{LONG}"), owner="b") == 7
    assert read(cache, make_body(6, task=f"c{LONG}"), owner="c") == 7
    assert read(cache, make_body(6, task=f"199{LONG}"), owner="a") == 7
    assert read(cache, make_body(6, task=f"0{LONG}"), owner="a") == 0


def test_conversation_that_is_too_large_is_not_stored():
    cache = TranslationCache(64 * 1024)
    assert read(cache, make_body(5, task=LONG * 3)) == 0
    assert len(cache) == cache.size == 0


def test_bytes_of_translations_are_counted():
    cache = TranslationCache(MEGABYTE)
    reading = cache.open("a", CHAT, make_body(5))
    request = reading.decode()
    before = cache.size
    prepared = prepare(request, "anthropic", store=reading.store)
    prepared.encode(get("anthropic"))
    assert cache.size >= before + len(LONG)


def test_cleared_cache_is_empty():
    cache = TranslationCache(MEGABYTE)
    read(cache, make_body(5))
    cache.clear()
    assert len(cache) == cache.size == 0
    assert read(cache, make_body(5)) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:-2],
        lambda body: body + b"x",
        lambda body: body.replace(b"result 6", b"result \xff"),
        lambda body: body.replace(b'"model": "m"', b'"model": "m", "model": "m"'),
        lambda body: body[:-1] + b', "messages": []}',
        lambda body: body.replace(b'"content": "result 6"', b'"content": 6'),
        lambda body: body.replace(b'"content": "result 6"', b'"content": 1e999'),
        lambda body: body.replace(b'"model": "m"', b'"model": 5'),
    ],
)
def test_error_after_known_messages_is_the_same(change):
    cache, body = TranslationCache(MEGABYTE), make_body(7)
    read(cache, make_body(5))
    changed = change(body)
    assert changed != body
    with pytest.raises(ProtocolError) as expected:
        CHAT.decode_request(parse_object(changed))
    with pytest.raises(ProtocolError) as raised:
        cache.open("a", CHAT, changed).decode()
    assert str(raised.value) == str(expected.value)
    assert raised.value.pointer == expected.value.pointer


def test_same_items_in_a_nested_field_are_not_the_conversation():
    cache = TranslationCache(MEGABYTE)
    known = json.loads(make_body(6))
    read(cache, make_body(5))
    document = {"metadata": {"messages": known["messages"]}, "messages": [{"role": "user", "content": "hi"}]}
    assert read(cache, json.dumps(document).encode()) == 0


def test_equal_numbers_of_another_spelling_are_not_reused():
    cache = TranslationCache(MEGABYTE)
    wire = get("anthropic")
    block = {"type": "tool_use", "id": "t1", "name": "run", "input": {"n": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    turns = [{"role": "assistant", "content": [block]}, {"role": "user", "content": [result]}] * 4
    messages = [{"role": "user", "content": LONG}, *turns]
    body = json.dumps({"model": "m", "max_tokens": 5, "messages": messages}).encode()
    first = cache.open("a", wire, body)
    prepare(first.decode(), "gemini", store=first.store).encode(get("gemini"))
    changed = body.replace(b'"n": 1', b'"n": 1.0', 1)
    reading = cache.open("a", wire, changed)
    request = reading.decode()
    assert type(request.messages[1].parts[0].arguments["n"]) is float
    sent = prepare(request, "gemini", store=reading.store).encode(get("gemini"))
    expected = prepare(request, "gemini").encode(get("gemini"))
    assert to_bytes(sent.body) == to_bytes(expected.body)


def test_conversations_of_many_threads_are_read_correctly():
    cache = TranslationCache(MEGABYTE)

    def converse(number):
        return [read(cache, make_body(turns, task=f"{number % 4}{LONG}"), owner="a") for turns in range(2, 12)]

    with ThreadPoolExecutor(8) as pool:
        reused = list(pool.map(converse, range(16)))
    assert cache.size <= MEGABYTE
    assert all(counts[-1] > 0 for counts in reused)


def task_of(agent):
    """A task of which no part is equal to another task's."""
    return f"task of agent {agent}; " * 800


@pytest.mark.finding("OP7")
def test_more_conversations_than_fit_leave_those_that_are_stored():
    now = 0.0
    cache = TranslationCache(MEGABYTE, lambda: now)
    agents = range(200)

    def converse(turns):
        """One request of each agent, in turn. Return the agents whose conversation was found."""
        nonlocal now
        now += 5
        return {agent for agent in agents if read(cache, make_body(turns, task=task_of(agent)), owner="a")}

    assert converse(2) == set()
    found = converse(3)
    assert 10 < len(found) < 200
    assert converse(4) <= found  # a stable part of them
    assert len(converse(5)) >= len(found) * 0.8  # they grow, so that fewer fit
    assert cache.size <= MEGABYTE
    assert cache.events["hit"] + cache.events["miss"] == 4 * 200
    assert cache.events["refusal"] > cache.events["eviction"]


@pytest.mark.finding("OP7")
def test_new_conversation_replaces_an_idle_one():
    now = 0.0
    cache = TranslationCache(MEGABYTE, lambda: now)
    for agent in range(200):
        read(cache, make_body(2, task=task_of(agent)))
    assert read(cache, make_body(3, task=task_of(199))) == 0
    now += 60  # the agents have ended
    for agent in range(200, 210):
        read(cache, make_body(2, task=task_of(agent)))
    assert all(read(cache, make_body(3, task=task_of(agent))) for agent in range(200, 210))
    assert read(cache, make_body(3, task=task_of(0))) == 0


@pytest.mark.finding("OP7")
def test_owner_of_most_bytes_makes_room_for_others():
    cache = TranslationCache(MEGABYTE, lambda: 0.0)
    for agent in range(200):
        read(cache, make_body(2, task=task_of(agent)), owner="a")
    read(cache, make_body(2, task=LONG), owner="b")
    assert read(cache, make_body(3, task=LONG), owner="b") > 0


class CountedBody(bytes):
    """A body that counts its comparisons with known beginnings."""

    comparisons = 0

    def startswith(self, *arguments):
        self.comparisons += 1
        return super().startswith(*arguments)


@pytest.mark.finding("OP7")
def test_repetitive_text_is_compared_once_with_each_conversation():
    """Eight conversations and a text that has their last bytes at every offset: 7 s for 16 MB before."""
    cache = TranslationCache(MEGABYTE)
    for number in range(8):
        read(cache, make_body(5, task="a" * 40_000 + f"b{number}"))
    assert len(cache) == 8
    body = CountedBody(make_body(5, task="a" * 200_000))
    cache.open("a", CHAT, body)
    assert body.comparisons <= 8
