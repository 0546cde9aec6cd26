"""Values of arguments: by the schema, in Python notation, and without a closing tag."""

import pytest

import toolwire
from tables import every_case
from toolwire import Tool
from toolwire.text.engine.offered_tools import child_schema, schema_types

INTEGERS = {"type": "array", "items": {"type": "integer"}}
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}
NULL = {"type": "null"}
MARK = "]<]minimax[>["


def parse_every_cut(name, text, tools):
    form = toolwire.text.get(name)
    whole = form.parse(text, tools)
    for size in (1, 2, 3, 7, 13):
        assert form.parse_pieces([text[at : at + size] for at in range(0, len(text), size)], tools) == whole
    return whole


def element(tag, body):
    return f"{MARK}<{tag}>{body}{MARK}</{tag}>"


def nested_value(schema, body, **definitions):
    tool = Tool("f", None, {"type": "object", "properties": {"value": schema}, "$defs": definitions})
    invocation = f'{MARK}<invoke name="f">{element("value", body)}{MARK}</invoke>'
    parsed = parse_every_cut("minimax_m3", f"{MARK}<tool_call>\n{invocation}\n{MARK}</tool_call>", [tool])
    assert [call.state for call in parsed.calls] == ["complete"]
    return parsed.calls[0].arguments["value"], [note.code for note in parsed.diagnostics]


ITEMS = element("item", "1") + element("item", "2")


@pytest.mark.finding("T2")
@every_case(
    "schema",
    [
        {"anyOf": [INTEGERS, POINT]},
        {"anyOf": [POINT, INTEGERS]},
        {"oneOf": [POINT, INTEGERS, NULL]},
        {"anyOf": [POINT, {"anyOf": [INTEGERS, NULL]}]},
        {"anyOf": [{"type": "string"}, INTEGERS]},
        {"anyOf": [{"type": "integer"}, INTEGERS]},
        {"type": ["array", "object"], "items": {"type": "integer"}},
        {"type": ["array", "null"], "items": {"type": "integer"}},
        {"$ref": "#/$defs/union"},
        {"anyOf": [{"$ref": "#/$defs/integers"}, {"$ref": "#/$defs/point"}]},
        {"allOf": [{"anyOf": [INTEGERS, POINT]}]},
    ],
)
def test_items_are_an_array_where_the_schema_allows_one(schema):
    definitions = {"integers": INTEGERS, "point": POINT, "union": {"anyOf": [INTEGERS, POINT]}}
    assert nested_value(schema, ITEMS, **definitions) == ([1, 2], [])


@pytest.mark.finding("T2")
@pytest.mark.parametrize(
    ("schema", "body", "value"),
    [
        ({"anyOf": [INTEGERS, POINT]}, element("x", "1"), {"x": 1}),
        ({"anyOf": [INTEGERS, POINT]}, element("item", "1"), [1]),
        ({"anyOf": [INTEGERS, {"type": "object", "properties": {"item": {}}}]}, element("item", "a"), {"item": "a"}),
        ({"type": "object"}, element("item", "a"), {"item": "a"}),
        ({"anyOf": [INTEGERS, NULL]}, "null", None),
        ({"anyOf": [{"type": "integer"}, INTEGERS]}, "5", 5),
        (INTEGERS, element("value", "1") + element("value", "2"), [1, 2]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, element("score", "42"), {"score": 42}),
        ({"anyOf": [NULL, {"type": "object", "properties": {"x": INTEGERS}}]}, element("x", ITEMS), {"x": [1, 2]}),
    ],
)
def test_nested_value_follows_the_branch_that_fits(schema, body, value):
    assert nested_value(schema, body) == (value, [])


@pytest.mark.finding("T2")
def test_member_that_is_given_twice_is_a_list_and_reported():
    body = element("tag", "a") + element("tag", "b")
    assert nested_value({"type": "object"}, body) == ({"tag": ["a", "b"]}, ["malformed"])


def test_cyclic_schema_is_read_in_one_pass():
    loop = {"anyOf": [{"$ref": "#/$defs/loop"}] * 40}
    root = {"$defs": {"loop": loop}}
    assert schema_types(loop, root) == frozenset()
    assert child_schema(loop, "key", root) is None


