"""The details of `toolwire demo --all`, after its three screens: every wire and all pairs of wires, measured live."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from functools import partial
from random import Random
from statistics import median
from typing import Any, Literal

from ..ir import Message, Request, Response, Stop, Text, ToolCall, ToolResult, Usage, fold, unfold
from .terminal.layout import wrap_text
from .terminal.output import paint, paragraph, table, terminal_width


def show_details(random: Random) -> bool:
    """Print the details one after the other. Return whether all figures are as expected."""
    return _show_function() & _show_stream(random) & _show_turn()


def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Get the current weather of a city."""
    return f"22 {unit} in {city}"


def _print_title(number: int, text: str) -> None:
    print(f"{paint(f'{number}/6', 'dim')}  {paint(text, 'bold')}\n")


_MARKS = {True: "✓", False: "✗"}
_COLOURS = {"✓": "green", "✗": "red"}


_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?')
_LABEL = 23  # columns before a declaration: a mark and the longest name of a wire
_LEAST = 50  # columns of a declaration; with fewer, the name has a line of its own


def _wrap_json(document: Any, width: int) -> list[str]:
    """Wrap a JSON document between its members and elements: strings stay whole, and no line begins with a comma."""
    text = json.dumps(document, ensure_ascii=False, separators=(", ", ":"))
    kept = _STRING.sub(lambda string: string[0].replace(" ", "\0"), text)
    return [line.replace("\0", " ") for line in wrap_text(kept, width)]


def _print_rows(rows: list[tuple[str, ...]], headers: tuple[str, ...]) -> None:
    """Colour the marks of the finished table; `table` would escape colours inside a cell."""
    for line in table(rows, headers, bold=True, indent="  "):
        mark = line.lstrip()[:1]
        print(line.replace(mark, paint(mark, _COLOURS[mark]), 1) if mark in _COLOURS else line)
    print()


def _show_function() -> bool:
    """Declare a Python function on every wire, decode it again, and print each declaration.

    Returns whether all are equal and without loss.
    """
    from ..run.tools.function_tool import tool
    from ..testing import same
    from ..wire import get, mcp, names

    _print_title(4, "One Python function on every wire")
    declared = tool(get_weather)
    plain = [declared.name, declared.description, declared.input_schema]
    width = min(terminal_width(), 100)
    indent = _LABEL if width >= _LABEL + _LEAST else 5
    healthy = True
    for name in (*names(), mcp.NAME):
        codec: Any = mcp if name == mcp.NAME else get(name)
        written, losses = codec.encode_tools((declared,))
        (back,) = codec.decode_tools(written)
        good = same([back.name, back.description, back.input_schema], plain) and not len(losses)
        healthy &= good
        mark = _MARKS[good]
        lines = [" " * indent + line for line in _wrap_json(written[0], width - indent)]
        title = f"  {paint(mark, _COLOURS[mark])}  {paint(name, 'bold')}"
        if indent == _LABEL:
            title += lines.pop(0)[5 + len(name) :]
        print(title, *lines, sep="\n")
    print()
    return healthy


def _example_turn() -> tuple[Any, Any]:
    """Build a request whose last turn has two parallel calls, and a response with text and two more calls."""
    from ..run.tools.function_tool import tool

    paris = ToolCall("call_paris", "get_weather", {"city": "Paris"}, '{"city": "Paris"}')
    rome = ToolCall("call_rome", "get_weather", {"city": "Rome", "unit": "celsius"})
    history = (
        Message("system", (Text("Answer briefly."),)),
        Message("user", (Text("Weather in Paris and Rome?"),)),
        Message("assistant", (Text("I will check."), paris, rome)),
        Message("user", (paris.result("22 celsius"), rome.result("the station does not answer", is_error=True))),
    )
    oslo = ToolCall("call_oslo", "get_weather", {"city": "Oslo"})
    answer = (Text("Then let me try “Oslo”. "), oslo, ToolCall("call_bern", "get_weather", {"city": "Bern"}))
    return Request("m", history, (tool(get_weather),)), Response(
        "answer-1", "m", answer, Stop("tool_calls"), Usage(120, 34)
    )


