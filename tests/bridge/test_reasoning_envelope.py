"""Envelopes of reasoning: only their own gateway, server and model can open them, and only unchanged."""

import json
import tracemalloc
import zlib
from base64 import b64decode, urlsafe_b64encode
from hashlib import sha256
from hmac import digest

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.bridge.conversation import reasoning_envelope
from toolwire.bridge.conversation.reasoning_envelope import (
    MAX_CONTENTS,
    MAX_OPENED,
    PREFIX,
    AnswerSealer,
    EnvelopeFinder,
    EnvelopeReader,
    ReasoningEnvelopes,
    has_envelope,
    may_contain_envelope,
)
from toolwire.ir.events import ReasoningDelta, ReasoningEnd, ReasoningStart, WholePart
from toolwire.ir.folding import fold, unfold
from toolwire.ir.parts import Artefact, Reasoning, Text
from toolwire.ir.request import Message, Request
from toolwire.ir.response import Response, Stop
from toolwire.wire import get

pytestmark = pytest.mark.finding("CA1")
SECRET, OTHER = "s" * 32, "t" * 32
FORM = {"openai_chat~": {":field": "reasoning_content"}}
THOUGHT = Reasoning("I think — “therefore” 🙂\n", extra=FORM)


def model(*secrets, server="https://api.deepseek.com", name="deepseek-v4", wire="openai_chat"):
    return ReasoningEnvelopes(secrets or (SECRET,)).for_model(wire, server, name)


def seal(part=THOUGHT, envelopes=None, wire="anthropic"):
    response = AnswerSealer(envelopes or model(), wire).seal_response(Response(parts=(part,)))
    return response.parts[0]


def envelope(part=THOUGHT, envelopes=None):
    (artefact,) = seal(part, envelopes).artefacts
    return artefact.data


def returned(text, visible=THOUGHT.text, envelopes=None, summary=()):
    """The reasoning that a client's copy is restored to; None if it is foreign."""
    copy = Reasoning(visible, summary, (Artefact("anthropic", "signature", text),), {"anthropic~": {":any": "form"}})
    (message,) = EnvelopeReader(envelopes or model()).open_messages([Message("assistant", (copy,))])
    (part,) = message.parts
    if part.extra or part.artefacts:
        return part
    assert part == Reasoning(visible, summary)
    return None


def test_verbatim_and_stripped_copies_are_restored():
    assert returned(envelope()) == THOUGHT
    assert returned(envelope(), "") == THOUGHT


def test_artefact_is_in_the_slot_of_the_wire():
    (artefact,) = seal().artefacts
    assert (artefact.provider, artefact.kind) == ("anthropic", "signature")
    (artefact,) = seal(wire="openai_responses").artefacts
    assert (artefact.provider, artefact.kind) == ("openai", "encrypted")


@pytest.mark.parametrize("visible", ["I think", THOUGHT.text + "!", " ", THOUGHT.text.upper()])
def test_edited_text_is_foreign(visible):
    assert returned(envelope(), visible) is None


def test_summary_sections_are_restored():
    part = Reasoning("text", ("one", "two"), extra=FORM)
    text = envelope(part)
    assert returned(text, "") == part
    assert returned(text, "one\n\ntwo\n\ntext") == part  # as Anthropic shows it
    assert returned(text, "", summary=("one", "two")) == part  # as Codex returns it
    assert returned(text, "text", summary=("one", "two")) == part
    assert returned(text, "", summary=("one", "three")) is None
    assert returned(text, "other", summary=("one", "two")) is None


def test_every_edit_of_one_character_is_foreign():
    text = envelope()
    for index in range(len(PREFIX), len(text)):
        for character in "AB_-=":
            if text[index] != character:
                assert returned(text[:index] + character + text[index + 1 :], "") is None


def test_every_truncation_is_foreign():
    text = envelope()
    for size in range(len(PREFIX), len(text)):
        assert returned(text[:size], "") is None
    for longer in (text + "A", text + "AAAA", text + " ", f"{text}\n"):
        assert returned(longer, "") is None


def fields_of(text):
    data, start, fields = b64decode(text.removeprefix(PREFIX), b"-_"), 32, []
    while start < len(data):
        size = int.from_bytes(data[start : start + 4])
        fields.append(data[start + 4 : start + 4 + size])
        start += 4 + size
    return data[:32], fields


def pack(mac, fields):
    body = b"".join(len(field).to_bytes(4) + field for field in fields)
    return PREFIX + urlsafe_b64encode(mac + body).decode()


def sign(fields, secret=SECRET):
    """Sign any fields with the secret, as only a gateway can."""
    key = digest(secret.encode(), b"toolwire reasoning envelope", sha256)
    body = b"".join(len(field).to_bytes(4) + field for field in fields)
    return PREFIX + urlsafe_b64encode(digest(key, body, sha256) + body).decode()


