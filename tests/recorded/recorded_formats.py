"""What public parsers gave in their own passing tests, and how it is compared with what we give.

A recording is a strong hint, not law. Calls are compared by name and by the JSON value of their arguments, the content letter
by letter, the reasoning where there is one. Two kinds of difference are of shape, not of opinion, and let pass:

    edges      white space at the edges of a content, and null for an empty one: each trims in its own way

and what a recording has no place for:

    reasoning  a parser that only knows tools counts it as content, so where none was recorded it is compared as content
    states     of a whole text it gives the calls that may be run, which are our complete ones; of a stream it gives a
               name, and the text of the arguments as far as it came
    end        a stream was recorded as it was fed, and nobody told the parser that it was over: ours has to agree before
               its end is told, or after

Whatever else differs is a deviation: one line each in `recorded_deviations.json`, with the reason.
"""

import json
import os
import re
from functools import cache

import pytest

import toolwire.text
from places import ROOT
from toolwire.ir import Tool
from toolwire.ir.events import CallDelta, CallEnd, CallStart, ReasoningDelta, TextDelta
from toolwire.testing import same

RECORDED = ROOT.parent / "shared" / "data" / "format_vectors.jsonl"
OURS = {"mistral": "mistral_v11"}
RULES = ("edges", "reasoning", "states", "end")


@cache
def recordings():
    if not RECORDED.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{RECORDED.name} is not there, and CI is set")
        pytest.skip(f"{RECORDED.name} is not there")
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return [Recording(index, json.loads(line)) for index, line in enumerate(lines)]


class Recording:
    def __init__(self, index, row):
        self.index = index
        self.text = row["text"]
        self.calls = row["expected_calls"]
        self.content = row["expected_content"] or ""
        self.reasoning = row["expected_reasoning"]
        self.streamed = row["options"].get("mode") == "stream"
        self.test = row["source"].split("::")[-1]
        self.form = toolwire.text.get(OURS.get(row["format"], row["format"]))
        functions = [tool.get("function", tool) for tool in row["tools"]]
        self.tools = [Tool(one["name"], one.get("description"), one.get("parameters")) for one in functions]
        prompt = row["options"].get("prefix") or ""
        self.in_reasoning = prompt.rstrip().endswith("<think>") or row["options"].get("response_template") == "ernie"

    def events(self, pieces, *, close=True):
        parser = self.form.parser(self.tools, reasoning=self.in_reasoning)
        events = [event for piece in pieces for event in parser.feed(piece)]
        return events + (parser.close() if close else []), parser.diagnostics

    def disagreements(self, rules=RULES):
        """Nothing where ours says what was recorded, but for what `rules` let pass."""
        ends = (True, False) if self.streamed and "end" in rules else (True,)
        found = [self._disagreements(Reading(self.events([self.text], close=close)[0]), rules) for close in ends]
        return [] if [] in found else found[0]

    def _disagreements(self, ours, rules):
        trimmed = str.strip if "edges" in rules else str
        said = ours.spoken if "reasoning" in rules and self.reasoning is None else ours.text
        states = "states" in rules
        calls = [call for call in ours.calls if call.state == "complete" or self.streamed or not states]
        differing = []
        if len(calls) != len(self.calls) or not all(
            call.matches(theirs, in_part=states) for call, theirs in zip(calls, self.calls, strict=True)
        ):
            differing.append(f"calls {calls}")
        if trimmed(said) != trimmed(self.content):
            differing.append(f"content {said!r}")
        if self.reasoning is not None and trimmed(ours.reasoning) != trimmed(self.reasoning):
            differing.append(f"reasoning {ours.reasoning!r}")
        return differing


class Reading:
    """The calls, the text, the reasoning of a turn, and the two together in their order."""

    def __init__(self, events):
        self.text = "".join(event.text for event in events if isinstance(event, TextDelta))
        self.reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        self.spoken = "".join(event.text for event in events if isinstance(event, (TextDelta, ReasoningDelta)))
        self.calls = [Call(start, events) for start in events if isinstance(start, CallStart)]


class Call:
    def __init__(self, start, events):
        self.name = start.name
        self.raw = "".join(event.text for event in events if isinstance(event, CallDelta) and event.key == start.key)
        end = next((event for event in events if isinstance(event, CallEnd) and event.key == start.key), None)
        self.state = end.state if end else "open"
        self.arguments = end.arguments if end else None

    def __repr__(self):
        return f"{self.name} {self.state} {self.raw}"

    def matches(self, theirs, *, in_part):
        """The same call; `in_part`: as far as it came, white space aside."""
        if self.name != theirs["name"]:
            return False
        if self.state != "complete":
            return in_part and _bare(self.raw) == _bare(theirs["arguments"])
        try:
            return same(self.arguments, json.loads(theirs["arguments"]))
        except ValueError:
            return False


def _bare(text):
    return re.sub(r"\s", "", text)
