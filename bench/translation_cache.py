"""Compare policies for a full translation cache on recorded sessions of coding agents.

    python bench/translation_cache.py            hits of four policies, simulated
    python bench/translation_cache.py --time     CPU time per request of the cache itself, with 16, 64 and 256 MiB

Each agent repeats one of the sessions in `tests/fixtures/sessions`, from another request on. Agents send in turn, as in a closed
loop, or after pauses of ten seconds on average (lognormal). The size of a stored conversation is a multiple of its request
body, as `--time` prints it. A policy gets the agent as the identity of a conversation, which is more than the cache knows.
"""

import argparse
import heapq
import json
import lzma
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from conversation import endpoint_of, translate
from toolwire.net.model.translation_cache import TranslationCache
from toolwire.wire import get

SESSIONS = Path(__file__).parents[1] / "tests" / "fixtures" / "sessions"
MEGABYTE = 1024 * 1024
EXPANSION = 4.8  # bytes of the cache for a byte of the body
REQUESTS = 20_000
PAUSE = 10.0  # seconds
MIN_IDLE = 30.0  # seconds, as in the cache


def load_sessions() -> list[tuple[str, list[bytes]]]:
    """Return the wire and the request bodies of each recorded session."""
    files = sorted(SESSIONS.glob("*.json.xz"))
    documents = [json.loads(lzma.decompress(file.read_bytes())) for file in files]
    return [(document["wire"], [json.dumps(body).encode() for body in document["bodies"]]) for document in documents]


def requests_of(agents: int, *, in_turn: bool) -> Iterator[tuple[float, int, int]]:
    """Yield the time, the agent and the size of the body of each request."""
    rng = random.Random(1)
    sizes = [[len(body) for body in bodies] for _, bodies in load_sessions()]
    position = [rng.randrange(len(sizes[agent % len(sizes)])) for agent in range(agents)]
    due = [(agent * PAUSE / agents, agent) for agent in range(agents)]
    heapq.heapify(due)
    while True:
        now, agent = heapq.heappop(due)
        session = sizes[agent % len(sizes)]
        yield now, agent, session[position[agent] % len(session)]
        position[agent] += 1
        pause = PAUSE if in_turn else rng.lognormvariate(-0.5, 1.0) * PAUSE
        heapq.heappush(due, (now + pause, agent))


