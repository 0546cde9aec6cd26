"""Recorded answers of real providers, whole and streamed.

    own wire     decode, then encode: the same document, and no loss
    streams      any chunking gives the same events; the folded stream is the same answer as its whole, survives encoding as a
                 whole and as a stream, and is an error only where the recording is cut or a peer broke the protocol
    other wires  to every other wire and back: calls, arguments, text, reasoning, counts and the stop reason arrive, or a loss
                 names them; so does every field that only the source knows

The whole of a Responses stream is its final response. For other streams it is what the provider's own SDK accumulates.
Whatever differs is in DEVIATIONS, with its reason. No answer deviates on its own wire.
"""

from collections import Counter
from functools import cache
from itertools import product
from random import Random

import pytest
from recorded_answers import (
    REFUSED,
    answers,
    decoded,
    is_cut,
    is_published,
    providers,
    recorded_whole,
    streams,
    wholes,
)
from recorded_chunks import REFUSAL, SKIPPED_FIXTURES, skip_rule_of, wire_of
from recorded_traffic import fixtures, require_recordings
from sdk_accumulators import Accumulators

import toolwire
from loopback import loopback
from toolwire.bridge.translation.exchange import AnswerConverter, Exchange, convert_response
from toolwire.ir import Opaque, ProtocolError, Text, TruncatedStream, fold
from toolwire.ir.folding import unfold, unfold_end
from toolwire.ir.hosted import HOSTED_KINDS
from toolwire.ir.losses import Losses
from toolwire.testing.assertions import differences, plain, strip_extra
from toolwire.testing.pair_checks import unexplained_in_response
from toolwire.testing.stream_checks import bytewise, decode_stream, random_chunks
from toolwire.wire import get, names

WIRES = [name for name in names() if "@" not in name]

SEALED = "sealed"
RENAMED = "renamed"
RULES = {
    SEALED: "OpenAI encrypts reasoning, compactions and programs anew in every event, so the ciphertext differs",
    RENAMED: "the server gives an item another id in every event, as GitHub Copilot and OpenRouter do",
}
"""Differences between a stream and its whole that are the provider's: reason."""

SHORTENED = "shortened"
REASONS = {**RULES, SHORTENED: "shortened by hand: its deltas are another text than its finished item"}
DEVIATIONS = {
    "openai: test_openai_responses/test_openai_responses_code_execution_return_image_stream.yaml #0": SEALED,
    "openai: test_openai_responses/test_openai_responses_phase_streamed_on_part_start.yaml #0": SEALED,
    "openai: test_openai_responses/test_openai_responses_thinking_part_iter.yaml #0": SEALED,
    "openrouter: test_openai_responses/test_openai_responses_raw_cot_stream_openrouter.yaml #0": RENAMED,
    "openai/src/responses/__fixtures__/github-copilot-id-rotation.1.chunks.txt": RENAMED,
    "openai/src/responses/__fixtures__/openai-compaction.1.chunks.txt": SEALED,
    "openai/src/responses/__fixtures__/openai-reasoning-encrypted-content.1.chunks.txt #0": SEALED,
    "openai/src/responses/__fixtures__/openai-shell-container.1.chunks.txt": SHORTENED,
    "openai/src/responses/__fixtures__/programmatic-tool-calling.1.chunks.txt": SEALED,
}
"""Streams that differ from their final response: key of REASONS."""

UNACCUMULATED = {
    "mistral: test_mistral/test_mistral_model_thinking_part_iter.yaml #0": "OpenAI's SDK does not read arrays of content",
    "openrouter: test_openrouter/test_openrouter_web_search_annotations_stream.yaml #0": (
        "OpenAI's SDK refuses array elements without an index, as OpenRouter's annotations are"
    ),
    "google/src/__fixtures__/google-stream-no-args-tool-call.chunks.txt": "Google's SDK does not put arguments together",
    "google/src/__fixtures__/google-stream-tool-call-arguments.chunks.txt": "Google's SDK does not put arguments together",
    "google/src/__fixtures__/google-vertex-stream-tool-call-arguments-nested.1.chunks.txt": (
        "Google's SDK does not put arguments together"
    ),
}
"""Streams on a wire whose SDK accumulates, and that it does not accumulate: reason."""

