"""Answers of imperfect servers are read, or end in an error: nothing that a server sent is lost silently."""

from itertools import takewhile
from pickle import dumps, loads
from random import Random

import pytest

from deviations import assert_expected, content, decode, load_deviations, outcome
from recordings import WIRES
from tables import every_case
from toolwire import ToolwireError, fold, translate_response, translate_stream
from toolwire.stream import strict
from toolwire.testing.stream_checks import bytewise, decode_stream, random_chunks
from toolwire.wire import get

DEVIATIONS = load_deviations()
STREAMS = [deviation for deviation in DEVIATIONS if deviation.events]
ANSWERS = [deviation for deviation in DEVIATIONS if deviation.is_answer and not deviation.untranslatable]

every_deviation = every_case("deviation", DEVIATIONS, ids=repr)
every_stream = every_case("deviation", STREAMS, ids=repr)
every_answer = every_case("deviation", ANSWERS, ids=repr)


@pytest.mark.finding("GA1", "GA4", "GA7", "GA8", "GA12", "GA17")
@every_deviation
def test_deviation_has_its_stated_result(deviation):
    assert_expected(decode(deviation), deviation.expected)


@every_stream
def test_chunking_does_not_change_a_deviant_stream(deviation):
    wire, random = get(deviation.wire), Random(deviation.name)

    def events(chunks):
        try:
            return decode_stream(wire, chunks)
        except ToolwireError as error:
            return type(error)

    expected = events([deviation.data])
    assert events(bytewise(deviation.data)) == expected
    for pieces in (3, 9):
        assert events(random_chunks(deviation.data, random, pieces)) == expected


def with_outcomes_of_prefixes(name):
    """Yield every deviant stream of a wire, with the outcomes of its prefixes: None for an error.

    Prefixes that several streams share are decoded once; so is the beginning of a prefix up to its last line.
    """
    previous, outcomes = b"", []
    states = [(0, dumps(get(name).stream_decoder()), [])]  # after each line: position, decoder, events
    for deviation in sorted((d for d in STREAMS if d.wire == name), key=lambda deviation: deviation.data):
        data = deviation.data
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(previous, data, strict=False)))
        del outcomes[shared + 1 :]
        states = [state for state in states if state[0] <= shared]
        for length in range(len(outcomes), len(data)):
            start, state, events = states[-1]
            decoder = loads(state)
            try:
                events = events + decoder.feed(data[start:length])
                if data[:length].endswith(b"\n"):
                    states.append((length, dumps(decoder), events))
                outcomes.append(outcome(fold(events + decoder.close())))
            except ToolwireError:
                outcomes.append(None)
        previous = data
        yield deviation, outcomes


@pytest.mark.parametrize("wire", WIRES)
def test_prefix_of_a_deviant_stream_is_an_error_or_the_answer(wire, monkeypatch):
    """A prefix never has a complete call that the answer lacks."""
    monkeypatch.setattr(strict, "pointer_at", lambda *_: "")  # a fifth of the time; nothing here compares the pointers
    for deviation, outcomes in with_outcomes_of_prefixes(wire):
        whole = decode(deviation)
        for length, found in enumerate(outcomes):
            where = deviation, length
            if found is None:
                continue
            if "fault" in found:
                assert "fault" in whole, where
                continue
            calls = list(whole.get("calls", ()))
            assert found["calls"] == calls[: len(found["calls"])], where
            if not deviation.partial and not deviation.expected.get("error"):
                assert {**found, "usage": 0, "stop": 0} == {**whole, "usage": 0, "stop": 0}, where


@every_answer
def test_deviant_answer_reaches_clients_of_every_other_wire(deviation):
    for target in WIRES:
        if target == deviation.wire:
            continue
        if deviation.body is not None:
            translation = translate_response(deviation.body, source=deviation.wire, target=target)
            found, losses = get(target).decode_response(translation.body), translation.losses
        else:
            stream = translate_stream(source=deviation.wire, target=target)
            data = b"".join(map(stream.feed, bytewise(deviation.data))) + stream.close()
            assert stream.error is None, (target, stream.error)
            found, losses = fold(decode_stream(get(target), [data])), stream.losses
        assert_expected(content(found), {key: deviation.expected[key] for key in ("text", "calls", "reasoning") if key in deviation.expected})  # fmt: skip
        concepts = {loss.concept for loss in losses}
        assert concepts.issuperset(deviation.expected.get("losses", ())), (target, concepts)