@pytest.mark.parametrize("number", range(5))
def test_edit_of_each_field_is_foreign(number):
    mac, fields = fields_of(envelope())
    assert returned(pack(mac, fields), "") == THOUGHT
    fields[number] = bytes([fields[number][0] ^ 1]) + fields[number][1:]
    assert returned(pack(mac, fields), "") is None


def test_bytes_moved_between_fields_are_foreign():
    mac, fields = fields_of(envelope())
    fields[3], fields[4] = fields[3][:-1], fields[3][-1:] + fields[4]
    assert returned(pack(mac, fields), "") is None


def test_unknown_version_is_foreign_although_it_is_signed():
    _, fields = fields_of(envelope())
    assert returned(sign(fields), "") == THOUGHT
    assert returned(sign([b"\x02", *fields[1:]]), "") is None


@pytest.mark.parametrize("fields", [[], [b""], [b""] * 4, [b""] * 6, [b"\x01"] * 5])
def test_wrong_fields_are_foreign(fields):
    assert returned(sign(fields), "") is None


def test_nothing_is_decompressed_before_the_comparison(monkeypatch):
    mac, fields = fields_of(envelope())

    def fail(*_):
        raise AssertionError("decompressed")

    monkeypatch.setattr(reasoning_envelope, "_decompress", fail)
    assert returned(pack(bytes([mac[0] ^ 1]) + mac[1:], fields), "") is None
    assert returned(envelope(), "", model(OTHER)) is None
    assert returned(envelope(), "", model(name="another")) is None


def test_other_secret_server_model_and_wire_are_foreign():
    text = envelope()
    for other in (model(OTHER), model(name="r1"), model(server="https://api.moonshot.ai"), model(wire="ollama")):
        assert returned(text, "", other) is None


def test_two_secrets_verify_and_the_first_signs():
    assert returned(envelope(), "", model(OTHER, SECRET)) == THOUGHT
    assert returned(envelope(THOUGHT, model(OTHER, SECRET)), "", model(OTHER)) == THOUGHT


def test_address_of_the_server_is_not_readable():
    _, fields = fields_of(envelope())
    assert not any(b"deepseek.com" in field for field in fields)
    assert fields[3] == b"deepseek-v4"


def test_decompression_is_bounded():
    _, fields = fields_of(envelope())
    contents = b'{"runs":[[null,"%b"]],"extra":{"openai_chat~":{}}}' % (b"a" * (2 * MAX_CONTENTS))
    assert returned(sign([*fields[:4], zlib.compress(contents)]), "") is None
    assert returned(sign([*fields[:4], zlib.compress(contents)[:-1]]), "") is None
    assert returned(sign([*fields[:4], b"no zlib"]), "") is None
    assert returned(sign([*fields[:4], zlib.compress(b"no JSON")]), "") is None
    assert returned(sign([*fields[:4], zlib.compress(b'{"runs":[["x",1]],"extra":{}}')]), "") is None


def test_longer_reasoning_gets_no_envelope():
    assert seal(replace(THOUGHT, text="a" * (MAX_CONTENTS + 1))).artefacts == ()
    longest = replace(THOUGHT, text="a" * (MAX_CONTENTS - 200))
    assert returned(envelope(longest), "") == longest


def test_repeated_envelopes_restore_a_bounded_amount():
    large = replace(THOUGHT, text="a" * (MAX_CONTENTS - 200))
    text = envelope(large)
    copy = Reasoning("", artefacts=(Artefact("anthropic", "signature", text),))
    reader = EnvelopeReader(model())
    (message,) = reader.open_messages([Message("assistant", (copy,) * 100)])
    restored = [part for part in message.parts if part.text]
    assert len(restored) == MAX_OPENED // MAX_CONTENTS
    assert reader.opened <= MAX_OPENED


def test_signed_and_unmarked_reasoning_gets_no_envelope():
    signed = replace(THOUGHT, artefacts=(Artefact("anthropic", "signature", "EqQB"),))
    for part in (signed, Reasoning("no fields"), replace(THOUGHT, text="")):
        assert seal(part) is part


def test_only_fields_of_the_model_wire_are_contained():
    part = replace(THOUGHT, extra={**FORM, "openai_responses": {"id": "rs_1"}, "openai_chat/message": {"a": 1}})
    assert returned(envelope(part), "").extra == {**FORM, "openai_chat/message": {"a": 1}}


def spell(text, letters):
    """Write some letters of a JSON string as escapes, every second one with capital digits."""
    digits = ("\\u{:04x}", "\\u{:04X}")
    return "".join(
        digits[number % 2].format(ord(letter)) if number in letters else letter for number, letter in enumerate(text)
    )


SPELLINGS = [spell(PREFIX, letters) for letters in ((), (0,), (8,), (0, 8), (3, 4), range(9))]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("noise", [b"", b"~" * 99, b"\\u0041 \\u00e9" * 99])
def test_envelope_is_found_in_any_spelling_and_in_any_pieces(spelling, noise):
    body = b'{"text":"%b","signature":"%bAAAA"}' % (noise, spelling.encode())
    assert json.loads(body)["signature"] == f"{PREFIX}AAAA"
    assert may_contain_envelope(body)
    assert not may_contain_envelope(body.replace(spelling.encode(), b"TOOLWIRE"))
    for cut in range(body.index(b'"signature"'), len(body)):
        finder = EnvelopeFinder()
        assert any([finder.feed(body[:cut]), finder.feed(body[cut:])])
    finder = EnvelopeFinder()
    assert any(finder.feed(body[index : index + 1]) for index in range(len(body)))


