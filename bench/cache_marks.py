"""Measure the price of input tokens with and without cache marks, for coding agents and for one-shot traffic.

The agents are recorded sessions of 20 requests (`tests/fixtures/sessions`). One-shot requests have the tools and the
system prompt of such a session, or others each time, and a question of 500 tokens. All are translated to Anthropic as
in the gateway, and sent to a model of its prompt cache (`tests/support/prompt_cache_rules.py`), in which nothing expires. A
plain input token costs 1, one that is written to the cache 1.25, one that is read 0.1
(https://platform.claude.com/docs/en/about-claude/pricing, 2026-10-08; some models read for less).
"""

import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from toolwire.ir.losses import Losses
from toolwire.net.model.endpoint import resolve
from toolwire.net.model.endpoint_request import EndpointRequest
from toolwire.wire import get

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

from prompt_cache_rules import PromptCache, Usage  # noqa: E402

MINIMUM = 1024  # of claude-sonnet-5
ONE_SHOT = 20  # requests


def load_sessions() -> dict[str, tuple[str, list[dict]]]:
    """Return wire and bodies of each recorded session, by the name of the agent."""
    sessions = {}
    for file in sorted((ROOT / "tests" / "fixtures" / "sessions").glob("*.json.xz")):
        recording = json.loads(lzma.decompress(file.read_bytes()))
        sessions[file.name.split(".")[0]] = recording["wire"], recording["bodies"]
    return sessions


def make_one_shots(first: dict) -> Iterator[tuple[str, list[dict]]]:
    """Yield requests without a history, made of the first request of a Chat session."""
    random = Random(16)
    system = first["messages"][0]

    def question() -> dict:
        return {"role": "user", "content": "".join(random.choices("abcdefgh ", k=2000))}

    def changed_tools() -> list[dict]:
        tool, *others = first["tools"]
        function = tool["function"]
        return [
            {**tool, "function": {**function, "description": f"{random.random()} {function['description']}"}},
            *others,
        ]

    plain = {"model": "any"}
    yield "no tools, same system prompt", [{**plain, "messages": [system, question()]} for _ in range(ONE_SHOT)]
    same = {**plain, "tools": first["tools"]}
    yield "same tools and system prompt", [{**same, "messages": [system, question()]} for _ in range(ONE_SHOT)]
    others = [{**plain, "tools": changed_tools(), "messages": [system, question()]} for _ in range(ONE_SHOT)]
    yield "other tools each time", others


def measure(wire_name: str, bodies: list[dict], *, mark_prefix: bool) -> list[Usage]:
    endpoint, wire = resolve("anthropic/claude-sonnet-5", {"ANTHROPIC_API_KEY": "key"}), get(wire_name)
    cache = PromptCache(MINIMUM)
    usages = []
    for body in bodies:
        request = wire.decode_request(body)
        sent = EndpointRequest(
            request,
            endpoint,
            stream=False,
            text=None,
            losses=Losses(),
            client=wire.capabilities,
            is_alias=True,
            mark_prefix=mark_prefix,
        )
        usages.append(cache.send(json.loads(sent.body)))
    return usages


def main() -> None:
    sessions = load_sessions()
    traffic = [(f"agent: {name}", wire, bodies) for name, (wire, bodies) in sessions.items()]
    first = sessions["opencode"][1][0]
    traffic += [(f"one-shot: {name}", "openai_chat", bodies) for name, bodies in make_one_shots(first)]
    rows = []
    for name, wire, bodies in traffic:
        plain, marked = (measure(wire, bodies, mark_prefix=is_marked) for is_marked in (False, True))
        rows.append(
            {
                "traffic": name,
                "requests": len(bodies),
                "tokens": sum(usage.total for usage in marked),
                "read": sum(usage.read for usage in marked),
                "best": sum(usage.best for usage in marked),
                "plain cost": sum(usage.cost for usage in plain),
                "cost": sum(usage.cost for usage in marked),
            }
        )
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
