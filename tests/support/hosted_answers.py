"""One answer with hosted tools on each wire: a search, a fetched page and a program, as far as the wire has them."""

import json

from toolwire.ir import Response, Text
from toolwire.ir.events import ResponseEnd
from toolwire.ir.hosted import Citation, HostedRun, HostedTool, WebPage
from toolwire.ir.response import Stop, Usage
from toolwire.wire import get

WIRES = ("anthropic", "openai_responses", "gemini", "openai_chat")
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai_responses": "gpt-5",
    "gemini": "gemini-3-pro",
    "openai_chat": "gpt-5-search-api",
}
KINDS = ("web_search", "web_fetch", "code_execution")
PAGE = WebPage("https://example.org/fjords", "Fjörds", "A fjord is a long inlet.")
RUNS = {
    "web_search": HostedRun("run_1", "web_search", ("longest fjord",), (PAGE, WebPage("https://example.org/b", "B"))),
    "web_fetch": HostedRun("run_2", "web_fetch", (PAGE.url,), (PAGE,)),
    "code_execution": HostedRun("run_3", "code_execution", ("print(6 * 7)",), (), "42\n"),
}
TEXT = "Sognefjord – the longest – is 205 km long."
CITED = "the longest"
CITATION = Citation(PAGE.url, PAGE.title, PAGE.text, TEXT.index(CITED), TEXT.index(CITED) + len(CITED))


def request(wire, kinds=KINDS, **fields):
    """A request that declares hosted tools, and the kinds that the wire has."""
    codec = get(wire).hosted
    declared = [codec.write_tool(HostedTool(kind))[0].extra[wire] for kind in kinds if kind in codec.kinds]
    if wire == "openai_chat":
        options = declared[0] if declared else {}
        return {"model": MODELS[wire], "messages": [{"role": "user", "content": "hi"}], **options, **fields}
    tools = [tool for number, tool in enumerate(declared) if tool not in declared[:number]]
    if wire == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "tools": tools, **fields}
    if wire == "openai_responses":
        return {"model": MODELS[wire], "input": "hi", "tools": tools, **fields}
    messages = [{"role": "user", "content": "hi"}]
    return {"model": MODELS[wire], "max_tokens": 100, "messages": messages, "tools": tools, **fields}


def answer(wire, kinds=KINDS, *, cites=True):
    """The canonical answer, with the parts of the wire."""
    codec = get(wire).hosted
    runs = [RUNS[kind] for kind in kinds if kind in codec.shows]
    parts = [part for run in runs for part in (codec.write_run(run, run.id) if codec.write_run else ())]
    citation = Citation(PAGE.url, PAGE.title, PAGE.text, 0, len(TEXT)) if codec.covers_text else CITATION
    citations = [citation] if cites else []
    text = Text(TEXT, extra=codec.write_text(citations) if codec.read_text else {})
    end = ResponseEnd((Stop("stop"),))
    if codec.read_text is None:
        end = codec.write_end(end, TEXT, runs, citations)
    return Response(
        "answer_1", MODELS[wire], (*parts, text), end.stops[0], Usage(10, 5), 1_700_000_000, extra=end.extra
    )


def document(wire, kinds=KINDS, *, cites=True):
    return json.loads(json.dumps(get(wire).encode_response(answer(wire, kinds, cites=cites)).body))


def stream(wire, kinds=KINDS):
    """The answer as a stream of the wire, with text in several deltas."""
    from toolwire.ir import unfold
    from toolwire.ir.events import TextDelta

    encoder = get(wire).stream_encoder()
    out = []
    for event in unfold(answer(wire, kinds)):
        if isinstance(event, TextDelta):
            half = len(event.text) // 2
            pieces = [TextDelta.of(event.key, event.text[:half]), TextDelta.of(event.key, event.text[half:])]
            out += [encoder.feed(piece) for piece in pieces]
        else:
            out.append(encoder.feed(event))
    return b"".join(out)
