"""What the numbered cases of the text formats share: tools, and ways to read a turn."""

import json
from itertools import pairwise
from random import Random

import toolwire.text
from toolwire.ir import CallDelta, CallEnd, CallStart, TextDelta, Tool


def tool(name, **types):
    return Tool(name, None, {"type": "object", "properties": {key: {"type": kind} for key, kind in types.items()}})


TOOLS = [
    tool("get_weather", city="string", unit="string"),
    tool("write", path="string", content="string", lines="integer"),
    tool("ping"),
]


def read(name, text, tools=TOOLS, **options):
    return toolwire.text.get(name).parse(text, tools, **options)


def given(parsed):
    """The complete calls."""
    return [(call.name, call.arguments) for call in parsed.calls if call.state == "complete"]


def events(name, pieces, tools=TOOLS, *, close=True, finished=True):
    parser = toolwire.text.get(name).parser(tools)
    found = [event for piece in pieces for event in parser.feed(piece)]
    return found + (parser.close(finished=finished) if close else [])


def in_pieces(text, size):
    return [text[start : start + size] for start in range(0, len(text), size)]


def splits_of(text):
    """Every cut in two, character by character, and some in many."""
    random = Random(text)
    yield list(text)
    for place in range(1, len(text)):
        yield [text[:place], text[place:]]
    for _ in range(10):
        edges = sorted(random.randrange(len(text) + 1) for _ in range(5))
        yield [text[start:end] for start, end in pairwise([0, *edges, len(text)])]


def streamed(found):
    """name and arguments of every call as its deltas say them, in the order of the calls."""
    starts = [event for event in found if isinstance(event, CallStart)]
    return [(start.name, json.loads(_raw(found, start.key) or "{}")) for start in starts]


def _raw(found, key):
    return "".join(event.text for event in found if isinstance(event, CallDelta) and event.key == key)


def text_of(found):
    return "".join(event.text for event in found if isinstance(event, TextDelta))


def states(found):
    return [event.state for event in found if isinstance(event, CallEnd)]
