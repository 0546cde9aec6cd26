"""What is remembered in one process has an end: in number, in bytes and in time."""

import asyncio

from toolwire.bridge.conversation.turns import InMemoryTurns, StoredTurn
from toolwire.ir.parts import Artefact, Reasoning


def kept(size=1):
    return StoredTurn((Reasoning("", artefacts=(Artefact("google", "thought_signature", "x" * size),)),))


def known(memory, *call_ids, caller="ann"):
    return sorted(asyncio.run(memory.load(caller, list(call_ids))))


def keep(memory, call_id, one, caller="ann"):
    asyncio.run(memory.save(caller, [call_id], one, one.to_json()))


def test_newest_entries_are_kept():
    memory = InMemoryTurns(2, 10**6, 60.0, lambda: 0.0)
    for call_id in ("a", "b", "a", "c"):
        keep(memory, call_id, kept())
    assert known(memory, "a", "b", "c") == ["a", "c"]


def test_total_size_is_limited():
    memory = InMemoryTurns(100, 10_000, 60.0, lambda: 0.0)
    for call_id in ("a", "b", "c"):
        keep(memory, call_id, kept(4_000))
    assert known(memory, "a", "b", "c") == ["b", "c"]
    keep(memory, "b", kept(1))
    keep(memory, "d", kept(4_000))
    assert known(memory, "b", "c", "d") == ["b", "c", "d"]
    keep(memory, "e", kept(20_000))  # larger than the memory
    assert known(memory, "b", "c", "d", "e") == ["b", "c", "d"]


def test_entries_expire_and_are_private_to_a_caller():
    now = 0.0
    memory = InMemoryTurns(2, 10**6, 60.0, lambda: now)
    keep(memory, "a", kept())
    now = 59.0
    assert known(memory, "a") == ["a"]
    assert known(memory, "a", caller="bob") == []
    now = 60.0
    assert known(memory, "a") == []
