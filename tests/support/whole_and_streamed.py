"""Compare the translations of an answer in its two forms: a document, and a stream."""

import toolwire
from toolwire.bridge.translation.outcome import SourceDocument, locate
from toolwire.stream.strict import parse_partial
from toolwire.testing.assertions import differences, plain, strip_extra
from toolwire.testing.stream_checks import decode_stream
from toolwire.wire import get

STREAM_ONLY = {
    # adjacent parts of one kind are one part of a Gemini stream, because only a part of another kind separates them
    ("gemini", "text", "rewritten", "info"),
    ("gemini", "reasoning", "rewritten", "info"),
    # the documented stream of Chat has no delta for a freeform call
    ("openai_chat", "freeform call", "rewritten", "warning"),
    # the sections of a summary are one text in a stream of Interactions
    ("gemini_interactions", "reasoning summary", "rewritten", "info"),
}
"""Losses that a wire has in streams only: (target, concept, action, severity)."""
PARTIAL_INPUT = {"anthropic", "bedrock"}
"""Documents of these wires have only the complete arguments of a truncated call; their streams have all of its text, which a
document of the other wire cannot hold."""


def as_stream(codec, response):
    encoder = codec.stream_encoder()
    return b"".join([encoder.feed(event) for event in toolwire.unfold(response)])


def as_document(codec, data):
    return codec.encode_response(toolwire.fold(decode_stream(codec, [data]))).body


def is_same_answer(codec, document, data):
    """Return whether a wire carries the same answer in both forms, apart from the text of a truncated call."""
    whole, streamed = codec.decode_response(document), toolwire.fold(decode_stream(codec, [data]))
    return not differences(shape(whole, extra=True), shape(streamed, extra=True))


def shape(response, *, extra=False, target=""):
    """Return an answer as JSON, without form; of a truncated call, the arguments that are complete.

    On a target that does not keep the order or the boundaries of texts, the parts are sorted or joined.
    """
    if response.fault is not None:
        return {"fault": [response.fault.kind, response.fault.message]}
    found = plain(response) if extra else strip_extra(plain(response))
    for choice in (found, *found.get("alternatives", ())):
        for part in choice.get("parts", ()):
            if part.get("part") == "call" and part.get("kind") != "freeform":
                part["arguments"] = part.get("arguments") or parse_partial(part.pop("raw", None) or "")
                part.pop("raw", None)
        if target == "gemini_interactions":  # a stream has sent the beginning of a call that is left out of a document
            choice["parts"] = [part for part in choice.get("parts", ()) if part.get("state") != "truncated"]
            for part in choice["parts"]:
                if part.get("summary"):
                    part["summary"] = ["\n\n".join(part["summary"])]
        if target == "gemini":
            choice["parts"] = _join_neighbours(choice.get("parts", []))
        if target and not get(target).capabilities.ordered:
            choice["parts"] = _join_neighbours(sorted(choice.get("parts", []), key=_rank))
    return found


def _rank(part):
    return ["reasoning", "media", "text", "refusal", "call"].index(part.get("part"))


def _join_neighbours(parts):
    joined = []
    for part in parts:
        if (
            joined
            and part.get("part") in ("text", "reasoning", "refusal")
            and joined[-1].keys() == part.keys() == {"part", "text"}
        ):
            if joined[-1]["part"] == part["part"]:
                joined[-1] = {**part, "text": joined[-1]["text"] + part["text"]}
                continue
        joined.append(part)
    return joined


def rows(losses):
    return {(loss.path, loss.concept, loss.action, loss.severity) for loss in losses}


def disagreements(document, data, source, target):
    """Return the differences between the two translations of one answer: of the result, of the losses."""
    translated = toolwire.translate(document, source=source, target=target, kind="response")
    stream = toolwire.translate_stream(source=source, target=target)
    written = stream.feed(data) + stream.close()
    whole = _read_document(get(target), translated)
    streamed = toolwire.fold(decode_stream(get(target), [written]))
    found = differences(shape(streamed, target=target), shape(whole, target=target))
    if whole.fault is not None:
        if target == "bedrock" and streamed.fault is not None and streamed.fault.kind == "malformed_call":
            found = []  # a stop reason in streams, without a message; the kind of an error document is in a header
        # an error document has losses of its own, and a stream has already written what was before the error
        mine, other = [
            {row for row in rows(losses) if row[1] == "answer"} for losses in (translated.losses, stream.losses)
        ]
        return found + sorted(map(str, mine ^ other))
    source_document = SourceDocument(document, get(source).locator(get(source).decode_response(document)))
    of_whole, of_stream = rows(translated.losses), rows(locate(stream.losses, source_document))
    of_stream = {row for row in of_stream if row in of_whole or not _is_stream_only(source, target, row)}
    return found + sorted(f"only in {'stream' if row in of_stream else 'whole'}: {row}" for row in of_whole ^ of_stream)


def _read_document(codec, translated):
    """Read an answer or an error; the type of Bedrock's errors is in a header."""
    if codec.name == "bedrock" and translated.status >= 400:
        return toolwire.Response(fault=codec.decode_error(translated.status, translated.body, translated.headers))
    return codec.decode_response(translated.body)


def _is_stream_only(source, target, row):
    """Return whether a loss can occur in streams only: also an event of an unknown type, which no document has."""
    if {source, target} == PARTIAL_INPUT and row[1:] == ("call", "weakened", "warning"):
        return True
    return (target, *row[1:]) in STREAM_ONLY or row[1].startswith("event ")
