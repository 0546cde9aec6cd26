"""Measure the translation of a long conversation: its first request, the later ones, and the memory of the cache.

python bench/conversation.py                       CPU time for each ordered pair of wires
python bench/conversation.py --memory              memory over 1,000 conversations of 20 keys
python bench/conversation.py --pair openai_chat anthropic --rounds 20

The conversation is like that of a coding agent: 200 turns with calls and results, 9 tools, about 293 kB. Every later
request has one more turn. A request is what the gateway does with it: count the values, decode, fit, encode.
"""

import argparse
import gc
import json
import os
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

from msgspec.structs import replace

from toolwire.bridge import prepare
from toolwire.ir.losses import Losses
from toolwire.ir.parts import Text, ToolCall, ToolResult
from toolwire.ir.request import Message, Params, Request
from toolwire.ir.tools import Tool
from toolwire.net.model.endpoint import Endpoint, resolve
from toolwire.net.model.endpoint_request import EndpointRequest
from toolwire.net.model.translation_cache import TranslationCache
from toolwire.stream.strict import count_values, parse_object
from toolwire.wire import get
from toolwire.wire.codec import WireCodec

TURNS = 200
LATER = 3  # requests after the first one
TOOLS = ("Read", "Edit", "Bash", "Grep", "Glob", "Write", "TodoWrite", "WebFetch", "Task")
MODELS = {
    "openai_chat": "openai/gpt-4o",
    "openai_responses": "openai/gpt-5",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "gemini": "gemini/gemini-3-pro-preview",
    "ollama": "ollama/llama3.2",
}
KEYS = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "key-of-a-benchmark")
MEGABYTE = 1024 * 1024


def make_conversation(turns: int, seed: int = 0) -> Request:
    """Return a conversation: a system prompt, a task, and turns with one call each and its result."""
    rng = Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(500)]
    words += ["\n   ", '"name":', "é", "null", "{", "},", "1024"] * 4

    def text(size: int) -> str:
        return " ".join(rng.choices(words, k=size // 6))

    parameters = {
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "description": text(60)},
            "command": {"type": "string"},
            "limit": {"type": "integer"},
        },
        "required": ["file_path"],
    }
    messages = [Message("system", (Text(text(6000)),)), Message("user", (Text(text(400)),))]
    for _ in range(turns):
        arguments = {"file_path": f"/src/{text(20)}", "command": text(90), "limit": rng.randint(1, 999)}
        call = ToolCall(f"toolu_{rng.getrandbits(96):024x}", rng.choice(TOOLS), arguments)
        parts = (Text(text(80)), call) if rng.random() < 0.6 else (call,)
        messages.append(Message("assistant", parts))
        messages.append(Message("user", (ToolResult(call.id, call.name, (Text(text(750)),)),)))
    tools = tuple(Tool(name, text(300), parameters) for name in TOOLS)
    return Request("agent", tuple(messages), tools, params=Params(max_tokens=8000), stream=True)


def to_body(request: Request, source: str) -> bytes:
    """Write the request as a client of the wire does."""
    codec = get(source)
    return json.dumps(codec.encode_request(prepare(request, codec).request).body, ensure_ascii=False).encode()


@cache
def bodies(source: str) -> list[bytes]:
    """Return the first request and the later ones, the last of which has all turns."""
    request = make_conversation(TURNS)
    missing = range(2 * LATER, -1, -2)
    return [to_body(replace(request, messages=request.messages[: len(request.messages) - n]), source) for n in missing]


@cache
def endpoint_of(target: str) -> Endpoint:
    return resolve(MODELS[target], KEYS, wire=target if target.startswith("openai") else None)


def translate(wire: WireCodec, body: bytes, endpoint: Endpoint, store_of: TranslationCache | None, owner: str) -> bytes:
    """Do the work of one request; without a cache, as if there were none."""
    if store_of is None:
        count_values(body)
        request, store, settings = wire.decode_request(parse_object(body)), None, None
    else:
        reading = store_of.open(owner, wire, body)
        _ = reading.values
        request, store, settings = reading.decode(), reading.store, reading.settings
    sent = EndpointRequest(
        replace(request, model="agent", stream=True),
        endpoint,
        stream=True,
        text=None,
        losses=Losses(),
        client=wire.capabilities,
        is_alias=True,
        store=store,
        settings=settings,
        mark_prefix=wire.name != endpoint.wire.name,  # as in the gateway
    )
    return sent.body


