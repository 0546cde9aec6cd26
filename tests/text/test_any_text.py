"""Whatever a model writes, however it is cut: no exception, the same events; and what is rendered reads back, or says so."""

import itertools
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolwire.text
from toolwire.ir import ResponseEnd, Stop, Tool, ToolCall, fold
from toolwire.testing import TextVector, same
from toolwire.testing.conformance import read_pieces
from toolwire.text.engine.markers import FORMAT_MARKERS
from toolwire.text.engine.offered_tools import OfferedTools
from waiting import cpu_guard
from work_counter import assert_linear, count_work

NAMES = toolwire.text.names()
KEYS = ("city", "path_x", "a", "b")
SAMPLE = {"city": "x y", "a": 1, "b": {"k": [1, "s"]}}


@cache
def tokens(name):
    """The words of a format's language: those of a call, of its surroundings, and halves of them."""
    form = toolwire.text.get(name)
    call = form.calls.write([ToolCall("abcdefghi", "get_weather", SAMPLE)])
    literals = {*form.calls.openers(OfferedTools(TOOLS)), *form.noise, *form.halts, *itertools.chain(*form.reasoning)}
    literals |= {*form.ends_reasoning, call}
    literals |= set(re.findall(r"<[^<>]*>|<｜[^｜]*｜>|\w+|\s+|[^\w\s]", call))
    return sorted({*literals, *(word[: len(word) // 2] for word in literals), "text", "\n", '"', "\\", "<|x|>"} - {""})


def tool(**types):
    return Tool("get_weather", None, {"type": "object", "properties": {key: {"type": t} for key, t in types.items()}})


TOOLS = [tool(city="string", a="integer", b="object")]
DELIMITERS = sorted({mark for mark, _ in FORMAT_MARKERS} | {word for name in NAMES for word in tokens(name)})
strings = st.lists(
    st.one_of(
        st.sampled_from(DELIMITERS),
        st.text(max_size=4),
        st.sampled_from(["\n", "'", '"', "\\", "\u2028", "😀", "]]>", "007"]),
    ),
    max_size=5,
).map("".join)
numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.just(-0.0))
scalars = st.one_of(strings, numbers, st.booleans(), st.none())
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3), max_leaves=8
)
arguments = st.dictionaries(st.sampled_from(KEYS), values, max_size=3)
_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def whole(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(given_=arguments, second=st.booleans())
def test_rendered_calls_parse_back_or_report_a_loss(name, given_, second):
    form = toolwire.text.get(name)
    tools = [tool(**{key: _TYPES[type(value)] for key, value in given_.items()}), Tool("other")]
    calls = [ToolCall("abcdefghi", "get_weather", given_), ToolCall("abcdefghj", "other", {})][
        : 1 + (second and not form.one_call)
    ]
    rendered = form.render_calls(calls, tools)
    back = form.parse(rendered.text, tools)
    alike = same(
        [[call.name, call.arguments, call.state] for call in back.calls],
        [[c.name, c.arguments, "complete"] for c in calls],
    )
    assert alike != bool(rendered.losses), rendered
    if alike:
        assert back.text == ""


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8)
@given(value=st.text(max_size=30).filter(whole))
def test_string_without_delimiters_is_rendered_without_loss(name, value):
    form = toolwire.text.get(name)
    plain = re.sub(r"[<>\[\]{}|`:\r]", "", value).replace("\n", " ")
    call = ToolCall("abcdefghi", "get_weather", {"city": plain})
    assert not form.render_call(call, TOOLS).losses


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_events_do_not_depend_on_how_the_text_is_split(name, data):
    text = "".join(data.draw(st.lists(st.sampled_from(tokens(name)), max_size=14)))
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    edges = [0, *sorted(places), len(text)]
    vector = TextVector("", "", text, tools=tuple(TOOLS), thinking=data.draw(st.booleans()))
    form = toolwire.text.get(name)
    first = read_pieces(form, vector, [text])
    assert read_pieces(form, vector, [text[start:end] for start, end in itertools.pairwise(edges)]) == first
    assert read_pieces(form, vector, list(text)) == first
    parser = form.parser(TOOLS)
    events = [*parser.feed(text), *parser.close(), ResponseEnd((Stop("stop"),))]
    assert form.parse(text, TOOLS).parts == form.parse_pieces(text, TOOLS).parts == fold(events).parts


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(words=st.text(max_size=40).filter(whole), place=st.integers(0, 40))
def test_text_outside_calls_is_kept(name, words, place):
    plain = re.sub(r"[<>\[\]{}|`:]", "", words)
    parsed = toolwire.text.get(name).parse(plain, TOOLS)
    assert parsed.text == plain
    assert parsed.calls == ()


# One format of every style.
STYLES = (
    "hermes",
    "json_array",
    "qwen3_xml",
    "glm47",
    "cline_xml",
    "kimi_k2",
    "pythonic",
    "gemma4",
    "harmony",
    "minimax_m3",
    "react",
    "functionary_v32",
)
SIZE = 200_000


def hostile(name):
    form = toolwire.text.get(name)
    call = form.calls.write([ToolCall("abcdefghi", "get_weather", {"city": "Paris"})])
    head, tail = call.split("Paris")
    opener = (*form.calls.openers(OfferedTools(TOOLS)), *form.calls.weak_openers(OfferedTools(TOOLS)))[0]
    yield from ("<", opener, '{"name": "', '[{"a":', " \n", head, call)
    yield from (
        (head, tail[:-1]),
        (head, tail[: len(tail) // 2 + 1]),
        (head, "\n"),
        (head, "\\"),
        (opener, " "),
        (opener, "a"),
    )


def read_text(name, text, size):
    parser = toolwire.text.get(name).parser(TOOLS)
    for start in range(0, len(text), size):
        parser.feed(text[start : start + size])
    parser.close()


def grown(seed, size):
    first, rest = seed if isinstance(seed, tuple) else ("", seed)
    return (first + rest * (size // len(rest) + 1))[:size]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", STYLES)
def test_hostile_text_is_parsed_in_linear_time(name):
    for seed in hostile(name):
        with cpu_guard():
            read_text(name, grown(seed, SIZE), SIZE)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "name, chunk, size",
    [
        ("hermes", 1, SIZE // 16),
        ("qwen3_xml", 7, SIZE // 4),
        ("pythonic", 7, SIZE // 8),
        ("glm47", 1, SIZE // 16),
        ("hermes", 7, SIZE // 2),
    ],
)
def test_hostile_text_in_small_pieces_is_parsed_in_linear_time(name, chunk, size):
    for seed in list(hostile(name))[::2]:
        costs = [(most, count_work(lambda: read_text(name, grown(seed, most), chunk))) for most in (500, 2_000)]
        assert_linear(costs)
        with cpu_guard():
            read_text(name, grown(seed, size), chunk)


def test_detection_takes_linear_time():
    for seed in ("<", ("<tool_call>x", "\n"), "Action:\n", "[", " ", ("[TOOL_CALLS]", "x"), ">>>", ("<function=", "a")):
        with cpu_guard():
            toolwire.text.detect(grown(seed, SIZE))
