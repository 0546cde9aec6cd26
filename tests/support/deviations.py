"""Answers of imperfect servers (tests/vectors/deviations.json), and the result that each of them must have.

A vector is a stream (`events`, strings to concatenate) or a whole answer (`body`):

    name      the deviation, as docs/upstreams.md describes it
    wire      the wire on which the server answers
    source    the public issue or documentation that shows it
    reading   how it is read
    expected  text, calls, reasoning, stop and usage of the answer; or `fault`, a part of the message of the server's
              error; or `error`, the class of our own error; `losses`, the concepts that are reported
    sdk       the reason why the official SDK accumulates another result, if it does
    partial   true if a prefix of the stream is an answer of its own, such as a stream with early finish reasons
    untranslatable  true if clients of some wires get an error
"""

import json
from typing import Any

import msgspec

from places import TESTS
from toolwire import ToolwireError, fold
from toolwire.ir import Reasoning, Response
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get

VECTORS = TESTS / "vectors" / "deviations.json"


class Deviation(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    wire: str
    source: str
    reading: str
    expected: dict[str, Any]
    events: list[str] = []
    body: dict[str, Any] | None = None
    sdk: str = ""
    partial: bool = False
    untranslatable: bool = False

    @property
    def data(self) -> bytes:
        return "".join(self.events).encode()

    @property
    def is_answer(self) -> bool:
        return "error" not in self.expected and "fault" not in self.expected

    def __repr__(self) -> str:
        return f"{self.wire}: {self.name}"


def load_deviations() -> list[Deviation]:
    return msgspec.convert(json.loads(VECTORS.read_text(encoding="utf-8")), list[Deviation])


def content(response: Response) -> dict[str, Any]:
    """Return the content of an answer that every wire carries."""
    return {
        "text": response.text,
        "calls": [[call.name, call.arguments] for call in response.calls if call.state == "complete"],
        "reasoning": "".join(part.joined_text for part in response.parts if isinstance(part, Reasoning)),
    }


def outcome(response: Response) -> dict[str, Any]:
    """Return a response in the terms of `expected`."""
    if response.fault is not None:
        return {"fault": response.fault.message}
    found = content(response)
    usage = response.usage
    found["stop"] = None if response.stop is None else response.stop.reason
    found["usage"] = None if usage is None else [usage.input, usage.output]
    return found


def decode(deviation: Deviation) -> dict[str, Any]:
    """Return what our decoder makes of a deviation, in the terms of `expected`."""
    wire = get(deviation.wire)
    try:
        if deviation.body is not None:
            return outcome(wire.decode_response(deviation.body))
        return outcome(fold(decode_stream(wire, [deviation.data])))
    except ToolwireError as error:
        return {"error": type(error).__name__}


def assert_expected(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check the fields that a vector states; content that it does not state must be absent."""
    if "fault" in expected or "error" in expected:
        assert found.keys() == expected.keys() - {"losses"}, found
        assert all(str(value) in str(found[key]) for key, value in expected.items() if key != "losses"), found
        return
    defaults = {"text": "", "calls": [], "reasoning": ""}
    stated = {**defaults, **{key: value for key, value in expected.items() if key != "losses"}}
    assert {key: found.get(key) for key in stated} == stated, found
