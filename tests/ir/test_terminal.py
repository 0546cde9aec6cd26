"""Foreign text that is shown: everything that can be read stays, nothing drives a terminal."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import every_case
from toolwire.ir.terminal import TextNeutraliser, neutralise_json, neutralise_line, neutralise_text, reveal_line

C0 = "".join(chr(code) for code in range(0x20) if chr(code) not in "\t\n\r")
C1 = "".join(chr(code) for code in range(0x80, 0xA0))
OVERRIDES = "\u202d\u202e"
EMBEDDINGS = "\u202a\u202b\u202c\u2066\u2067\u2068\u2069"
KEPT = [
    "plain",
    "no-break\u00a0space, narrow\u202fone",
    "joined \U0001f469\u200d\U0001f469\u200d\U0001f467 emoji",
    "flag of England \U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "heart \u2764\ufe0f",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd\u200f!",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u061c1\u200e",
    "soft\u00adhyphen, zero\u200bwidth, \ufeffmark",
    "private use \ue000 and not assigned yet \U0001faff",
    "\\x1b as text",
]


@pytest.mark.finding("U1")
@every_case("text", KEPT)
def test_printable_and_joining_characters_are_kept(text):
    assert neutralise_text(text) == neutralise_line(text) == neutralise_json(text) == text


@pytest.mark.finding("U1")
@pytest.mark.parametrize("text", ["a\nb", "a\r\nb\r\n", "\ta\t", "a\n\n\nb", "a\u2028b\u2029", f"a{EMBEDDINGS}b"])
def test_text_keeps_its_lines_tabs_and_isolates(text):
    assert neutralise_text(text) == text


@pytest.mark.finding("U1")
@every_case("char", [*C0, "\x7f", *C1, *OVERRIDES, "\ud800", "\udfff"])
def test_terminal_control_characters_are_escaped(char):
    escaped = f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"
    assert neutralise_text(f"a{char}b\n") == f"a{escaped}b\n"
    assert neutralise_line(f"a{char}b") == f"a{escaped}b"


@pytest.mark.finding("U1")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("safe\revil", r"safe\revil"),
        ("end\r", r"end\r"),
        ("\r\r\n", "\\r\r\n"),
    ],
)
def test_text_loses_its_control_sequences(text, shown):
    assert neutralise_text(text) == shown


@pytest.mark.finding("U1")
def test_line_is_one_line():
    assert neutralise_line("a\nb\tc\r\nd\u2028e\u2029") == r"a\nb\tc\r\nd\u2028e\u2029"
    assert neutralise_line(EMBEDDINGS) == "".join(f"\\u{ord(char):04x}" for char in EMBEDDINGS)


ANY = st.text(st.one_of(st.sampled_from(f"\r\n\t\x1b\x07\x9b\x7fa{OVERRIDES}{EMBEDDINGS}"), st.characters()))


@pytest.mark.finding("U1")
@given(ANY)
def test_no_terminal_control_characters_are_left(text):
    for shown, allowed in ((neutralise_text(text), "\t\n"), (neutralise_line(text), "")):
        left = {char for char in shown.replace("\r\n", "" if allowed else "\r\n") if char not in allowed}
        assert not {char for char in left if unicodedata.category(char) in ("Cc", "Cs")}
        assert not left & set(OVERRIDES)


@pytest.mark.finding("U1")
@given(st.lists(ANY))
def test_result_does_not_depend_on_how_the_text_is_split(pieces):
    stream = TextNeutraliser()
    shown = "".join(map(stream.feed, pieces)) + stream.close()
    assert shown == neutralise_text("".join(pieces))


@pytest.mark.finding("U1")
def test_only_a_trailing_carriage_return_is_held_back():
    stream = TextNeutraliser()
    assert [stream.feed(piece) for piece in ("a", "b\r", "\n", "c\r", "d")] == ["a", "b", "\r\n", "c", r"\rd"]
    assert stream.close() == ""


@pytest.mark.finding("U1")
@given(ANY.filter(lambda text: text.isascii() or text.encode("utf-8", "ignore").decode() == text))
def test_json_keeps_its_value(text):
    document = json.dumps({text: [text]}, indent=2, ensure_ascii=False)
    shown = neutralise_json(document)
    assert json.loads(shown) == {text: [text]}
    assert not {char for char in shown if char != "\n" and unicodedata.category(char) == "Cc"}
    assert not set(shown) & set(OVERRIDES + EMBEDDINGS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pay 5 € an Ünal 🙂", "pay 5 € an Ünal 🙂"),
        ("a\u200bb\u200db\u2060", r"a\u200bb\u200db\u2060"),
        ("x\U000e0041\U000e007f", r"x\U000e0041\U000e007f"),
        ("a\xa0b\u2009c\u3164d\u2800", r"a\xa0b\u2009c\u3164d\u2800"),
        ("v\ufe01\U000e0101", r"v\ufe01\U000e0101"),
        ("one\ntwo\t\x1b[0m\u202e\u200f\ud800", r"one\ntwo\t\x1b[0m\u202e\u200f\ud800"),
    ],
)
def test_text_about_which_a_person_decides_has_no_invisible_characters(text, shown):
    assert reveal_line(text) == shown
