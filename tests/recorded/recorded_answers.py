"""Recorded answers, whole and streamed: from exchanges (`recorded_traffic`) and from fixtures (`recorded_chunks`)."""

import json
import re
from dataclasses import dataclass
from functools import cache

from recorded_chunks import DAMAGED_FIXTURES, FIXTURES, is_known, name_of, streams_of, wire_of
from recorded_traffic import PUBLISHED, exchanges, fixtures, wire_exchanges

from toolwire.ir import fold
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get

REFUSED = {
    "anthropic/src/__fixtures__/spliced-message-start.chunks.txt": (
        "a second message begins inside the first (vercel/ai#18331): a protocol error by design"
    ),
    **DAMAGED_FIXTURES,
}
"""Streams that have to end in a ProtocolError: reason."""


@dataclass(frozen=True, eq=False)
class Answer:
    """One recorded answer: a `body`, or the `data` of a stream."""

    name: str
    provider: str
    wire: str
    body: dict | None = None
    data: bytes | None = None

    def __str__(self):
        return self.name


@cache
def answers():
    found = [_of_exchange(one) for one in wire_exchanges() if one.accepted]
    found += [one for fixture in fixtures() if is_known(fixture) and wire_of(fixture) for one in _of_fixture(fixture)]
    return found


def _of_exchange(exchange):
    name = f"{exchange.provider}: {exchange.source.removeprefix('pydantic-ai ')}"
    if exchange.stream is None:
        return Answer(name, exchange.provider, exchange.wire, body=exchange.response)
    try:  # an answer that was recorded as text, because its content type was not JSON
        return Answer(name, exchange.provider, exchange.wire, body=json.loads(exchange.stream))
    except ValueError:
        return Answer(name, exchange.provider, exchange.wire, data=exchange.stream)


def _of_fixture(fixture):
    name, provider, wire = name_of(fixture), f"vercel/{fixture.package}", wire_of(fixture)
    if fixture.document is not None:
        return [Answer(name, provider, wire, body=fixture.document)]
    streams = streams_of(fixture)
    numbers = [f" #{number}" if len(streams) > 1 else "" for number in range(len(streams))]
    return [Answer(name + number, provider, wire, data=data) for number, data in zip(numbers, streams, strict=True)]


@cache
def wholes():
    return [one for one in answers() if one.body is not None]


@cache
def streams():
    """Streams that are answers: neither cut nor broken."""
    return [one for one in answers() if one.data is not None and one.name not in REFUSED and not is_cut(one)]


def is_cut(answer):
    """Whether a recording stops before the mark that ends an answer on its wire."""
    return answer.data is not None and re.search(_ENDS[answer.wire], answer.data) is None


_ENDS = {
    "cohere": rb'"type": ?"message-end"',
    "anthropic": rb'"type": ?"(?:message_stop|error)"',
    "openai_chat": rb'"finish_reason": ?"|"error": ?\{|\[DONE\]',
    "openai_responses": rb'"type": ?"(?:response\.(?:completed|incomplete|failed)|error)"',
    "gemini": rb'"(?:finishReason|blockReason)": ?"|"error": ?\{',
    "gemini_interactions": rb'"event_type": ?"(?:interaction\.completed|error)"',
    "ollama": rb'"done": ?true|"error"',
    "bedrock": rb'"stopReason": ?"',
}


def is_published():
    """Whether exactly the published recordings are here, so that lists can be checked for entries that are not needed."""
    return (len(exchanges()), len(fixtures())) == (PUBLISHED, FIXTURES)


def providers():
    return sorted({one.provider for one in answers()})


@cache
def decoded(answer):
    wire = get(answer.wire)
    return wire.decode_response(answer.body) if answer.data is None else fold(decode_stream(wire, [answer.data]))


def recorded_whole(answer):
    """The final response of a Responses stream, which is the whole answer, or None."""
    if answer.wire != "openai_responses":
        return None
    events = [json.loads(found) for found in re.findall(rb"(?m)^data: ?(\{.*)$", answer.data)]
    finals = [event["response"] for event in events if event["type"] in ("response.completed", "response.incomplete")]
    return finals[-1] if finals else None
