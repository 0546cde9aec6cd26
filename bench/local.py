"""Measure the local model: speed, quality of calls, and tokens saved by stopping early.

    python bench/local.py speed forced        only some parts; all of them take about ten minutes on one thread

The prompts are our own. The first half was used to find the threshold of the question "does this need a function?"; the
second half was written before anything was measured on it.
"""

import argparse
import asyncio
import json
import sys
import time
from contextlib import aclosing

from jsonschema_rs import validator_for
from msgspec.structs import replace

from local_obvious import FIRST, SECOND
from local_prompts import PROMPTS, TOOLS
from toolwire import Message, Request, Text, Tool, ToolChoice
from toolwire.bridge.emulation.requests import emulate
from toolwire.local import open_model
from toolwire.run.tools.refusal import NOTHING, NOTHING_FITS
from toolwire.wire import get

CHAT = get("openai_chat")


def request(text, tools, choice=None):
    offered = tuple(Tool(name, *TOOLS[name]) for name in tools)
    return Request(messages=(Message("user", (Text(text),)),), tools=offered, choice=choice)


def body(asked, **more):
    return json.dumps({**CHAT.encode_request(asked)[0], "temperature": 0, **more}).encode()


async def answer(model, data):
    return json.loads(await model.complete(data))


def called(document):
    """Return the name and the arguments of the call, if the answer is one."""
    calls = document["choices"][0]["message"].get("tool_calls")
    if not calls:
        return None
    try:
        return calls[0]["function"]["name"], json.loads(calls[0]["function"]["arguments"])
    except ValueError:  # cut by the limit
        return calls[0]["function"]["name"], None


async def wants_call(model, asked):
    """Return whether the model calls one of the tools. Its refusal is declared, so that no text follows."""
    found = called(await answer(model, body(replace(asked, tools=(*asked.tools, NOTHING)), max_tokens=40)))
    return found is not None and found[0] != NOTHING_FITS


def fits(call):
    return call is not None and call[0] in TOOLS and validator_for(TOOLS[call[0]][1]).is_valid(call[1])


async def speed(model):
    prompt = [{"role": "user", "content": "Tell me of rivers, mountains and seas. " * 32}]
    seen = []
    async with aclosing(model.chat.chunks({"messages": prompt, "max_tokens": 96, "temperature": 0})) as chunks:
        async for chunk in chunks:
            seen.append(json.loads(chunk))
    timings = seen[-1]["timings"]
    return {"read": timings["prompt_per_second"], "written": timings["predicted_per_second"]}


async def forced(model, prompts):
    """Require a call: with the grammar, with llama.cpp's response_format, and free."""
    rows = {}
    for mode in ("grammar", "response_format", "free"):
        row = rows[mode] = {
            "asked": 0,
            "finished": 0,
            "valid": 0,
            "right function": 0,
            "right arguments": 0,
            "tokens": 0,
        }
        for one in prompts:
            asked = request(one.text, one.tools, ToolChoice("required"))
            document, call = await _forced(model, mode, asked)
            row["asked"] += 1
            row["finished"] += document["choices"][0]["finish_reason"] != "length"
            row["valid"] += fits(call)
            row["right function"] += call is not None and call[0] == one.function
            row["right arguments"] += call == (one.function, one.arguments)
            row["tokens"] += document["usage"]["completion_tokens"]
    return rows


async def _forced(model, mode, asked):
    if mode == "grammar":
        document = await answer(model, body(asked, max_tokens=128))
        return document, called(document)
    emulation = emulate(asked, "generic_json", constrain=mode == "response_format")
    document = await answer(model, body(emulation.request, max_tokens=128))
    calls = emulation.restore(CHAT.decode_response(document)).calls
    return document, (calls[0].name, calls[0].arguments) if calls and calls[0].state == "complete" else None


async def choosing(model, prompts):
    """Require nothing: count the calls for prompts that need one, and for prompts that need none."""
    wanted = [one for one in prompts if one.function]
    others = [one for one in prompts if not one.function]

    async def calls(those):
        return [await wants_call(model, request(one.text, one.tools)) for one in those]

    return {"wanted": [sum(await calls(wanted)), len(wanted)], "not wanted": [sum(await calls(others)), len(others)]}


async def obvious(model, prompts):
    """Offer one tool: count the calls for prompts that obviously ask for it, and for prompts of a plain chat."""

    async def calls(name, texts):
        tool = Tool(name, *prompts.tools[name])
        asked = [Request(messages=(Message("user", (Text(text),)),), tools=(tool,)) for text in texts]
        return [text for text, one in zip(texts, asked, strict=True) if await wants_call(model, one)]

    found = {"wanted": [0, 0], "not wanted": [0, 0], "missed": [], "surplus": []}
    for name, wanted in prompts.calls.items():
        called_for = await calls(name, wanted)
        surplus = await calls(name, prompts.plain)
        found["wanted"] = [found["wanted"][0] + len(called_for), found["wanted"][1] + len(wanted)]
        found["not wanted"] = [found["not wanted"][0] + len(surplus), found["not wanted"][1] + len(prompts.plain)]
        found["missed"] += [f"{name}: {text}" for text in wanted if text not in called_for]
        found["surplus"] += [f"{name}: {text}" for text in surplus]
    return found


async def stopping(model, prompts):
    """Count the tokens of answers in the format function_xml: to the model's own end, and to the format's stop mark.

    A model of this size does not write the format by itself, so the beginning of a call is given.
    """
    whole = stopped = reached = 0
    for one in prompts:
        asked = request(one.text, one.tools)
        emulation = emulate(asked, "function_xml")
        spoken = CHAT.encode_request(emulation.request)[0]
        begun = f"<function={one.function}>\n<parameter={next(iter(one.arguments))}>"
        messages = [*spoken["messages"], {"role": "assistant", "content": begun}]
        free = {"messages": messages, "temperature": 0, "max_tokens": 256}
        tokens, text, stop_at = 0, "", None
        async with aclosing(model.chat.chunks(free)) as chunks:
            async for chunk in chunks:
                delta = (json.loads(chunk).get("choices") or [{}])[0].get("delta", {}).get("content")
                if delta:
                    tokens, text = tokens + 1, text + delta
                    if stop_at is None and "</function" in text:
                        stop_at = tokens
        reached += stop_at is not None
        whole += tokens
        stopped += tokens if stop_at is None else stop_at
    return {"answers": len(prompts), "reached the mark": reached, "to the end": whole, "stopped": stopped}


async def leaving(model):
    """Return the CPU time of the process after the reader has left the loop."""
    data = json.dumps({"messages": [{"role": "user", "content": "Count to a thousand."}], "temperature": 0}).encode()
    pieces = model.stream(data)
    for _ in range(12):
        await anext(pieces)
    before = time.process_time()
    await pieces.aclose()
    await asyncio.sleep(2)
    return time.process_time() - before


async def measure(threads, only):
    model = open_model(threads=threads)
    first, second = PROMPTS[::2], PROMPTS[1::2]
    calls = [one for one in PROMPTS if one.function]
    parts = {
        "speed": lambda: speed(model),
        "leaving": lambda: leaving(model),
        "choosing_first": lambda: choosing(model, first),
        "choosing_second": lambda: choosing(model, second),
        "obvious_first": lambda: obvious(model, FIRST),
        "obvious_second": lambda: obvious(model, SECOND),
        "stopping": lambda: stopping(model, calls[:8]),
        "forced": lambda: forced(model, calls),
    }
    found = {}
    for name, part in parts.items():
        if not only or name in only:
            found[name] = await part()
            print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("parts", nargs="*")
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.threads, given.parts))))