COUNTS = {
    "anthropic": (214, 11, 0),
    "azure": (3, 0, 0),
    "bedrock": (10, 3, 3),
    "cerebras": (8, 0, 0),
    "cohere": (12, 0, 0),
    "deepseek": (9, 4, 3),
    "gemini": (224, 11, 0),
    "groq": (57, 5, 0),
    "huggingface": (7, 1, 0),
    "mistral": (44, 1, 0),
    "ollama": (3, 0, 0),
    "openai": (315, 57, 19),
    "openrouter": (35, 9, 1),
    "vercel/alibaba": (2, 0, 0),
    "vercel/amazon-bedrock": (6, 8, 0),
    "vercel/anthropic": (22, 27, 0),
    "vercel/azure": (7, 5, 4),
    "vercel/cohere": (5, 3, 0),
    "vercel/deepseek": (4, 3, 0),
    "vercel/google": (7, 15, 0),
    "vercel/groq": (2, 1, 0),
    "vercel/mistral": (3, 2, 0),
    "vercel/moonshotai": (2, 1, 0),
    "vercel/open-responses": (3, 1, 1),
    "vercel/openai": (22, 30, 26),
    "vercel/openai-compatible": (1, 1, 0),
    "vercel/perplexity": (1, 1, 0),
    "vercel/xai": (5, 3, 2),
    "vertex": (80, 1, 0),
}
"""Published recordings: provider, (whole answers, streams, streams with a final response)."""


@pytest.fixture(autouse=True)
def _recordings():
    require_recordings()


def problems_of(found, check):
    """What `check` reports for each answer; an exception is a report, too."""
    reports = []
    for one in found:
        try:
            report = check(one)
        except Exception as error:  # the next recordings are to be run all the same
            report = f"{type(error).__name__}: {error}"
        if report:
            reports.append(f"{one}: {report}")
    return reports


# own wire


@pytest.mark.parametrize("provider", providers())
def test_whole_answers_round_trip_on_their_own_wire(provider):
    def check(one):
        written, losses = get(one.wire).encode_response(decoded(one))
        return differences(written, one.body) or [str(loss) for loss in losses]

    reports = problems_of([one for one in wholes() if one.provider == provider], check)
    assert not reports, "\n".join(reports)


def test_streams_end_in_an_error_only_when_truncated_or_broken():
    for one in answers():
        if one.data is None:
            continue
        if one.name in REFUSED:
            with pytest.raises(ProtocolError):
                decode_stream(get(one.wire), [one.data])
        elif is_cut(one):
            with pytest.raises(TruncatedStream):
                decode_stream(get(one.wire), [one.data])
        else:
            assert decoded(one) is not None, one
    if is_published():
        assert {one.name for one in answers()} >= set(REFUSED), "a stream in REFUSED that does not exist"
        assert not [one for one in answers() if is_cut(one)]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("provider", providers())
def test_any_chunking_of_a_stream_gives_the_same_events(provider):
    def check(one):
        wire, random = get(one.wire), Random(one.name)
        events = decode_stream(wire, [one.data])
        chunkings = [random_chunks(one.data, random, pieces) for pieces in (2, 7, 60)]
        chunkings += [bytewise(one.data)] if len(one.data) < 4000 else []
        is_same = all(decode_stream(wire, chunks) == events for chunks in chunkings)
        return None if is_same else "other events in other chunks"

    reports = problems_of([one for one in streams() if one.provider == provider], check)
    assert not reports, "\n".join(reports)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("provider", providers())
def test_a_folded_stream_survives_its_own_wire(provider):
    """Encoded as a whole, as the events that were read, and as the events of the folded answer."""

    def check(one):
        response, wire = decoded(one), get(one.wire)
        if response.fault is not None:
            return None
        found = differences(wire.decode_response(wire.encode_response(response).body), response)
        for events in (decode_stream(wire, [one.data]), unfold(response)):
            encoder = wire.stream_encoder()
            again = fold(decode_stream(wire, [b"".join([encoder.feed(event) for event in events])]))
            found += differences(again, response)
        return found

    reports = problems_of([one for one in streams() if one.provider == provider], check)
    assert not reports, "\n".join(reports)


# streams and their wholes


