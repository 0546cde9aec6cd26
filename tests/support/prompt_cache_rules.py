"""A model of Anthropic's prompt cache, written from its documentation and independent of our code.

    cache = PromptCache(minimum=1024)
    cache.send(body).read                 # tokens that were read from the cache

https://platform.claude.com/docs/en/build-with-claude/prompt-caching (2026-10-08): the prompt is tools, system, messages,
in this order. A mark writes one entry, for the prefix up to its block, unless that is below the model's minimum. A mark
reads the longest entry that ends with its own block or one of the 19 blocks before it. There are at most four marks,
none on an empty text or on thinking, and no longer time to live after a shorter one. A `cache_control` of the body is a
mark on the last block that may have one, and counts as one of the four. Four bytes count as a token.
"""

import json
from hashlib import sha256
from typing import NamedTuple

LOOKBACK = 20
MAX_MARKS = 4
UNMARKABLE = ("thinking", "redacted_thinking")


class Usage(NamedTuple):
    """Tokens of one request. `best` is the longest prefix that an earlier request had, with an entry after each block."""

    read: int
    written: int
    plain: int
    best: int

    @property
    def total(self) -> int:
        return self.read + self.written + self.plain

    @property
    def cost(self) -> float:
        """In units of a plain input token: a write to the 5-minute cache costs 1.25, a read 0.1."""
        return 0.1 * self.read + 1.25 * self.written + self.plain


class Block(NamedTuple):
    text: bytes  # as it was sent, without its mark
    ttl: str | None  # of its mark


def read_blocks(body: dict) -> list[Block]:
    """Return the blocks in prompt order. The message is part of its first block, because its role is in the prompt."""
    blocks = [_block("tool", tool) for tool in body.get("tools", [])]
    system = body.get("system", [])
    blocks += [_block("system", block) for block in ([system] if isinstance(system, str) else system)]
    for message in body["messages"]:
        content = message["content"]
        for number, block in enumerate([content] if isinstance(content, str) else content):
            blocks.append(_block(message["role"] if number == 0 else "", block))
    if (mark := body.get("cache_control")) is not None:
        last = max(number for number, block in enumerate(blocks) if b'thinking"' not in block.text[:40])
        ttl = mark.get("ttl", "5m")
        marks = sum(block.ttl is not None for block in blocks)
        assert marks < MAX_MARKS, f"Found {marks + 1}"
        assert blocks[last].ttl in (None, ttl), "another time to live than the body's"
        blocks[last] = blocks[last]._replace(ttl=ttl)
    return blocks


def _block(role: str, block: dict | str) -> Block:
    if isinstance(block, str):
        return Block(json.dumps([role, block]).encode(), None)
    mark = block.get("cache_control")
    assert "cache_control" not in json.dumps(block.get("content")), "a mark inside a result"
    if mark is not None:
        assert mark["type"] == "ephemeral"
        assert block.get("type") not in UNMARKABLE, "thinking cannot be marked"
        assert block.get("type") != "text" or block["text"].strip(), "an empty text cannot be marked"
        assert not block.get("defer_loading"), "a deferred tool cannot be marked"
    unmarked = {name: value for name, value in block.items() if name != "cache_control"}
    return Block(json.dumps([role, unmarked]).encode(), None if mark is None else mark.get("ttl", "5m"))


def count_tokens(blocks: list[Block]) -> int:
    return sum(len(block.text) for block in blocks) // 4


def prefix_before_last_mark(body: dict) -> bytes:
    """Return everything up to the last marked block, as it was sent, without marks; empty if there is no mark."""
    blocks = read_blocks(body)
    last = max((number for number, block in enumerate(blocks) if block.ttl is not None), default=-1)
    return b"\n".join(block.text for block in blocks[: last + 1])


class PromptCache:
    def __init__(self, minimum: int) -> None:
        self._minimum = minimum
        self._entries: set[bytes] = set()
        self._seen: set[bytes] = set()

    def send(self, body: dict) -> Usage:
        blocks = read_blocks(body)
        marks = [number for number, block in enumerate(blocks) if block.ttl is not None]
        assert len(marks) <= MAX_MARKS, f"{len(marks)} marks"
        ttls = [blocks[number].ttl for number in marks]
        assert ttls == sorted(ttls), "a longer time to live after a shorter one"  # "1h" is before "5m"
        digest, prefixes = sha256(), []
        for block in blocks:
            digest.update(block.text + b"\n")
            prefixes.append(digest.digest())
        read = max((self._find(prefixes, number) for number in marks), default=-1) + 1
        best = max((number + 1 for number, prefix in enumerate(prefixes) if prefix in self._seen), default=0)
        large = [number for number in range(len(blocks)) if count_tokens(blocks[: number + 1]) >= self._minimum]
        assert all(number in large for number in marks), "a mark below the minimum"
        self._entries.update(prefixes[number] for number in marks)
        self._seen.update(prefixes[number] for number in large)
        end = marks[-1] + 1 if marks else 0
        sizes = count_tokens(blocks[:read]), count_tokens(blocks[:end]), count_tokens(blocks)
        return Usage(sizes[0], sizes[1] - sizes[0], sizes[2] - sizes[1], count_tokens(blocks[:best]))

    def _find(self, prefixes: list[bytes], mark: int) -> int:
        window = range(mark, max(mark - LOOKBACK, -1), -1)
        return next((number for number in window if prefixes[number] in self._entries), -1)
