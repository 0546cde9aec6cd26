"""Measure tool calls in text: microseconds for one more token of four characters, after ever more of them in one string argument.

toolwire gets every token separately. The peers get the tokens before the measured ones in a few large pieces, because some of
them would need hours otherwise. Then whole turns are parsed at once: an argument of 200,000 characters of source code in every
format, beside the two JSON parsers that toolwire uses, and other turns in two formats.
"""

import json
import re
import time
from functools import partial
from pathlib import Path

import jiter
import msgspec

import toolwire.text
from measure import best_micros
from peers_text import STAND_INS, Sglang, Transformers
from toolwire.ir import CallDelta, Tool

SIZES = (100, 1_000, 10_000, 50_000)
TOKEN = "abc "
ROUNDS = 7
SOURCE = Path(toolwire.__file__).parent / "stream" / "scanner.py"
CHARACTERS = 200_000
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "text": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["text"],
}
ABOUT = "Writes a file."
FORMATS = {
    "hermes": ('<tool_call>\n{"name": "write_file", "arguments": {"text": "', '"}}\n</tool_call>'),
    "qwen3_xml": (
        "<tool_call>\n<function=write_file>\n<parameter=text>\n",
        "\n</parameter>\n</function>\n</tool_call>",
    ),
    "function_xml": ("<function=write_file>\n<parameter=text>", "</parameter>\n</function>"),
    "llama3_json": ('<|python_tag|>{"name": "write_file", "parameters": {"text": "', '"}}<|eom_id|>'),
    "glm45": ("<tool_call>write_file\n<arg_key>text</arg_key>\n<arg_value>", "</arg_value>\n</tool_call>"),
    "harmony": (
        '<|start|>assistant<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>{"text": "',
        '"}<|call|>',
    ),
}
WHOLE = {
    **FORMATS,
    "mistral_v11": ('[TOOL_CALLS]write_file[ARGS]{"text": "', '"}'),
    "deepseek_v31": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write_file<｜tool▁sep｜>{"text": "',
        '"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "kimi_k2": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>{"text": "',
        '"}<|tool_call_end|><|tool_calls_section_end|>',
    ),
}
LIMITS = {
    "jiter": lambda raw: jiter.from_json(raw.encode()),
    "msgspec": lambda raw: msgspec.json.decode(raw.encode()),
}
PLAIN = "The quick brown fox jumps over the lazy dog. " * 4_400 + "The end."
CHINESE = "今天天气很好，我们去公园散步。" * 13_000
SMALL_CALLS = 500


class Ours:
    name = "toolwire"
    tools = (Tool("write_file", ABOUT, SCHEMA),)

    def has(self, form: str) -> bool:
        return form in toolwire.text.names()

    def stream(self, form: str):
        return toolwire.text.get(form).parser(self.tools).feed

    def given(self, events) -> str:
        return "".join(event.text for event in events if isinstance(event, CallDelta))

    def whole(self, form: str, text: str) -> dict:
        return toolwire.text.get(form).parse(text, self.tools).calls[0].arguments

    def count(self, form: str, text: str) -> tuple[int, int]:
        """Return the number of calls in the text, and the length of the text around them."""
        parsed = toolwire.text.get(form).parse(text, self.tools)
        return len(parsed.calls), len(parsed.text)


def main() -> dict:
    function = {"name": "write_file", "description": ABOUT, "parameters": SCHEMA}
    offered = [{"type": "function", "function": function}]
    sglang = Sglang(offered)
    readers = [Ours(), sglang, Transformers(offered)]
    return {
        "sizes": SIZES,
        "rows": [row for form in FORMATS for row in _rows(form, [one for one in readers if one.has(form)])],
        "whole": [_whole(form, [one for one in readers if one.has(form)]) for form in WHOLE],
        "limits": list(LIMITS),
        "others": [row for form in ("hermes", "qwen3_xml") for row in _others(form, [readers[0], readers[2]])],
        "small_calls": SMALL_CALLS,
        "characters": CHARACTERS,
        "names": [one.name for one in readers],
        "imports": sglang.imports(),
        "stand_ins": [name for name in STAND_INS if "." not in name],
    }


