"""Documents in JSON and YAML, and their limits."""

import json
import sys

import pytest

from tables import every_case
from toolwire.ir import ConfigError, MissingExtra, SchemaError
from toolwire.openapi import document as limits
from toolwire.openapi import load_document, parameters, parse_document, read_operations

YAML = """
openapi: 3.0.3
info: {title: Pets, version: 1.10}
paths:
  /pets:
    get:
      operationId: listPets
      parameters:
        - &limit
          name: limit
          in: query
          schema: {type: integer, enum: [0o10, 0x1f, -3], default: 10}
        - name: answer
          in: query
          schema: {type: string, enum: [yes, no, on, 12:30, 2020-01-01, "1", ~, true]}
      responses:
        200: {description: all}
  /cats:
    get:
      operationId: listCats
      parameters:
        - <<: *limit
          name: most
"""


def test_yaml_has_the_types_of_version_1_2():
    document = parse_document(YAML)
    pets, cats = read_operations(document).tools
    properties = pets.input_schema["properties"]
    assert properties["limit"]["enum"] == [8, 31, -3]
    assert properties["answer"]["enum"] == ["yes", "no", "on", "12:30", "2020-01-01", "1", None, True]
    assert list(document["paths"]["/pets"]["get"]["responses"]) == ["200"]
    assert cats.input_schema["properties"]["most"] == properties["limit"]
    json.dumps(document)


def test_yaml_that_libyaml_refuses_is_read():
    text = YAML + "info2:\n  text: >-\n    \t\n    first\n"
    assert parse_document(text)["info2"]["text"].strip() == "first"


def test_files_are_read(tmp_path):
    (tmp_path / "a.yaml").write_text(YAML)
    (tmp_path / "a.json").write_text(json.dumps(parse_document(YAML)))
    assert load_document(tmp_path / "a.yaml") == load_document(str(tmp_path / "a.json"))
    with pytest.raises(ConfigError, match="cannot read"):
        load_document(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="not fetched"):
        load_document("https://example.com/openapi.json")


def bomb():
    lines = ["openapi: 3.0.0", "paths: {}", "a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines)


def merge_bomb():
    lines = ["openapi: 3.0.0", "paths: {}", "a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 40)]
    return "\n".join(lines)


@every_case(
    ("text", "message"),
    [
        (bomb(), "more than 2,000,000 nodes"),
        ("a: &a [*a]", "undefined or contains itself"),
        ("a: *b", "undefined"),
        ("[" * 500, "nested more than 100"),
        ("a: " * 200, "not valid YAML"),
        ("a: 1\na: 2", "occurs twice"),
        ("{a: 1, a: 2}", "JSON|twice"),
        ("? [a]\n: 1", "must be a scalar"),
        ("? *x\n: 1", "undefined|scalar"),
        ("a: !!python/object/apply:os.system [ls]", "tag"),
        ("a: !secret x", "tag"),
        ("a: 1\n---\nb: 2", "several YAML documents"),
        ("<<: 7\nopenapi: 3.0.0", "needs a mapping"),
        ("a: [", "not valid YAML"),
        ("just text", "not an OpenAPI"),
        ('{"openapi": "3.0.0", "paths": {}, "paths": {}}', "not valid JSON"),
        ('{"openapi": NaN}', "not valid JSON"),
        ("", "not an OpenAPI"),
    ],
)
def test_hostile_text_ends_in_a_typed_error(text, message):
    with pytest.raises(SchemaError, match=message):
        parse_document(text)


def test_merges_cost_no_more_than_their_keys():
    assert parse_document(merge_bomb())["a39"] == {"x": 1}


def test_limits_of_size_and_depth(monkeypatch):
    monkeypatch.setattr(limits, "MAX_BYTES", 100)
    with pytest.raises(SchemaError, match="exceeds 100 bytes"):
        parse_document("x" * 101)
    cycle = {"openapi": "3.1.0", "paths": {}}
    cycle["self"] = cycle
    with pytest.raises(SchemaError, match="levels deep"):
        load_document(cycle)
    with pytest.raises(SchemaError, match="load_document"):
        load_document({"openapi": "3.1.0", "paths": {}, 200: {}})
    with pytest.raises(SchemaError, match="type object"):
        load_document({"openapi": "3.1.0", "paths": {}, "x": object()})


def test_not_utf8():
    with pytest.raises(SchemaError, match="not UTF-8"):
        parse_document(b"openapi: \xff")


def test_yaml_without_pyyaml_names_the_fix(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtra, match="pip install pyyaml"):
        parse_document(YAML)


def test_many_definitions_are_limited():
    schemas = {f"S{n}": {"properties": {"next": {"$ref": f"#/components/schemas/S{n + 1}"}}} for n in range(3000)}
    schemas["S3000"] = {}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}
    paths = {"/a": {"post": {"requestBody": body}}, "/b": {"get": {}}}
    tools, problems, _ = read_operations({"openapi": "3.1.0", "paths": paths, "components": {"schemas": schemas}})
    assert [tool.path for tool in tools] == ["/b"]
    assert "more than 2,000 schemas" in problems[0].message


def test_total_definitions_are_limited(monkeypatch):
    from toolwire.openapi import schemas as schema_limits

    monkeypatch.setattr(schema_limits, "MAX_TOTAL_DEFS", 10)
    paths = {
        f"/{n}": {
            "post": {
                "requestBody": {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{n}"}}}}
            }
        }
        for n in range(11)
    }
    schemas = {f"{n}": {} for n in range(11)}
    with pytest.raises(SchemaError, match="select some with tags"):
        read_operations({"openapi": "3.1.0", "paths": paths, "components": {"schemas": schemas}})


def test_total_parameters_are_limited(monkeypatch):
    monkeypatch.setattr(parameters, "MAX_TOTAL_PARAMETERS", 20_000)
    big = {method: {"parameters": [{"name": f"p{n}", "in": "query"} for n in range(500)]} for method in ("get", "put")}
    paths = {"/big": big, **{f"/{n}": {"$ref": "#/paths/~1big"} for n in range(30)}}
    with pytest.raises(SchemaError, match="more than 20,000 parameters"):
        read_operations({"openapi": "3.1.0", "paths": paths})


def test_many_operations_are_limited():
    paths = {f"/{n}": {"get": {"tags": ["few"] if n < 3 else []}} for n in range(5001)}
    document = {"openapi": "3.1.0", "paths": paths}
    with pytest.raises(SchemaError, match="more than 5,000 operations"):
        read_operations(document)
    assert len(read_operations(document, tags=["few"]).tools) == 3


def test_paths_that_share_one_item_cost_no_more_than_their_number():
    big = {"get": {"parameters": [{"name": f"p{n}", "in": "query", "schema": {"type": "string"}} for n in range(400)]}}
    paths = {"/big": big, **{f"/{n}": {"$ref": "#/paths/~1big"} for n in range(50)}}
    assert len(read_operations({"openapi": "3.1.0", "paths": paths}).tools) == 51
    chain = {"/a": {"$ref": "#/paths/~1b"}, "/b": {"$ref": "#/paths/~1a"}}
    tools, problems, _ = read_operations({"openapi": "3.1.0", "paths": chain})
    assert tools == ()
    assert all("cycle" in problem.message for problem in problems)
