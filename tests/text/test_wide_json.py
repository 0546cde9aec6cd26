"""Long objects of wide characters are parsed from text, with the same results as by the parser of bytes."""

from json import dumps

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolwire.text
from toolwire.ir import Tool, ToolCall
from toolwire.ir.errors import ProtocolError
from toolwire.stream.strict import parse
from toolwire.text.engine.json_end_scanner import JsonEndScanner, parse_wide

WIDE = "今天天气很好，我们去公园散步。" * 300
REFUSED = {
    "duplicate key": '"a": 1, "a": 2',
    "duplicate inner key": '"a": {"b": 1, "b": 2}',
    "constant": '"a": NaN',
    "negative constant": '"a": -Infinity',
    "infinite number": '"a": [1e400]',
    "too many digits": f'"a": {"1" * 5000}',
    "too deep": f'"a": {"[" * 201}{"]" * 201}',
    "much too deep": f'"a": {"[" * 100_000}{"]" * 100_000}',
    "lone surrogate": r'"a": "\ud83d"',
    "lone surrogate in a key": r'"\udc00": 1',
    "reversed surrogates": r'"a": ["\udc00\ud83d"]',
    "control character": '"a": "\n"',
    "single quotes": "'a': 1",
    "trailing comma": '"a": 1,',
}
KEPT = {
    "numbers": '"a": [0, -0, -0.0, 1E5, 1e-400, 1.0, 123456789012345678901234567890]',
    "escapes": r'"a": "\"\\\/\b\f\n\r\t"',
    "escaped characters": r'"a": "\u00e9\ud83d\ude00"',
    "deep": f'"a": {"[" * 199}{"]" * 199}',
    "containers": '"a": {"b": [{}, [], null, true, false]}, "": 1',
    "line breaks": '"a" :\r\n\t 1 ',
}


def wide_object(members: str) -> str:
    return f'{{"wide": "{WIDE}", {members}}}'


def parsed(text: str) -> object:
    """Parse with the parser of bytes; the text is compared, because 1 equals 1.0 and True."""
    try:
        return repr(parse(text))
    except ProtocolError:
        return None


@pytest.mark.parametrize("members", REFUSED.values(), ids=REFUSED)
def test_parser_of_bytes_decides_what_the_other_may_accept(members):
    assert parse_wide(wide_object(members), 0) is None
    assert parsed(wide_object(members)) is None


@pytest.mark.parametrize("members", KEPT.values(), ids=KEPT)
def test_wide_object_has_the_same_value_and_end(members):
    text = wide_object(members)
    found = parse_wide(f"before {text} }} after", 7)
    assert found is not None
    assert repr(found[0]) == parsed(text)
    assert found[1] == 7 + len(text)


@pytest.mark.parametrize("text", ['{"a": "' + "x" * 9000 + '"}', '{"a": "好"}', f'["{WIDE}"]', f'{{"a": "{WIDE}'])
def test_other_text_is_left_to_the_parser_of_bytes(text):
    assert parse_wide(text, 0) is None


PIECES = st.sampled_from([*'{}[]",:\\ \n1-.eE+uNatrfls', '"a"', r"\u00e9", r"\ud83d", "null", "1e999", '"b": ', "好"])


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        ),
    ),
    st.lists(st.tuples(st.integers(0, 10**6), PIECES), max_size=3),
)
def test_any_wide_object_has_the_same_value_and_end(members, changes):
    text = wide_object(dumps(members)[1:-1] or '"x": 1')
    for place, piece in changes:
        at = len(text) - place % (len(text) - len(WIDE))
        text = text[:at] + piece + text[at:]
    found = parse_wide(text, 0)
    scanner = JsonEndScanner()
    end = scanner.feed(text, 0)
    if found is not None:
        assert (True, end, parsed(text[:end])) == (scanner.done, found[1], repr(found[0]))
    elif scanner.done:
        assert parsed(text[:end]) is None


@pytest.mark.parametrize("form", toolwire.text.names())
def test_whole_turn_of_wide_text_has_the_parts_of_its_stream(form):
    tool = Tool("write", "", {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}})
    codec = toolwire.text.get(form)
    arguments = {"text": f'{WIDE}\n"quoted" \\ end', "n": 3}
    calls = [ToolCall("c1", "write", arguments), ToolCall("c2", "write", arguments)]
    rendered = codec.render_calls(calls, [tool])
    text = rendered.text
    whole = codec.parse(text, [tool])
    streamed = codec.parser([tool])
    events = [event for start in range(0, len(text), 1000) for event in streamed.feed(text[start : start + 1000])]
    events += streamed.close()
    ends = [event for event in events if type(event).__name__ == "CallEnd"]
    assert [(call.arguments, call.raw, call.state) for call in whole.calls] == [
        (end.arguments, end.raw, end.state) for end in ends
    ]
    assert rendered.losses or [call.arguments for call in whole.calls] == [arguments] * len(whole.calls)
    assert whole.calls
