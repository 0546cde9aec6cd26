"""Plain parts and usual fields take short paths through the codecs; the result is that of the general path."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from canonical import calls, json_values, params, results, search_calls, texts, words
from toolwire.ir import Message, Params, ToolCall, ToolResult, ToolwireError
from toolwire.ir.errors import ProtocolError
from toolwire.ir.losses import Losses
from toolwire.ir.text import dumps
from toolwire.stream.strict import _STOPS_EARLY, parse, parse_arguments
from toolwire.wire import get
from toolwire.wire.anthropic.blocks import _read_any_call as _read_any_block_call
from toolwire.wire.anthropic.blocks import _read_any_result, read_block, write_block, write_plain_block
from toolwire.wire.anthropic.request import _drop_refused, _make_message, _write_message, write_plain_message
from toolwire.wire.codec import report_search_call
from toolwire.wire.content import found_as_text
from toolwire.wire.fields import read_extra, remember_form
from toolwire.wire.gemini import part_writer
from toolwire.wire.openai_chat.messages import (
    _read_any_assistant,
    _read_any_call,
    _read_any_message,
    read_assistant,
    read_call,
    read_message,
)
from toolwire.wire.params import param_table, read_params, write_params

own_fields = st.sampled_from([{}, {}, {"anthropic": {"x": 1}}, {"openai_chat~": {":content": "list"}}, {"gemini": {}}])
caches = st.sampled_from([None, None, "", "5m"])


@st.composite
def parts(draw):
    """A text, a call or a result, now and then with a cache mark and fields of a wire."""
    plain_results = st.builds(
        lambda result, text: replace(result, parts=(text,), structured=None, found=()), results, texts
    )
    part = draw(st.one_of(texts, calls(), search_calls, results, plain_results))
    return replace(part, cache=draw(caches), extra=draw(own_fields))


@given(parts())
def test_plain_anthropic_block_equals_the_general_one_and_has_no_losses(part):
    plain, losses = write_plain_block(part), Losses()
    if plain is not None:
        assert list(plain.items()) == list(write_block(part, losses, "/parts/0").items())
        assert not losses


@given(st.sampled_from(["user", "assistant"]), words, st.sampled_from([{}, {"x": 1}, {"x": None}]))
def test_anthropic_message_with_a_text_equals_the_general_one(role, text, more):
    raw = {"role": role, "content": text, **more}
    (message,) = get("anthropic").decode_request({"messages": [raw]}).messages
    assert message == _make_message(role, raw)


FIELDS = ("a", "b", "c", "d")
some_fields = st.dictionaries(st.sampled_from([*FIELDS, "e", "f"]), st.one_of(json_values, st.floats()), max_size=5)


@given(some_fields, st.sampled_from([FIELDS, frozenset(FIELDS), ()]))
def test_fields_that_are_left_over_keep_their_values_and_order(raw, known):
    extra = read_extra(raw, known, "wire")
    is_content = {key: bool(value) or value == 0 for key, value in raw.items()}
    own = [(key, value) for key, value in raw.items() if key not in known and is_content[key]]
    form = [
        (key, value)
        for key, value in raw.items()
        if not is_content[key] or (key in known and value is False)  # false is content of an unknown field only
    ]
    assert list(extra.get("wire", {}).items()) == own
    assert list(extra.get("wire~", {}).items()) == form
    assert all(extra.values())


@given(some_fields)
def test_absent_fields_and_fractions_are_remembered(raw):
    absent = [key for key in FIELDS if key not in raw]
    fractions = {key: raw[key] for key in FIELDS if type(raw.get(key)) is float}
    assert remember_form(raw, FIELDS, {}) == {**({":absent": absent} if absent else {}), **fractions}


@given(params)
def test_every_parameter_is_written_or_reported_once(given_params):
    table, losses, out = {"max_tokens": "limit", "stop": "stop", "user": ""}, Losses(), {}
    write_params(given_params, table, out, "wire", losses)
    given_names = [name for name in Params.__struct_fields__ if getattr(given_params, name) is not None]
    silent = ("max_tokens", "stop", "user", "include_usage")
    assert [loss.concept for loss in losses] == [name for name in given_names if name not in silent]
    assert list(out) == [table[name] for name in given_names if table.get(name)]


@given(st.permutations(["max_completion_tokens", "max_tokens", "other", "top_p"]))
def test_the_first_name_of_a_parameter_counts(order):
    values = {"max_completion_tokens": 1, "max_tokens": 2, "other": [], "top_p": None}
    table = param_table(max_completion_tokens="max_tokens", max_tokens="max_tokens", top_p="top_p")
    found = {}
    assert read_params({key: values[key] for key in order}, table, found) == {}
    first = min(("max_completion_tokens", "max_tokens"), key=order.index)
    assert found == {"max_tokens": values[first]}


raw_values = st.one_of(
    json_values, words, st.sampled_from(["function", "custom", "null", "", "{}", '{"a":1e999}', "{"])
)
fields = st.sampled_from(
    ["id", "type", "function", "name", "arguments", "description", "parameters", "strict", "index"]
)


@st.composite
def nearly(draw, outer, inner):
    """A declaration or a call in its usual form, now and then with one field changed, removed or added."""
    inner = {**inner, **draw(st.dictionaries(st.sampled_from(sorted(inner)), raw_values, max_size=1))}
    raw = {**outer, "function": inner}
    for _ in range(draw(st.integers(0, 1))):
        changed = draw(st.sampled_from([raw, inner]))
        if draw(st.booleans()):
            changed.pop(draw(fields), None)
        else:
            changed[draw(fields)] = draw(raw_values)
    return draw(st.one_of(st.just(raw), st.just(raw), st.just(raw), raw_values))


def outcome(read, raw):
    try:
        return read(raw)
    except ToolwireError as error:
        return error.message, error.pointer


def without_empty_fields(value):
    """Leave out the form of the source, which has the empty fields that the short path does not record."""
    return replace(value, extra={}) if hasattr(value, "extra") else value


@given(nearly({"id": "c", "type": "function"}, {"name": "f", "arguments": "{}"}))
def test_usual_chat_call_equals_the_general_one(raw):
    usual, general = outcome(read_call, raw), outcome(_read_any_call, raw)
    assert usual == general or (not usual.extra and usual == without_empty_fields(general))


plain_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "developer", "tool"]), "content": st.one_of(words, st.none())},
    optional={"tool_call_id": words, "name": words, "x": st.sampled_from([1, None])},
)


@given(plain_messages)
def test_usual_chat_message_equals_the_general_one(raw):
    assert outcome(read_message, raw) == outcome(_read_any_message, raw)


def parse_any_arguments(raw):
    """The arguments by the strict parser alone, which checks everything."""
    if not raw or raw.isspace():
        return {}, "complete"
    try:
        value = parse(raw)
    except ProtocolError as error:
        return None, "truncated" if _STOPS_EARLY in error.message else "invalid"
    return ({} if value is None else value, "complete") if isinstance(value, dict | None) else (None, "invalid")


@given(st.one_of(raw_values, json_values.map(dumps), json_values.map(lambda value: f"\ufeff {dumps(value)}")))
def test_short_arguments_equal_the_general_ones(raw):
    if isinstance(raw, str):
        assert repr(parse_arguments(raw)) == repr(parse_any_arguments(raw))


@given(st.text('{}[]":,1eE+0 \ufeff\ud800a', max_size=12))
def test_short_arguments_in_any_spelling_equal_the_general_ones(raw):
    for text in (raw, f'{{"a":{raw}}}', f'{{"a":1e{raw}}}'):
        assert repr(parse_arguments(text)) == repr(parse_any_arguments(text))


@given(st.sampled_from(["user", "assistant", "system", "developer"]), st.lists(parts(), max_size=3), own_fields)
def test_plain_anthropic_message_equals_the_general_one_on_every_version(role, some_parts, extra):
    message, losses = Message(role, tuple(some_parts), extra), Losses()
    plain = write_plain_message(message)
    if plain is not None:
        written = _drop_refused(_write_message(message, "/messages/0", losses), "/messages/0", losses)
        assert list(plain.items()) == list(written.items())
        assert not losses


raw_blocks = st.fixed_dictionaries(
    {"type": st.just("tool_use")},
    optional={"id": raw_values, "name": raw_values, "input": st.one_of(raw_values, st.just({"a": 1})), "x": raw_values},
)


@given(raw_blocks, st.booleans())
def test_usual_anthropic_call_equals_the_general_one(raw, is_usual):
    raw = {**raw, "id": "c", "name": "f"} if is_usual else raw
    usual, general = outcome(read_block, raw), outcome(_read_any_block_call, raw)
    assert usual == general or (not usual.extra and usual == without_empty_fields(general))


raw_results = st.fixed_dictionaries(
    {
        "type": st.just("tool_result"),
        "tool_use_id": st.one_of(words.filter(bool), st.none()),
        "content": st.one_of(words, st.none()),
    },
    optional={"is_error": st.sampled_from([True, False, None, 1]), "x": raw_values},
)


@given(raw_results)
def test_usual_anthropic_result_equals_the_general_one(raw):
    assert outcome(read_block, raw) == outcome(_read_any_result, raw)


raw_assistants = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.one_of(words, st.none())},
    optional={
        "tool_calls": st.lists(nearly({"id": "c", "type": "function"}, {"name": "f", "arguments": "{}"}), max_size=2),
        "refusal": st.one_of(words, st.none()),
    },
)


@given(raw_assistants)
def test_usual_chat_assistant_equals_the_general_one(raw):
    usual, general = outcome(read_assistant, raw), outcome(_read_any_assistant, raw)
    assert usual == general or (not usual.extra and usual == without_empty_fields(general))


@given(parts())
def test_plain_gemini_call_and_result_equal_the_general_ones(part):
    losses, expected_losses = Losses(), Losses()
    if isinstance(part, ToolCall):
        written = part_writer._write_call(part, losses, "/p")
        report_search_call(part, "/p", expected_losses)
        expected = part_writer._write_any_call(part, expected_losses, "/p")
    elif isinstance(part, ToolResult):
        written = part_writer.write_result(part, losses, "/p")
        expected = part_writer._write_any_result(found_as_text(part, "/p", expected_losses), expected_losses, "/p")
    else:
        return
    assert written == expected
    assert list(losses) == list(expected_losses)
