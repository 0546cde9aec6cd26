"""Recorded answers without their requests (`recorded_traffic.fixtures`): the wire of each, and its chunks as bytes.

A fixture without a wire is skipped for a reason in SKIPPED_FIXTURES. One that matches neither a wire nor a skip rule raises, so
that no fixture is left out unnoticed.
"""

import json
import re

from toolwire.stream.event_stream import encode_event

FIXTURES = 215
"""Number of published fixtures. Lists are checked for stale entries only where all of them are present."""

SKIPPED_FIXTURES = {
    r"^(?:cartesia|deepgram|elevenlabs|fal|gladia|revai)/|[-/]transcription[-./]|/speech/": "speech services",
    r"^voyage/|-embedding\.|/embedding/|/reranking/": "embeddings and reranking",
    r"/(?:image|video)/": "image and video endpoints",
    r"/(?:skills|files)/": "storage of skills and files",
    r"/speech-translation/": "realtime speech",
    r"/completion/": "legacy text completions",
    r"^google/src/interactions/__fixtures__/image-output\.chunks": "empty as recorded",
    r"^harness-": "messages of a coding agent",
}
"""Pattern for the name: reason."""

REFUSAL = "a refusal, which is no answer: an object with nothing but an error"

DAMAGED_FIXTURES = {
    "openai/src/responses/__fixtures__/parallel-tool-call-wrapper.1.chunks.txt": (
        "written by hand: its first and its last chunk lack a closing brace"
    ),
}
"""Streams that are not JSON as recorded, which no provider sends: reason."""

LAST = {
    "anthropic": ("message_stop",),
    "gemini_interactions": ("interaction.completed",),
    "cohere": ("message-end",),
    "openai_responses": ("response.completed", "response.incomplete", "response.failed"),
}
"""Types of the event that ends an answer. A fixture may hold the answers of several turns."""


class UnknownFixture(Exception):
    """A fixture that is neither on a wire nor skipped for a reason."""


def name_of(fixture):
    return fixture.source.removeprefix("vercel/ai ")


def skip_rule_of(fixture):
    """The rule that skips a fixture: a key of SKIPPED_FIXTURES, REFUSAL, or None."""
    rule = next((rule for rule in SKIPPED_FIXTURES if re.search(rule, name_of(fixture))), None)
    return REFUSAL if rule is None and fixture.document is not None and set(fixture.document) == {"error"} else rule


def wire_of(fixture):
    """The wire of a fixture, or None where it is skipped. Raise UnknownFixture where it is neither."""
    if skip_rule_of(fixture) is not None:
        return None
    documents = [fixture.document] if fixture.document is not None else filter(None, map(_parsed, fixture.chunks))
    found = next(filter(None, map(_wire_of_document, documents)), None)
    if found is None:
        raise UnknownFixture(f"{name_of(fixture)} is neither on a wire nor skipped: add a row to SKIPPED_FIXTURES")
    return found


def _parsed(chunk):
    try:
        return json.loads(chunk)
    except ValueError:
        return None


def _wire_of_document(document):
    match document:
        case {"choices": list()}:
            return "openai_chat"
        case {"object": "response"}:
            return "openai_responses"
        case {"type": str(kind)} if kind.startswith("response."):
            return "openai_responses"
        case {"type": "message" | "message_start"}:
            return "anthropic"
        case {"candidates": list()}:
            return "gemini"
        case {"type": "message-start"} | {"message": dict(), "finish_reason": str()}:
            return "cohere"
        case {"event_type": str()} | {"object": "interaction"}:
            return "gemini_interactions"
        case {"output": {"message": dict()}} | {"messageStart": dict()} | {"contentBlockStart": dict()}:
            return "bedrock"
        case {"contentBlockDelta": dict()}:
            return "bedrock"
    return None


def is_known(fixture):
    try:
        wire_of(fixture)
    except UnknownFixture:
        return False
    return True


def streams_of(fixture):
    """The bytes of each answer in a fixture of chunks."""
    wire = wire_of(fixture)
    if wire == "bedrock":  # each chunk is the payload of an event under its type
        events = [json.loads(chunk) for chunk in fixture.chunks]
        return [b"".join(encode_event(kind, json.dumps(event[kind]).encode()) for event in events for kind in event)]
    answers, frames = [], []
    for chunk in fixture.chunks:
        parsed = _parsed(chunk) or {}
        kind = parsed.get("type") or parsed.get("event_type")
        frames.append((f"event: {kind}\n" if kind else "") + f"data: {chunk}\n\n")
        if kind in LAST.get(wire, ()):
            answers.append("".join(frames).encode())
            frames = []
    if frames:
        frames += ["data: [DONE]\n\n"] if wire == "openai_chat" else []
        answers.append("".join(frames).encode())
    return answers
