"""Arguments of `toolwire mcp call` on the command line: typed by the schema, checked before anything is sent."""

import io

import pytest

from tables import every_case
from toolwire.cli.mcp.arguments import apply_schema, read_assignments
from toolwire.cli.sources.listing import list_parameters
from toolwire.ir.errors import ConfigError, ProtocolError

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "the name of the city"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 2},
        "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "id": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "note": {"type": ["string", "null"]},
        "loud": {"type": "boolean"},
        "mode": {"enum": ["short", "long", 3]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "filter": {"$ref": "#/$defs/Filter"},
        "a.b": {"type": "string"},
        "free": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["city"],
    "$defs": {
        "Filter": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "inner": {"$ref": "#/$defs/Filter"}},
            "required": ["name"],
        }
    },
}


def arguments_of(*words, schema=SCHEMA):
    given = read_assignments(words)
    return apply_schema(given, schema, "forecast") if isinstance(given, list) else given


def error_of(*words):
    with pytest.raises(ConfigError) as caught:
        arguments_of(*words)
    return str(caught.value)


@pytest.mark.finding("U13")
@every_case(
    ("words", "expected"),
    [
        (["city=Oslo"], {"city": "Oslo"}),
        (["city=2", "days=2"], {"city": "2", "days": 2}),
        (["city=a=b:=c"], {"city": "a=b:=c"}),
        (["city="], {"city": ""}),
        (["city=x", "ratio=1.5"], {"city": "x", "ratio": 1.5}),
        (["city=x", "ratio=null", "note=null"], {"city": "x", "ratio": None, "note": "null"}),
        (["city=x", "note:=null"], {"city": "x", "note": None}),
        (["city=x", "id=7"], {"city": "x", "id": 7}),
        (["city=x", "id=seven"], {"city": "x", "id": "seven"}),
        (["city=x", "loud=true", "mode=3"], {"city": "x", "loud": True, "mode": 3}),
        (["city=x", "tags=1", "tags=b"], {"city": "x", "tags": ["1", "b"]}),
        (["city=x", "tags=a", "sizes=1"], {"city": "x", "tags": ["a"], "sizes": [1]}),
        (["city=x", 'tags=["a","b"]'], {"city": "x", "tags": ["a", "b"]}),
        (["city=x", "filter.name=1"], {"city": "x", "filter": {"name": "1"}}),
        (
            ["city=x", "filter.name=a", "filter.inner.name=b"],
            {"city": "x", "filter": {"name": "a", "inner": {"name": "b"}}},
        ),
        (["city=x", 'filter:={"name": "a"}'], {"city": "x", "filter": {"name": "a"}}),
        (["city=x", "a.b=c", "free.any=4"], {"city": "x", "a.b": "c", "free": {"any": 4}}),
        (['{"city": 5, "unknown": 1}'], {"city": 5, "unknown": 1}),
    ],
)
def test_words_are_typed_by_the_schema(words, expected):
    found = arguments_of(*words)
    assert found == expected
    assert repr(found) == repr(expected)  # 1 is not True, and not 1.0


@pytest.mark.finding("U13")
@every_case(
    ("words", "message"),
    [
        (["cty=Oslo"], "forecast has no parameter 'cty' (did you mean 'city'?)"),
        (["city=x", "filter.nme=a"], "forecast has no parameter 'filter.nme' (did you mean 'filter.name'?)"),
        (
            ["city=x", "days=two"],
            "days must be integer 1 to 7, got 'two' (give a value of this type, or JSON: days:=…)",
        ),
        (["city=x", "loud=yes"], "loud must be boolean, got 'yes' (give a value of this type, or JSON: loud:=…)"),
        (["city=x", "city=y"], "city is given 2 times, but it is not an array: string"),
        (["city=x", "city.name=y"], "city of forecast is not an object, but string"),
        (["city=x", "filter.name=a", "filter:={}"], "filter is given both as a value and by its properties"),
        (["city=x", "days:=two"], "the value of days is not valid JSON"),
        (["Oslo"], "invalid argument 'Oslo' (use NAME=VALUE, NAME:=JSON, or one JSON object)"),
        (["=Oslo"], "invalid argument '=Oslo'"),
        ([], "missing arguments of forecast: city (string) (add city=…)"),
        (["city=x", "days=9"], "/days: 9 is greater than the maximum of 7"),
        (["city=x", "filter.inner:={}"], "'name' is missing"),
    ],
)
def test_wrong_arguments_are_reported_before_the_call(words, message):
    assert message in error_of(*words)


def test_missing_arguments_are_listed_with_their_types():
    schema = {
        "type": "object",
        "properties": {"a.x": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}, "z": {}},
        "required": ["a.x", "n", "o"],
    }
    with pytest.raises(ConfigError) as caught:
        arguments_of("z=1", schema=schema)
    assert str(caught.value) == (
        "missing arguments of forecast: a.x (string), n (integer), o (object) (add a.x=… n=… o:='{…}')"
    )


def test_files_are_read_as_text_or_json(tmp_path):
    (tmp_path / "a.txt").write_text("line\n", encoding="utf-8")
    (tmp_path / "b.json").write_text('["x", "y"]', encoding="utf-8")
    (tmp_path / "c.bin").write_bytes(b"\xff")
    assert arguments_of(f"city=@{tmp_path}/a.txt", f"tags:=@{tmp_path}/b.json") == {
        "city": "line\n",
        "tags": ["x", "y"],
    }
    assert "No such file" in error_of(f"city=@{tmp_path}/none")
    assert """city:='"@bob"'""" in error_of("city=@bob")
    assert "is not UTF-8 text" in error_of(f"city=@{tmp_path}/c.bin")


def test_json_object_is_read_from_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"city": "Oslo"}'))
    assert arguments_of("-") == {"city": "Oslo"}
    with pytest.raises(ProtocolError):
        arguments_of("[1]")


def test_parameters_are_listed_with_types_defaults_and_nested_paths():
    rows, is_cut = list_parameters(SCHEMA)
    by_path = {row.path: row for row in rows}
    assert by_path["city"] == ("city", "string", True, None, "the name of the city")
    assert by_path["days"][1:4] == ("integer 1 to 7", False, "2")
    assert [by_path[name].type for name in ("mode", "tags", "ratio", "filter")] == [
        '"short" | "long" | 3',
        "array of string",
        "number or null",
        "object",
    ]
    assert by_path["filter.inner.name"].required
    assert not is_cut


def test_schema_that_refers_to_itself_is_listed_within_the_limit():
    wide = {f"p{number}": {"$ref": "#/$defs/A"} for number in range(200)}
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": wide}}}
    rows, is_cut = list_parameters(schema, 30)
    assert (len(rows), is_cut) == (30, True)