def test_only_fields_for_signatures_have_an_envelope():
    for slot in ("signature", "data", "encrypted_content"):
        assert has_envelope({"input": [1, {"content": [{slot: f" {PREFIX}x"}]}]})
    assert not has_envelope({"messages": [{"content": [{"type": "text", "text": f"{PREFIX}x", "signature": None}]}]})


@pytest.mark.parametrize("change", [" {}", "x{}", PREFIX + "{}", "\0{}", "{}\0", "{} "])
def test_text_around_an_envelope_makes_it_foreign(change):
    assert returned(change.format(envelope()), "") is None


@pytest.mark.parametrize("size", [500, 7_000, 9_000, 40_000])
def test_open_stream_needs_less_memory_than_is_counted(size):
    """The memory of a stream is counted as five times its text."""
    words = [f"{number * 7919 % 10007:x} ".encode() for number in range(size // 5)]
    count = 20
    tracemalloc.start()
    try:
        sealers = [AnswerSealer(model(), "anthropic") for _ in range(count)]
        before = tracemalloc.get_traced_memory()[0]
        for sealer in sealers:
            sealer.seal_event(ReasoningStart(0, 0, FORM))
            for word in words:
                sealer.seal_event(ReasoningDelta(0, bytes(word)))
        held = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    assert held < 5 * sum(map(len, words)) + 2_000


@pytest.mark.parametrize("wire", ["anthropic", "openai_responses"])
def test_provider_that_signs_its_own_reasoning_gets_no_envelope(wire):
    """Its encoder could not send it back, and it would contain the id of an item."""
    part = Reasoning("hm", extra={wire: {"id": "rs_1"}, f"{wire}~": {":item": "reasoning"}})
    assert seal(part, model(wire=wire)) is part


@pytest.mark.parametrize("before", [b"", b"~", b"~" * 63, b"~" * 64, b"~" * 65, b"TOOLWIRE" * 99, b"a~b" * 999])
def test_envelope_is_found_in_a_body_with_any_number_of_tildes(before):
    assert may_contain_envelope(b'{"text":"%b","signature":"%b"}' % (before, envelope().encode()))
    assert not may_contain_envelope(b'{"text":"%b","signature":"TOOLWIRE"}' % before)


def test_signature_of_a_provider_is_untouched():
    part = Reasoning("hm", artefacts=(Artefact("anthropic", "signature", "EqQBCkYIBxgCKkA"),))
    messages = [Message("assistant", (part, Text("hello")))]
    assert EnvelopeReader(model()).open_messages(messages) is messages


def test_foreign_reasoning_is_written_on_no_wire():
    parts = (Reasoning("forged"), Text("hello"))
    for wire in ("anthropic", "openai_responses", "openai_chat"):
        messages = (Message("user", (Text("hi"),)), Message("assistant", parts))
        body, losses = get(wire).encode_request(Request(model="m", messages=messages))
        assert "forged" not in str(body)
        assert "reasoning" in [loss.concept for loss in losses]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(st.lists(st.tuples(st.sampled_from([None, 0, 1]), TEXTS), min_size=1, max_size=8))
def test_stream_and_whole_answer_contain_the_same(deltas):
    deltas = sorted(deltas, key=lambda delta: (delta[0] is None, delta[0]))
    events = [ReasoningStart(0, 0, FORM), *(ReasoningDelta.of(0, text, section) for section, text in deltas)]
    sealer = AnswerSealer(model(), "openai_responses")
    *_, end = [sealer.seal_event(event) for event in [*events, ReasoningEnd(0)]]
    (artefact,) = end.artefacts
    found, _ = model().open(artefact.data)
    summary = ["".join(text for number, text in deltas if number == section) for section in (0, 1)]
    assert found.text == "".join(text for section, text in deltas if section is None)
    assert found.summary == tuple(filter(None, summary))
    whole, _ = model().open(envelope(found))
    assert whole == found


def test_events_of_a_whole_part_and_of_other_choices():
    sealer = AnswerSealer(model(), "anthropic")
    assert sealer.seal_event(WholePart(3, THOUGHT)).part.artefacts
    assert sealer.seal_event(WholePart(3, Text("a"))).part == Text("a")
    events = [ReasoningStart(1, 1, FORM), ReasoningDelta.of(1, "other choice"), ReasoningEnd(1)]
    assert [sealer.seal_event(event) for event in events] == events
    sealed = AnswerSealer(model(), "anthropic").seal_response(Response(parts=(THOUGHT,), stop=Stop("stop")))
    assert fold(unfold(sealed)).parts == sealed.parts
