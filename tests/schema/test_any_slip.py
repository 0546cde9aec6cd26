"""Slips in the arguments of any tool: the arguments are read as they were meant, or refused; valid text is unchanged."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combinations import for_every
from toolwire.ir.text import dumps
from toolwire.schema import repair_arguments
from toolwire.schema.repair.arguments import POLICIES

NAMES = st.sampled_from(
    ["city", "days", "a", "b", "note_1", "tags", "name", "arguments", "properties", "input", "type", "function", "args"]
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", "Paris", "null", "yes", "3", "a, b", "x = 1; y", "f(a=1)", "{}", "</think>", "it's", 'say "hi"']
    ),
    st.sampled_from(
        ["，：；｛｝", "C:\\temp\\new", "a\nb\tc", "...", "// rest", "<think>", "“x”", "\\d+", '{"a": 1}', "…"]
    ),
    st.text("ab \"'\\{}[],:;=()<>/|，：“”\n", max_size=12),
    st.text(max_size=8),
)
INTEGERS, NUMBERS = st.integers(-(2**40), 2**40), st.floats(-1e6, 1e6, allow_nan=False)
FREE = st.dictionaries(NAMES, st.one_of(TEXTS, INTEGERS, st.booleans(), st.none()), max_size=3)
ENUMS = st.lists(st.sampled_from(["red", "Red", "none", "on", "off", "1", "a b"]), min_size=1, max_size=4, unique=True)


def values(schema, strategy):
    return strategy.map(lambda value: (schema, value))


def nullable(pair):
    schema, _ = pair
    return ({"anyOf": [schema, {"type": "null"}]}, None)


LEAVES = st.one_of(
    values({"type": "string"}, TEXTS),
    values({"type": "integer"}, INTEGERS),
    values({"type": "number"}, NUMBERS),
    values({"type": "boolean"}, st.booleans()),
    values({"type": ["integer", "null"]}, st.one_of(INTEGERS, st.none())),
    values({"anyOf": [{"type": "integer"}, {"type": "string"}]}, st.one_of(INTEGERS, TEXTS)),
    values({"type": "object"}, FREE),
    values({"type": "array", "items": {"type": "string"}}, st.lists(TEXTS, max_size=4)),
    values({"type": "array", "items": {"type": "integer"}}, st.lists(INTEGERS, max_size=4)),
    ENUMS.flatmap(lambda listed: values({"enum": listed}, st.sampled_from(listed))),
)


@st.composite
def tools(draw, inner=LEAVES):
    """Draw the schema of an object and a value that fits it."""
    members = draw(st.dictionaries(NAMES, inner, min_size=1, max_size=4))
    required = draw(st.lists(st.sampled_from(sorted(members)), unique=True))
    schema = {"type": "object", "properties": {name: schema for name, (schema, _) in members.items()}}
    if required:
        schema["required"] = required
    closed = draw(st.sampled_from([None, False, {"type": "string"}]))
    if closed is not None:
        schema["additionalProperties"] = closed
    left_out = draw(st.sets(st.sampled_from(sorted(members)))) - set(required)
    return schema, {name: value for name, (_, value) in members.items() if name not in left_out}


TOOLS = tools(st.one_of(LEAVES, LEAVES.map(nullable), tools()))
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^"{}\[\]:,\s]+|\s+')


def marks(table):
    """Return a slip that replaces punctuation outside strings."""
    return lambda value: "".join(table.get(token, token) for token in TOKENS.findall(json.dumps(value)))


def quotes(opener, closer):
    """Return a slip that replaces the quotes around strings."""
    return lambda value: "".join(
        f"{opener}{token[1:-1]}{closer}" if token[0] == '"' and not set(token[1:-1]) & {*"'\"\\“”"} else token
        for token in TOKENS.findall(json.dumps(value, ensure_ascii=False))
    )


def keyword_call(value):
    return f"call_it({', '.join(f'{name}={item!r}' for name, item in value.items())})"


def python_text(value):
    return repr(value)


def without_quotes(text):
    """Remove the quotes if every string is a word or several: other strings have another meaning without them."""
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    constants = {"null", "none", "true", "false", "nan", "infinity", "undefined"}
    is_plain = all(re.fullmatch(r"[a-zA-Z](?:[\w ]*\w)?", one) and one.lower() not in constants for one in strings)
    return text.replace('"', "") if is_plain else text


FULL_WIDTH = {"{": "｛", "}": "｝", "[": "［", "]": "］", ":": "：", ",": "，"}
LEXICAL = {
    "none": json.dumps,
    "indented": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    "equals": marks({":": "="}),
    "arrows": marks({":": " =>"}),
    "semicolons": marks({",": ";"}),
    "semicolons for colons": marks({":": ";"}),
    "doubled commas": marks({",": ",,"}),
    "doubled colons": marks({":": "::"}),
    "full width": marks(FULL_WIDTH),
    "full width commas": marks({",": "，", ":": "："}),
    "trailing commas": marks({"}": ",}"}),
    "over-escaped": lambda value: json.dumps(json.dumps(value))[1:-1],
    "over-escaped, indented": lambda value: json.dumps(json.dumps(value, indent=2))[1:-1],
    "quotes escaped": lambda value: json.dumps(value).replace('"', '\\"'),
    "encoded twice": lambda value: json.dumps(json.dumps(value)),
    "Python": python_text,
    "unquoted keys": lambda value: re.sub(r'"(\w+)": ', r"\1: ", json.dumps(value)),
    "unquoted keys, equals": lambda value: re.sub(r'"(\w+)": ', r"\1 = ", json.dumps(value)),
    "single quotes": quotes("'", "'"),
    "smart quotes": quotes("“", "”"),
    "no quotes": lambda value: without_quotes(json.dumps(value)),
    "no commas": marks({",": ""}),
    "no colons": marks({":": ""}),
    "quotes not escaped": lambda value: json.dumps(value).replace('\\"', '"'),
    "triple quotes": lambda value: re.sub(r'(: )"((?:[^"\\]|\\.)*)"', r'\1"""\2"""', json.dumps(value)),
    "missing brace": lambda value: json.dumps(value)[1:],
    "missing braces": lambda value: json.dumps(value)[1:-1],
    "missing last brace": lambda value: json.dumps(value)[:-1],
    "doubled braces": lambda value: f"{{{json.dumps(value)}}}",
    "keyword call": keyword_call,
    "call of an object": lambda value: f"call_it({json.dumps(value)})",
    "truncated": lambda value: json.dumps(value)[:-2],
}
WRAPPERS = {
    "none": lambda value: value,
    "call": lambda value: {"name": "call_it", "arguments": value},
    "call, text": lambda value: {"name": "call_it", "arguments": json.dumps(value)},
    "function": lambda value: {"type": "function", "function": {"name": "call_it", "arguments": value}},
    "arguments": lambda value: {"arguments": value},
    "input": lambda value: {"input": value},
    "properties": lambda value: {"properties": value},
    "schema": lambda value: {"type": "object", "properties": value},
    "list": lambda value: [value],
    "list of calls": lambda value: [{"name": "call_it", "parameters": value}],
}
SURROUNDINGS = {
    "none": "{}",
    "fence": "```json\n{}\n```",
    "think": "<think>or {{'city': 1}}?</think>\n{}",
    "end of think": "that is it</think>{}",
    "token": "<tool_call>{}</tool_call>",
    "prose": "Here you are: {}",
}

UNWRAPPED = ("keyword call", "call of an object", "missing brace", "missing braces")
REPLACING = ("single quotes", "smart quotes", "no quotes", "quotes not escaped")
"""Slips that would change the arguments inside a text."""


def assert_right_or_refused(text, schema, value, wrapped, names=()):
    """Check the arguments against the value that was meant, and the wrapped one if that is valid, too."""
    accepted = {dumps(value)}
    if repair_arguments(wrapped, schema, policy="strict").arguments is not None:
        accepted.add(dumps(wrapped))
    for policy in POLICIES[1:]:
        found = repair_arguments(text, schema, policy=policy, names=names)
        assert found.arguments is None or dumps(found.arguments) in accepted, (text, policy, found.arguments)


@pytest.mark.one_in(3)
@pytest.mark.finding("R")
@given(tool=TOOLS, wrapper=st.sampled_from(sorted(WRAPPERS)), around=st.sampled_from(sorted(SURROUNDINGS)))
@for_every(slip=LEXICAL)
def test_slip_is_read_as_it_was_meant_or_refused(slip, tool, wrapper, around):
    schema, value = tool
    for name, surrounding in (("none", "none"), (wrapper, "none"), ("none", around), (wrapper, around)):
        wrapped = WRAPPERS[name](value)
        if (slip in UNWRAPPED and name != "none") or (slip in REPLACING and name == "call, text"):
            continue
        text = SURROUNDINGS[surrounding].format(LEXICAL[slip](wrapped))
        assert_right_or_refused(text, schema, value, wrapped)
        assert_right_or_refused(text, schema, value, wrapped, ("call_it",))


def leaf_paths(value, path=()):
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in leaf_paths(item, (*path, name))]
    if isinstance(value, list):
        return [found for at, item in enumerate(value) for found in leaf_paths(item, (*path, at))]
    return [path]


def as_text(value):
    if value is None:
        return "null"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else json.dumps(value)


def replaced(value, path, change):
    if not path:
        return change(value)
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], change)
    return copy


@pytest.mark.finding("R")
@given(tool=TOOLS, place=st.integers(0, 100))
def test_value_written_as_text_is_read_as_it_was_meant_or_refused(tool, place):
    schema, value = tool
    paths = leaf_paths(value)
    if not paths:
        return
    changed = replaced(value, paths[place % len(paths)], lambda leaf: leaf if type(leaf) is str else as_text(leaf))
    assert_right_or_refused(json.dumps(changed), schema, value, changed)


@pytest.mark.finding("R")
@given(tool=TOOLS)
def test_valid_arguments_of_any_tool_are_unchanged(tool):
    schema, value = tool
    for policy in POLICIES:
        for given_form in (value, json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
            found = repair_arguments(given_form, schema, policy=policy, names=("call_it",))
            assert (dumps(found.arguments), found.steps, found.problems) == (dumps(value), (), ())


@pytest.mark.finding("R")
@given(
    tool=TOOLS,
    slip=st.sampled_from(sorted(LEXICAL)),
    cut=st.integers(1, 400),
    wrapper=st.sampled_from(sorted(WRAPPERS)),
)
def test_truncated_slip_never_completes_a_value(tool, slip, cut, wrapper):
    schema, value = tool
    text = LEXICAL[slip](WRAPPERS[wrapper](value))
    for policy in POLICIES:
        found = repair_arguments(text[: -min(cut, len(text) - 1)], schema, policy=policy, finished=False)
        if found.arguments is not None:
            json.loads(text[: -min(cut, len(text) - 1)] or "{}")
