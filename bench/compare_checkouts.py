"""Compare the CPU time of two checkouts on the public API: interleaved rounds, best of each, as ratios.

python bench/compare_checkouts.py OLD NEW --rounds 7

OLD and NEW are roots of checkouts. Each round starts one process per checkout, so that both see the same machine.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PROGRAM = r"""
import json, sys, time
import toolwire
from toolwire import Message, Request, Response, Text, ToolCall
from toolwire.ir import Stop
from toolwire.schema import lower, repair_arguments, validator
try:
    from toolwire import Runner, Toolbox
except ImportError:
    from toolwire.net.tools.runner import Runner
    from toolwire.run.tools.toolbox import Toolbox

schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1},
          "units": {"enum": ["c", "f"]}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]}
chat = {"model": "m", "messages": [m for n in range(20) for m in (
            {"role": "user", "content": f"Weather in city {n}?"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{n}", "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Paris", "days": 3}'}}]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "sunny " * 20})],
        "tools": [{"type": "function", "function": {"name": f"weather{n or ''}", "parameters": schema}} for n in range(8)]}
answer = Response("r", "m", (Text("It is sunny. " * 40), ToolCall("c1", "weather", {"city": "Paris"})), Stop("tool_calls"))

def encoded(wire):
    encoder = toolwire.wire.get(wire).stream_encoder()
    return b"".join(encoder.feed(event) for event in toolwire.unfold(answer))

stream = {wire: encoded(wire) for wire in ("openai_chat", "anthropic", "gemini")}
text = "I will look. <tool_call>" + json.dumps({"name": "weather", "arguments": {"city": "Paris " * 30}}) + "</tool_call>"

@toolwire.tool(effect="pure")
def weather(city: str, days: int = 1) -> str:
    return city

runner = Runner(Toolbox(weather))
calls = [ToolCall(str(n), "weather", {"city": "Paris", "days": n + 1}) for n in range(50)]

def translate_stream(source, target):
    translation = toolwire.translate_stream(source=source, target=target)
    for start in range(0, len(stream[source]), 64):
        translation.feed(stream[source][start:start + 64])
    translation.close()

AREAS = {
    "translate/chat to anthropic": lambda: toolwire.translate(chat, source="openai_chat", target="anthropic"),
    "translate/chat to gemini": lambda: toolwire.translate(chat, source="openai_chat", target="gemini"),
    "translate/chat to responses": lambda: toolwire.translate(chat, source="openai_chat", target="openai_responses"),
    "stream/chat to anthropic": lambda: translate_stream("openai_chat", "anthropic"),
    "stream/anthropic to chat": lambda: translate_stream("anthropic", "openai_chat"),
    "stream/gemini to chat": lambda: translate_stream("gemini", "openai_chat"),
    "schema/lower openai_strict": lambda: lower(schema, "openai_strict"),
    "schema/lower gemini": lambda: lower(schema, "gemini"),
    "schema/validate": lambda: validator(schema).problems({"city": "Paris", "days": 3}),
    "schema/repair": lambda: repair_arguments('{"city": "Paris", "days": 3,}', schema),
    "text/hermes": lambda: toolwire.text.get("hermes").parse(text),
    "text/qwen3_xml": lambda: toolwire.text.get("qwen3_xml").parse(text),
    "run/fifty calls": lambda: runner.run_sync(calls),
}
out = {}
for name, work in AREAS.items():
    for _ in range(5):
        work()
    best = float("inf")
    for _ in range(5):
        number, start = 0, time.process_time()
        while (spent := time.process_time() - start) < 0.03:
            work()
            number += 1
        best = min(best, spent / number)
    out[name] = best
print(json.dumps(out))
"""


def measure(checkout: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    best: dict[str, dict[str, float]] = {"old": {}, "new": {}}
    for number in range(arguments.rounds):
        for side in ("old", "new") if number % 2 == 0 else ("new", "old"):
            for name, seconds in measure(getattr(arguments, side).resolve()).items():
                best[side][name] = min(seconds, best[side].get(name, seconds))
    ratios = defaultdict(list)
    for name, old in best["old"].items():
        ratio = best["new"][name] / old
        ratios[name.partition("/")[0]].append(ratio)
        print(f"{name:32} {old * 1e6:9.1f} µs {best['new'][name] * 1e6:9.1f} µs  x {ratio:.3f}")
    for area, values in ratios.items():
        print(f"{area:12} geometric mean x {math.exp(sum(map(math.log, values)) / len(values)):.3f}")


if __name__ == "__main__":
    main()
