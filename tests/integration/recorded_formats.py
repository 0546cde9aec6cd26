"""What public parsers gave in their own passing tests, and how it is compared with what we give.

A recording is a strong hint, not law. It is compared strictly, but for these rules, each with its reason:

    edges       white space at the edges of the content is not compared: the parsers trim it, each in its own way
    unknown     a call of a tool that was not offered is left out there; here it is a call with a diagnostic
    incomplete  a call that is not complete is left out there, or is given as far as it came; here it says its state
    open end    a recording of a stream stops where its test stops, which may be before the end of the turn
    reasoning   a parser that only knows tools counts reasoning as content; so does this comparison where it recorded none
    tokens      special tokens stay in the content there where no call was found; here they never are text
    untouched   where no call can be run, some give all of the text back as content, with what was read as a call in it
"""

import json
import os
import re
from functools import cache
from pathlib import Path

import pytest

import toolwire.text
from toolwire.ir import Tool
from toolwire.ir.events import CallDelta, CallEnd, CallStart, ReasoningDelta, TextDelta
from toolwire.testing import same

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "format_vectors.jsonl"
OURS = {"mistral": "mistral_v11"}
_SPECIAL = r"<\|[^|>]*\|>"


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

    def disagreements(self):
        """Nothing where ours says what was recorded, by the rules above."""
        ends = (True, False) if self.streamed else (True,)
        found = [self._disagreements(Reading(self.events([self.text], close=close)[0])) for close in ends]
        return [] if [] in found else found[0]

    def alike_without_rules(self):
        """(the calls, and the words too but for their edges, and the words to the letter), by no rule at all."""
        ours = Reading(self.events([self.text])[0])
        whole = all(call.state == "complete" for call in ours.calls)
        calls = whole and self._same_calls(ours.calls)
        thought = self.reasoning is None or ours.reasoning.strip() == self.reasoning.strip()
        edges = calls and thought and ours.text.strip() == self.content.strip()
        return calls, edges, edges and ours.text == self.content

    def _disagreements(self, ours):
        known = {tool.name for tool in self.tools}
        calls = [call for call in ours.calls if call.name in known or not known]
        differing = []
        if not any(self._same_calls(some) for some in (ours.calls, calls, [c for c in calls if c.state == "complete"])):
            differing.append(f"calls {calls}")
        if not self._same_content(ours):
            differing.append(f"content {ours.text!r}")
        if self.reasoning is not None and ours.reasoning.strip() != self.reasoning.strip():
            differing.append(f"reasoning {ours.reasoning!r}")
        return differing

    def _same_calls(self, calls):
        return len(calls) == len(self.calls) and all(map(_same_call, calls, self.calls))

    def _same_content(self, ours):
        said = [ours.text] if self.reasoning is not None else [ours.text, ours.spoken]
        if self.calls:
            return self.content.strip() in [words.strip() for words in said]
        said += [self.text] if ours.calls else []
        return self._silenced(self.content) in map(self._silenced, said)

    def _silenced(self, words):
        return re.sub("|".join((_SPECIAL, *map(re.escape, self.form.noise))), "", words).strip()


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


def _same_call(ours, theirs):
    if ours.name != theirs["name"]:
        return False
    if ours.state != "complete":
        return _bare(theirs["arguments"]).startswith(_bare(ours.raw).rstrip('"}')) or not theirs["arguments"]
    try:
        return same(ours.arguments, json.loads(theirs["arguments"]))
    except ValueError:
        return False


def _bare(text):
    return re.sub(r"\s", "", text)