def measure_pair(source: str, target: str, rounds: int) -> dict[str, float]:
    """Return the best milliseconds of CPU: json.loads, without a cache, the first request, the second, later ones."""
    wire, endpoint, best = get(source), endpoint_of(target), defaultdict(lambda: float("inf"))

    def run(name: str, work: Callable[[], object]) -> object:
        started = time.process_time()
        result = work()
        best[name] = min(best[name], (time.process_time() - started) * 1e3)
        return result

    first, second, *later = bodies(source)
    for _ in range(rounds):
        cached = TranslationCache(64 * MEGABYTE)
        run("without", lambda: translate(wire, first, endpoint, None, "a"))
        run("first", lambda: translate(wire, first, endpoint, cached, "a"))
        run("second", lambda: translate(wire, second, endpoint, cached, "a"))
        for body in later:
            run("json.loads", lambda: json.loads(body))
            sent = run("later", lambda: translate(wire, body, endpoint, cached, "a"))
        assert sent == translate(wire, later[-1], endpoint, None, "a")
    return dict(best)


def report_pairs(pairs: list[tuple[str, str]], rounds: int) -> None:
    print(
        "| from | to | kB | json.loads | without | first | second | later | first / without | second, later / json.loads |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for source, target in pairs:
        best = measure_pair(source, target, rounds)
        loads = best["json.loads"]
        figures = " | ".join(f"{best[name]:.2f}" for name in ("json.loads", "without", "first", "second", "later"))
        ratios = f"{best['first'] / best['without']:.2f} | {best['second'] / loads:.2f}, {best['later'] / loads:.2f}"
        print(f"| {source} | {target} | {len(bodies(source)[-1]) // 1000} | {figures} | {ratios} |", flush=True)


def conversation_bodies(source: str, number: int, turns: int) -> Iterator[bytes]:
    """Yield two requests of one of many conversations."""
    request = make_conversation(turns, seed=number)
    yield to_body(replace(request, messages=request.messages[:-2]), source)
    yield to_body(request, source)


def report_memory(count: int, limit: int) -> None:
    """Print the counted and the real memory of the cache, traced for a few conversations and in total for many."""
    wire, endpoint = get("anthropic"), endpoint_of("openai_chat")
    translate(wire, next(conversation_bodies(wire.name, 0, 2)), endpoint, TranslationCache(1), "a")
    before, cached = _resident(), TranslationCache(limit)
    for number in range(count):
        for body in conversation_bodies(wire.name, number, TURNS):
            translate(wire, body, endpoint, cached, f"key {number % 20}")
        if (number + 1) % max(count // 10, 1) == 0:
            grown, counted = (_resident() - before) / MEGABYTE, cached.size / MEGABYTE
            print(
                f"{number + 1} conversations: {len(cached)} stored, counted {counted:.1f} MB, process +{grown:.1f} MB"
            )
    _report_traced(wire, endpoint, 20)


def _report_traced(wire: WireCodec, endpoint: Endpoint, count: int) -> None:
    samples = [body for number in range(count) for body in conversation_bodies(wire.name, number, TURNS)]
    tracemalloc.start()
    cached = TranslationCache(1024 * MEGABYTE)
    for body in samples:
        translate(wire, body, endpoint, cached, "a")
    gc.collect()
    real = tracemalloc.get_traced_memory()[0] / MEGABYTE
    size, counted = len(samples[-1]) // 1000, cached.size / MEGABYTE
    print(f"{len(cached)} conversations of {size} kB: counted {counted:.1f} MB, traced {real:.1f} MB")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true", help="measure the memory of many conversations instead")
    parser.add_argument("--count", type=int, default=1000, help="conversations of --memory")
    parser.add_argument("--limit", type=int, default=64, help="megabytes of the cache of --memory")
    parser.add_argument("--pair", nargs=2, choices=MODELS, metavar=("FROM", "TO"), help="measure only this pair")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    if options.memory:
        report_memory(options.count, options.limit * MEGABYTE)
        return
    every = [(source, target) for source in MODELS for target in MODELS if source != target]
    report_pairs([tuple(options.pair)] if options.pair else every, options.rounds)


if __name__ == "__main__":
    main()