class LeastRecentlyUsed:
    """Drop the conversation that was not used for the longest time."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.entries: OrderedDict[int, tuple[float, float]] = OrderedDict()  # size and time of the last use
        self.size = 0.0

    def request(self, now: float, agent: int, size: float) -> bool:
        previous = self.entries.pop(agent, None)
        self.size -= 0.0 if previous is None else previous[0]
        if previous is not None or self.admits(now, agent, size):
            self.entries[agent] = (size, now)
            self.size += size
        while self.size > self.capacity:
            self.drop_oldest()
        return previous is not None

    def admits(self, now: float, agent: int, size: float) -> bool:
        """Return whether a new conversation is stored."""
        return True

    def drop_oldest(self) -> None:
        self.size -= self.entries.popitem(last=False)[1][0]


class KeepRecentlyUsed(LeastRecentlyUsed):
    """Store a new conversation only if there is room, or if the oldest conversation is idle: the policy of the cache."""

    def admits(self, now: float, agent: int, size: float) -> bool:
        while self.entries and self.size + size > self.capacity:
            if now - next(iter(self.entries.values()))[1] < MIN_IDLE:
                return False
            self.drop_oldest()
        return True


class TinyLfu(LeastRecentlyUsed):
    """Store a new conversation only if it was used more often than those that it replaces; counts are halved at times."""

    def __init__(self, capacity: float) -> None:
        super().__init__(capacity)
        self.uses: Counter[int] = Counter()

    def request(self, now: float, agent: int, size: float) -> bool:
        self.uses[agent] += 1
        if self.uses.total() > 5000:
            self.uses = Counter({name: count // 2 for name, count in self.uses.items() if count > 1})
        return super().request(now, agent, size)

    def admits(self, now: float, agent: int, size: float) -> bool:
        needed = self.size + size - self.capacity
        for other, (other_size, _) in self.entries.items():
            if needed <= 0:
                return True
            if self.uses[other] >= self.uses[agent]:
                return False
            needed -= other_size
        return True


class SegmentedLru(LeastRecentlyUsed):
    """Drop conversations without a hit first; those with a hit have up to 80 % of the cache."""

    def __init__(self, capacity: float) -> None:
        super().__init__(capacity)
        self.protected: OrderedDict[int, float] = OrderedDict()
        self.protected_size = 0.0

    def request(self, now: float, agent: int, size: float) -> bool:
        previous = self.protected.pop(agent, None)
        self.protected_size -= previous or 0.0
        if previous is None and agent not in self.entries:
            return super().request(now, agent, size)
        if previous is None:
            self.size -= self.entries.pop(agent)[0]
        self.size -= previous or 0.0
        self.protected[agent] = size
        self.protected_size += size
        self.size += size
        while self.protected_size > 0.8 * self.capacity:
            other, other_size = self.protected.popitem(last=False)
            self.protected_size -= other_size
            self.entries[other] = (other_size, now)
        while self.size > self.capacity:
            self.drop_oldest()
        return True


POLICIES = (LeastRecentlyUsed, SegmentedLru, TinyLfu, KeepRecentlyUsed)


def report_policies(megabytes: int) -> None:
    print(f"Share of the bodies' bytes whose conversation was found, in percent, with {megabytes} MiB:\n")
    print("| agents | requests | " + " | ".join(policy.__name__ for policy in POLICIES) + " |")
    print("|---|---|" + "---|" * len(POLICIES))
    for agents in (100, 200, 300, 600, 1200):
        for in_turn in (True, False):
            trace = list(islice(requests_of(agents, in_turn=in_turn), REQUESTS))
            shares = []
            for policy in POLICIES:
                cache = policy(megabytes * MEGABYTE)
                hits = [(size, cache.request(now, agent, EXPANSION * size)) for now, agent, size in trace]
                counted = hits[REQUESTS // 4 :]  # after the cache has filled
                shares.append(sum(size for size, hit in counted if hit) / sum(size for size, _ in counted))
            names = " | ".join(f"{share:.0%}" for share in shares)
            print(f"| {agents} | {'in turn' if in_turn else 'after pauses'} | {names} |", flush=True)


def report_times(agents: int, rounds: int) -> None:
    """Print the CPU time of a request of the cache itself, with agents in turn."""
    name, recorded = max(load_sessions(), key=lambda session: len(session[1][-1]))
    wire, endpoint, steps = get(name), endpoint_of("anthropic"), recorded[-rounds:]
    for megabytes in (16, 64, 256):
        cache = TranslationCache(megabytes * MEGABYTE)
        for body in steps:
            started = time.process_time()
            for agent in range(agents):
                translate(wire, _of_agent(body, agent), endpoint, cache, "a")
            seconds = (time.process_time() - started) / agents
        size = cache.size / len(cache) / len(steps[-1])
        print(
            f"{megabytes} MiB: {seconds * 1000:.2f} ms a request, {agents} agents, {len(steps[-1]) // 1000} kB, {len(cache)} stored,"
            f" {size:.1f} bytes for a byte of the body, {cache.events}"
        )


def _of_agent(body: bytes, agent: int) -> bytes:
    """Return the body with other texts: conversations with the same bytes at the same offset share eight places."""
    return body.replace(b" the ", b" the %d " % agent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", action="store_true", help="measure the cache itself instead")
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--agents", type=int, default=600)
    arguments = parser.parse_args()
    if arguments.time:
        report_times(arguments.agents, 4)
    else:
        report_policies(arguments.megabytes)


if __name__ == "__main__":
    main()