def _rows(form: str, readers: list) -> list[dict]:
    rows = [{"format": form, "by": one.name, "streams": _streams(one, form), "micros": []} for one in readers]
    for size in SIZES:
        best = [float("inf")] * len(readers)
        for _ in range(ROUNDS):
            for number, one in enumerate(readers):
                best[number] = min(best[number], _marginal(one, form, size))
        for row, micros in zip(rows, best, strict=True):
            row["micros"].append(micros)
    rows[0]["code"] = min(_code(readers[0], form) for _ in range(ROUNDS))
    return rows


def _marginal(reader, form: str, size: int) -> float:
    """Return microseconds per token after `size` others: for fifty tokens, or as many as half a second allows."""
    feed = reader.stream(form)
    piece = TOKEN if isinstance(reader, Ours) else TOKEN * (size // 20)
    for part in (*_tokens(FORMATS[form][0]), *[piece] * (size * len(TOKEN) // len(piece)), TOKEN, TOKEN, TOKEN):
        feed(part)
    tokens, spent = 0, 0.0
    while tokens < 50 and spent < 0.5:
        started = time.process_time()
        for _ in range(5):
            feed(TOKEN)
        spent += time.process_time() - started
        tokens += 5
    return spent / tokens * 1e6


def _streams(reader, form: str) -> str:
    """Return whether the argument is streamed, and check its final value."""
    opening, closing = FORMATS[form]
    feed, early = reader.stream(form), ""
    for token in _tokens(opening + TOKEN * 50):
        early += reader.given(feed(token))
    late = early + "".join(reader.given(feed(token)) for token in _tokens(TOKEN * 50 + "." + closing))
    if TOKEN * 100 + "." not in late:
        return "no"
    return "as it comes" if TOKEN * 40 in early else "at its end"


def _code(reader, form: str) -> float:
    """Return microseconds per token of a whole turn with source code as the argument."""
    feed, tokens = reader.stream(form), _tokens(_turn(form))
    started = time.process_time()
    for token in tokens:
        feed(token)
    return (time.process_time() - started) / len(tokens) * 1e6


def _whole(form: str, readers: list) -> dict:
    """Return million characters per second for each reader, and for a parser of the arguments alone."""
    text, right = _turn(form), {"text": _value()}
    runs = {one.name: partial(one.whole, form, text) for one in readers if _attempt(one.whole, form, text) == right}
    if WHOLE[form][0].endswith('"'):
        raw = json.dumps(right, ensure_ascii=False)
        runs |= {name: partial(parse, raw) for name, parse in LIMITS.items()}
    micros = best_micros(runs, rounds=5, calls=3)
    speeds = {name: len(text) / one for name, one in micros.items()}
    return {"format": form, **dict.fromkeys([one.name for one in readers], "wrong"), **speeds}


def _others(form: str, readers: list) -> list[dict]:
    """Return the same for other turns. The limit is not measured: it is no parser of JSON."""
    call = "".join(WHOLE[form]) + "\n"
    turns = {
        "English in one call": (_turn(form, PLAIN), (1, 0)),
        "Chinese in one call": (_turn(form, CHINESE), (1, 0)),
        f"{SMALL_CALLS} small calls": (call.replace('"text": ""', '"text": "x"') * SMALL_CALLS, (SMALL_CALLS, 0)),
        "text without a call": (PLAIN, (0, len(PLAIN))),
    }
    rows = []
    for turn, (text, right) in turns.items():
        runs = {one.name: partial(one.count, form, text) for one in readers if _attempt(one.count, form, text) == right}
        micros = best_micros(runs, rounds=5, calls=3)
        speeds = {name: len(text) / one for name, one in micros.items()}
        rows.append({"format": form, "turn": turn, **dict.fromkeys([one.name for one in readers], "wrong"), **speeds})
    return rows


def _attempt(read, form: str, text: str) -> object:
    try:
        return read(form, text)
    except Exception as error:
        return error


def _turn(form: str, value: str = "") -> str:
    opening, closing = WHOLE[form]
    value = value or _value()
    return opening + (json.dumps(value, ensure_ascii=False)[1:-1] if opening.endswith('"') else value) + closing


def _value() -> str:
    source = SOURCE.read_text(encoding="utf-8")
    return (source * (CHARACTERS // len(source) + 1))[: CHARACTERS - 1] + "."


def _tokens(text: str) -> list[str]:
    """Split the text into tokens of four characters; special tokens stay whole, as a model writes them."""
    return re.findall(r"<\|\w+\|>|(?:(?!<\|).){1,4}", text, re.DOTALL)


if __name__ == "__main__":
    print(json.dumps(main()))
