"""Arguments of the local model's calls are values of the request."""

import pytest

from toolwire.local.values import RequestValues

SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "description": "number of results"},
        "language": {"type": "string", "description": "language code"},
        "sort": {"enum": ["newest", "oldest"]},
        "strict": {"type": "boolean", "description": "exact matches only"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "labels"},
    },
    "required": ["query"],
}


def restrict(text, schema=SEARCH):
    return RequestValues(text).restrict(schema)["properties"]


def test_texts_are_parts_of_the_request():
    query = restrict("find reports about solar panels, please")["query"]
    assert {"reports", "solar panels", "find reports about solar panels, please"} <= set(query["enum"])
    assert "panels," not in query["enum"]


@pytest.mark.parametrize(
    "text", ['print "a, b: c!" now', "print “a, b: c!” now", "print 'a, b: c!' now", "print `a, b: c!` now"]
)
def test_quotations_are_values_as_they_are(text):
    assert "a, b: c!" in restrict(text)["query"]["enum"]


def test_optional_parameters_need_a_value_in_the_request():
    texts = {"query", "language", "tags"}  # a text may be in any request
    assert set(restrict("find reports about solar panels")) == texts
    assert set(restrict("find 10 reports, the newest, exact matches")) == texts | {"limit", "sort", "strict"}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("the first 10", [10]),
        ("1,200 rows after -3", [1200, -3]),
        ("three of 5", [5, 3]),
        ("version 1.5 of 2", [2]),
        ("abc123 and 7f2b of v2", None),
        ("6h or 30min", [6, 30]),
        ("a 5-minute break from issue #17, page-3 and n=4", [5, 17, 3, 4]),
        ("forty of 5", [5, 40]),
        ("connect to 10.0.0.1, 3 times", [3]),
    ],
)
def test_integers_are_numbers_of_the_request(text, numbers):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert restrict(text, schema)["n"].get("enum") == numbers


NUMBER = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("pay 1,200.50 now", [1200.5]), ("pay $12.5", [12.5]), ("1,234,567.25 and 3", [1234567.25, 3])],
)
def test_numbers_have_groups_and_decimals(text, numbers):
    assert restrict(text, NUMBER)["n"]["enum"] == numbers


@pytest.mark.parametrize(
    "notation",
    [
        *(
            "1.200,50",
            "1,5",
            "1,20,300",
            "3k",
            "2.5M",
            "1e3",
            "10%",
            "10 percent",
            "2026-05-01",
            "01.05.2026",
            "5/10",
            "10:30",
        ),
        *("3rd", "5pm", "third", "3-5", "1 200", "3 hundred", "half", "minus 3", "two million", "1/2", "½", "9" * 16),
        *(
            "twenty-five",
            "twenty five",
            "two hundred",
            "hundred and five",
            "9" * 5000,
            f"0.{'1' * 400}",
            "1" * 400 + ".5",
        ),
    ],
)
def test_notation_that_is_not_understood_leaves_numbers_free(notation):
    """An optional number is possible, too: the notation may be its value."""
    assert restrict(f"take {notation} and 7", NUMBER)["n"] == {"type": "number"}
    assert "limit" in restrict(f"find {notation}")


@pytest.mark.parametrize(
    ("bounds", "numbers"),
    [
        ({"minimum": 0, "maximum": 10}, [5]),
        ({"exclusiveMaximum": 42}, [5]),
        ({"exclusiveMinimum": 5}, [42]),
        ({"multipleOf": 7}, [42]),
        ({"minimum": 50}, None),
        ({"maximum": 10, "exclusiveMaximum": True}, None),  # of an old draft
        ({"allOf": [{"maximum": 10}]}, None),
    ],
)
def test_numbers_are_those_that_the_schema_accepts(bounds, numbers):
    schema = {"type": "integer", **bounds}
    found = restrict("speaker 42 of 5", {"type": "object", "properties": {"n": schema}, "required": ["n"]})["n"]
    assert found == (schema if numbers is None else {"type": "integer", "enum": numbers})


def test_combinators_leave_values_free():
    """Both parts of `allOf` apply to one value: restricted separately, they might have no common one."""
    part = {"allOf": [{"type": "integer", "maximum": 10}, {"type": "integer", "minimum": 5}]}
    assert restrict("3 of 42", {"type": "object", "properties": {"n": part}, "required": ["n"]})["n"] == part
    whole = {**SEARCH, "anyOf": [{"required": ["sort"]}]}
    assert RequestValues("find it").restrict(whole) == whole


def test_texts_of_a_call_are_bounded():
    names = [f"p{number}" for number in range(20)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}
    found = restrict(" ".join(f"word{number}" for number in range(30)), schema)
    sizes = [sum(map(len, part.get("enum", ()))) for part in found.values()]
    assert 0 < sum(sizes) <= 60_000
    assert found["p19"] == {"type": "string"}


def test_texts_that_break_a_grammar_are_left_out():
    assert restrict("a\x7fb c")["query"]["enum"] == ["c"]


def test_required_value_without_a_possible_one_is_free():
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "s": {"type": "string"}},
        "required": ["n", "s"],
    }
    assert restrict("!", schema) == schema["properties"]


def test_format_does_not_force_an_invented_value():
    schema = {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}, "required": ["id"]}
    assert restrict("show the block 91ac4e70d3b84f0c", schema)["id"]["enum"][-1].endswith("91ac4e70d3b84f0c")
    assert "format" not in restrict("show the block 91ac4e70d3b84f0c", schema)["id"]


def test_lengths_patterns_and_enumerations_are_kept():
    properties = {
        "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "short": {"type": "string", "maxLength": 4},
    }
    found = restrict("code ABC in Paris", {"type": "object", "properties": properties, "required": list(properties)})
    assert found["code"] == properties["code"] and found["unit"] == properties["unit"]
    assert set(found["short"]["enum"]) == {"code", "ABC", "in"}


def test_nested_values_are_restricted():
    inner = {"type": "object", "properties": {"text": {"type": "string"}}}
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": inner}}, "required": ["items"]}
    assert restrict("add milk", schema)["items"]["items"]["properties"]["text"]["enum"] == ["add", "milk", "add milk"]


def test_long_request_has_free_texts_and_bounded_parts():
    assert "enum" not in restrict("word " * 1000)["query"]
    assert len(restrict(" ".join(f"w{number}" for number in range(200)))["query"]["enum"]) <= 700


@pytest.mark.parametrize(
    "schema", [{"type": "object"}, {"properties": [1]}, {"properties": {"a": True, "b": {"$ref": "#/x"}}}]
)
def test_unusual_schema_is_kept(schema):
    assert RequestValues("anything at all").restrict(schema) == schema