@cache
def folding(answer):
    """How a folded stream differs from its recorded whole: None, a key of RULES, or pointers to the differences."""
    body = recorded_whole(answer)
    if body is None or decoded(answer).fault is not None:
        return None
    folded, whole = plain(decoded(answer)), plain(get(answer.wire).decode_response(body))
    for rule, normalise in ((None, lambda value: value), (SEALED, without_ciphertext), (RENAMED, without_ids)):
        found = differences(normalise(folded), normalise(whole))
        if not found:
            return rule
    return tuple(found)


def without_ciphertext(value):
    """Ciphertext stays as a mark that there is one."""
    if isinstance(value, list):
        return [without_ciphertext(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "encrypted":
        return {**value, "data": "sealed"}
    sealed = {"encrypted_content", "fingerprint"}
    return {key: "sealed" if key in sealed else without_ciphertext(item) for key, item in value.items()}


def without_ids(value):
    if isinstance(value, list):
        return [without_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without_ids(item) for key, item in value.items() if key != "id"}


def test_a_folded_stream_is_the_same_as_its_recorded_whole():
    found = {one.name: folding(one) for one in streams() if folding(one) is not None}
    unexplained = {name: kind for name, kind in found.items() if name not in DEVIATIONS and kind not in RULES}
    assert not unexplained, unexplained
    for name, kind in DEVIATIONS.items():
        assert kind in REASONS
        assert not is_published() or (name in found and (found[name] == kind or kind == SHORTENED)), name
    assert not is_published() or set(found) == set(DEVIATIONS)


def without_null(value):
    """Null stands for an absent field in the SDKs' models."""
    if isinstance(value, list):
        return [without_null(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: without_null(item) for key, item in value.items() if item is not None}


@pytest.fixture(scope="module")
def sdks():
    with loopback() as server:
        accumulators = Accumulators(server)
        yield accumulators
        accumulators.close()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("provider", providers())
def test_folded_stream_equals_what_the_official_client_accumulates(provider, sdks):
    """Compared in what every client reads. Fields that only one provider has are joined in another way by the SDKs."""

    def check(one):
        if one.wire not in sdks.wires or decoded(one).fault is not None:
            return None
        body = sdks.whole(one.wire, one.data)
        if body is None or one.name in UNACCUMULATED:
            unneeded = "in UNACCUMULATED, and accumulated" if body is not None else None
            return "not accumulated" if is_published() and one.name not in UNACCUMULATED else unneeded
        pair = [
            without_null(strip_extra(plain(value))) for value in (decoded(one), get(one.wire).decode_response(body))
        ]
        folded, whole = [{field: value.get(field) for field in ("parts", "stop", "usage")} for value in pair]
        return differences(folded, whole)

    reports = problems_of([one for one in streams() if one.provider == provider], check)
    assert not reports, "\n".join(reports)


# other wires


def round_trip_losses(response, reader, writer):
    """What a whole answer loses on the way to `writer` and back without a loss that names it."""
    lost = []
    for source, target in ((reader, writer), (writer, reader)):
        losses = Losses()
        converted = convert_response(response, Exchange(wire=source), target, losses)
        if converted.response.fault is not None:
            return lost
        written, more = target.encode_response(converted.response)
        converted.encoder_losses.extend(more)
        back = target.decode_response(written)
        lost += unexplained(response, back, list(losses), source, target)
        response = back
    return lost


def streamed_round_trip_losses(data, reader, writer):
    """The same for a stream. Return what is lost, and the bytes on the other wire."""
    lost, first = [], b""
    for source, target in ((reader, writer), (writer, reader)):
        losses, out = Losses(), []
        events = decode_stream(source, [data])
        converter = AnswerConverter(Exchange(wire=source), target, losses)
        encoder = target.stream_encoder()
        encoder.losses = converter.encoder_losses
        for event in events:
            out += [encoder.feed(converted) for converted in converter.feed(event)]
        before, data = fold(events), b"".join(out)
        back = fold(decode_stream(target, [data]))
        first = first or data
        if before.fault is not None or converter.fault is not None:
            return ([] if back.fault is not None else ["the error did not arrive"]), first
        lost += unexplained(before, back, list(losses), source, target, data)
    return lost, first


def unexplained(before, after, losses, source, target, data=b""):
    """`data` is a stream. Responses has log probabilities in its last event, if its encoder knows no request."""
    lost = unexplained_in_response(before, after, losses)
    named = {loss.concept.rpartition(" ")[2] for loss in losses}
    own = {scope for scope in fields_by_scope(plain(before)) if scope.partition("/")[0] == target.name}
    if target.logprobs is not None:  # converted (test_logprobs.py)
        arrived = fields_by_scope(plain(after)).get(target.logprobs.scope, ())
        if target.logprobs.field in arrived or b'"logprobs":[{' in data.rpartition(b"event: response.")[2]:
            named |= {"logprobs", "logprobsResult"}
    if source.hosted is not None and target.hosted is not None:  # converted (test_hosted_tools.py)
        hidden = {*HOSTED_KINDS} - target.hosted.shows
        if hosted_content(before, source.hosted) - hidden <= hosted_content(after, target.hosted):
            named |= {field for _, field in source.hosted.scopes}
    return lost + [
        f"{scope} {field} is gone without a loss"
        for scope, fields in fields_by_scope(plain(before)).items()
        if scope not in own
        for field in sorted(fields - named)
    ]


def hosted_content(response, hosted):
    """The cited pages of an answer, and the kinds of runs in its metadata, as the codec of its wire reads them."""
    parts = [hosted.read_run(part) for part in response.parts if isinstance(part, Opaque) and part.type in hosted.parts]
    kinds = {run.kind for run in parts if run is not None}
    if hosted.read_end is not None:
        runs, (citations, _) = hosted.read_end(unfold_end(response), "")
        return {citation.url for citation in citations} | {run.kind for run in runs} | kinds
    texts = [part.extra for part in response.parts if isinstance(part, Text)]
    return {citation.url for extra in texts for citation in hosted.read_text(extra)[0]} | kinds


def fields_by_scope(value):
    """The fields of a canonical value that only one wire knows, by their place there."""
    found = {}
    for scope, field in _own_fields(value):
        found.setdefault(scope, set()).add(field)
    return found


def _own_fields(value):
    if isinstance(value, list):
        for item in value:
            yield from _own_fields(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "extra":
                yield from ((scope, field) for scope, fields in item.items() for field in fields)
            elif key not in ("arguments", "value"):
                yield from _own_fields(item)


PAIRS = [(source, target) for source, target in product(sorted({one.wire for one in answers()}), WIRES)]


def is_unfinished(response):
    """A Responses answer in the background that has not begun. No other wire has a form for it."""
    return response.stop is None and not response.parts


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] != pair[1]])
def test_whole_answers_round_trip_over_another_wire(source, target):
    def check(one):
        translation = toolwire.translate(one.body, source=source, target=target, kind="response")
        if translation.status != 200:
            is_error = decoded(one).fault is not None or is_unfinished(decoded(one))
            return None if is_error else f"became an error: {translation.body}"
        return round_trip_losses(decoded(one), get(source), get(target))

    reports = problems_of([one for one in wholes() if one.wire == source], check)
    assert not reports, "\n".join(reports)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] != pair[1]])
def test_streams_round_trip_over_another_wire(source, target):
    def check(one):
        lost, written = streamed_round_trip_losses(one.data, get(source), get(target))
        translation = toolwire.translate_stream(source=source, target=target)
        if translation.feed(one.data) + translation.close() != written:
            lost.append("translate_stream writes something else")
        return lost

    reports = problems_of([one for one in streams() if one.wire == source], check)
    assert not reports, "\n".join(reports)


# nothing is left out


def test_every_recording_is_counted():
    found = {}
    for one in answers():
        whole, streamed, final = found.get(one.provider, (0, 0, 0))
        has_final = one in streams() and recorded_whole(one) is not None
        found[one.provider] = whole + (one.data is None), streamed + (one.data is not None), final + has_final
    assert not is_published() or found == COUNTS


def test_every_fixture_is_run_or_skipped_for_a_reason():
    for fixture in fixtures():
        assert wire_of(fixture) is not None or skip_rule_of(fixture) is not None
    skipped = Counter(filter(None, map(skip_rule_of, fixtures())))
    assert not is_published() or set(skipped) == {*SKIPPED_FIXTURES, REFUSAL}