def _show_stream(random: Random) -> bool:
    """Decode a stream per wire a thousand times with random chunk boundaries, and print the figures.

    Returns whether all results are equal.
    """
    from ..testing import random_chunks
    from ..wire import get, names

    _print_title(5, "One stream per wire, cut in 1,000 ways")
    _, response = _example_turn()
    rows: list[tuple[str, ...]] = []
    healthy = True
    for name in names():
        encoder = get(name).stream_encoder()
        data = b"".join([encoder.feed(event) for event in unfold(response)])
        expected = _decode(name, [data])
        started = time.perf_counter()
        equal = sum(_decode(name, random_chunks(data, random, random.randint(2, 60))) == expected for _ in range(1000))
        seconds = time.perf_counter() - started
        calls = [call.arguments for call in fold(expected).calls]
        good = equal == 1000 and calls == [call.arguments for call in response.calls]
        healthy &= good
        figures = (f"{equal:,}/1,000", str(len(expected)), f"{len(data):,}", f"{seconds:.2f} s")
        rows.append((_MARKS[good], name, *figures))
    _print_rows(rows, ("", "wire", "same result", "events", "bytes", "time"))
    return healthy


def _decode(wire: str, chunks: list[bytes]) -> list[Any]:
    from ..testing.stream_checks import decode_stream, merge_deltas
    from ..wire import get

    return merge_deltas(decode_stream(get(wire), chunks))


def _show_turn() -> bool:
    """Translate a turn with two calls between all pairs of wires and the response back, and print the figures.

    Returns whether all calls and results arrived.
    """
    from ..bridge.translation.documents import translate
    from ..bridge.translation.preparation import prepare
    from ..wire import get, names

    _print_title(6, "Two parallel calls between all pairs of wires")
    request, response = _example_turn()
    rows: list[tuple[str, ...]] = []
    healthy = True
    for source in names():
        for target in names():
            if source == target:
                continue
            body = get(source).encode_request(prepare(request, get(source)).request).body
            there, micros = _time_runs(partial(translate, body, source=source, target=target, model="m"))
            arrived = get(target).decode_request(there.body)
            calls = [p for m in arrived.messages for p in m.parts if isinstance(p, ToolCall)]
            results = {p.call_id: p.text for m in arrived.messages for p in m.parts if isinstance(p, ToolResult)}
            paired = [results.get(call.id, "").endswith(text) for call, text in zip(calls, _RESULT_TEXTS, strict=True)]
            upstream = get(target).encode_response(response).body
            back = translate(upstream, source=target, target=source, kind="response", request=body).body
            cities = [(call.arguments or {}).get("city") for call in get(source).decode_response(back).calls]
            good = all(paired) and len(paired) == 2 and cities == ["Oslo", "Bern"]
            healthy &= good
            noted = "; ".join(f"{loss.concept} {loss.action}" for loss in there.losses) or "none"
            figures = (f"{sum(paired) + len(cities)}/4", f"{micros:,.0f} µs", noted)
            rows.append((_MARKS[good], f"{source} → {target}", *figures))
    _print_rows(rows, ("", "request", "arrived", "time", "losses"))
    print("\n".join([*paragraph("arrived: two results there, and two calls on the way back"), ""]))
    return healthy


def _time_runs(run: Callable[[], Any]) -> tuple[Any, float]:
    """Return the value, and the median time of 25 runs in microseconds."""
    taken: list[float] = []
    for _ in range(25):
        started = time.perf_counter()
        value = run()
        taken.append((time.perf_counter() - started) * 1e6)
    return value, median(taken)


_RESULT_TEXTS = ("22 celsius", "the station does not answer")