TYPES = Tool(
    "f",
    None,
    {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object"},
            "flag": {"type": "boolean"},
            "nothing": NULL,
            "note": {"type": "string"},
            "either": {"anyOf": [{"type": "string"}, {"type": "array"}]},
        },
    },
)
NOTATIONS = {
    "qwen3_xml": "<tool_call>\n<function=f>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>",
    "seed_oss": "<seed:tool_call>\n<function=f>\n<parameter={key}>{value}</parameter>\n</function>\n</seed:tool_call>",
    "function_xml": "<function=f>\n<parameter={key}>{value}</parameter>\n</function>",
    "glm45": "<tool_call>f\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>",
    "glm47": "<tool_call>f<arg_key>{key}</arg_key><arg_value>{value}</arg_value></tool_call>",
    "poolside_v1": "<tool_call>f\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>",
    "hunyuan": "<tool_calls><tool_call>f<tool_sep><arg_key>{key}</arg_key><arg_value>{value}</arg_value></tool_call></tool_calls>",
    "hy3": (
        "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>{key}</arg_key:opensource>\n"
        "<arg_value:opensource>{value}</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>"
    ),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="{key}">{value}</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "minimax_m3": (
        f'{MARK}<tool_call>\n{MARK}<invoke name="f">{MARK}<{{key}}>{{value}}{MARK}</{{key}}>{MARK}</invoke>\n{MARK}</tool_call>'
    ),
    "minicpm5": '<function name="f"><param name="{key}">{value}</param></function>',
    "step3": (
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="f"><steptml:parameter name="{key}">{value}</steptml:parameter></steptml:invoke>'
        "<｜tool_call_end｜><｜tool_calls_end｜>"
    ),
    "dots": '<dots_function_call><invoke name="f"><parameter name="{key}">{value}</parameter></invoke></dots_function_call>',
    "anthropic_legacy_xml": (
        '<function_calls>\n<invoke name="f">\n<parameter name="{key}">{value}</parameter>\n</invoke>\n</function_calls>'
    ),
    "cline_xml": "<f>\n<{key}>{value}</{key}>\n</f>",
    "deepseek_dsml_v32": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="{key}" string="false">{value}'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    ),
}


@pytest.mark.finding("T7")
@every_case("name", NOTATIONS)
@every_case(
    ("key", "text", "value"),
    [
        ("flag", "True", True),
        ("flag", " False ", False),
        ("nothing", "None", None),
        ("tags", "['x', 'y']", ["x", "y"]),
        ("tags", "('it\\'s', \"y\",)", ["it's", "y"]),
        (
            "options",
            "{'on': True, 'off': False, 'none': None, 'deep': ['a', 1.5]}",
            {"on": True, "off": False, "none": None, "deep": ["a", 1.5]},
        ),
    ],
)
def test_python_literal_is_read_where_the_schema_requires_its_type(name, key, text, value):
    parsed = parse_every_cut(name, NOTATIONS[name].replace("{key}", key).replace("{value}", text), [TYPES])
    assert [(call.state, call.arguments) for call in parsed.calls] == [("complete", {key: value})]
    assert [note.code for note in parsed.diagnostics] == ["python_literal"]
    assert "Python literal" in parsed.diagnostics[0].detail


@pytest.mark.finding("T7")
@every_case("name", sorted(NOTATIONS.keys() - {"deepseek_dsml_v32"}))
@every_case(
    ("key", "text", "value"),
    [
        ("note", "['x', 'y']", "['x', 'y']"),
        ("either", "['x', 'y']", "['x', 'y']"),
        ("tags", "[print('x')]", "[print('x')]"),
        ("tags", "['x'] + ['y']", "['x'] + ['y']"),
        ("tags", "{'x': 1}", "{'x': 1}"),
        ("flag", "true", True),
        ("nothing", "null", None),
        ("note", "True", "True"),
    ],
)
def test_other_text_is_not_a_python_literal(name, key, text, value):
    parsed = parse_every_cut(name, NOTATIONS[name].replace("{key}", key).replace("{value}", text), [TYPES])
    assert [call.arguments for call in parsed.calls] == [{key: value}]
    assert not parsed.diagnostics


WEATHER = Tool(
    "get_weather", None, {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
)


@pytest.mark.finding("T15")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glm45", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris\n</tool_call>"),
        ("glm47", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</tool_call>"),
        ("poolside_v1", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris\n</tool_call>"),
        ("seed_oss", "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris\n</function>\n</seed:tool_call>"),
        ("qwen3_xml", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</function>\n</tool_call>"),
        (
            "minimax_m2",
            '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris\r\n</invoke>\n</minimax:tool_call>',
        ),
        ("cline_xml", "<get_weather>\n<city>Paris\n</get_weather>"),
    ],
)
def test_value_without_a_closing_tag_ends_before_the_line_break(name, text):
    parsed = parse_every_cut(name, text, [WEATHER])
    assert [(call.state, call.arguments) for call in parsed.calls] == [("complete", {"city": "Paris"})]
    assert [note.code for note in parsed.diagnostics] == ["unclosed"]


@pytest.mark.finding("T15")
@pytest.mark.parametrize("name", ["llama4_pythonic", "pythonic", "json_array", "granite3", "xlam"])
@pytest.mark.parametrize("text", ['{"name": "get_weather", "parameters": {"city": "Paris"}}'])
def test_call_as_a_bare_object_is_reported_by_formats_of_lists(name, text):
    parsed = parse_every_cut(name, text, [WEATHER])
    assert parsed.text == text
    assert [note.code for note in parsed.diagnostics] == ["other_format"]
