"""The JSON Schema of `toolwire.toml`: it accepts and refuses the same files as the parser, and editors find it."""

import json
import re
import tomllib
from copy import deepcopy
from pathlib import Path
from urllib.parse import unquote, urlsplit

import jsonschema_rs
import pytest

from places import ROOT
from toolwire.cli.main import main
from toolwire.gateway.config.parsing import find_shape_problems, parse_valid_part
from toolwire.gateway.settings_file import SCHEMA_FILE
from toolwire.ir.errors import ConfigError
from toolwire.net.model.endpoint_settings import check_extra_body, parse_defaults
from toolwire.wire import get

SCHEMA = json.loads(SCHEMA_FILE.read_text("utf-8"))
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
WRONG_VALUES = ("x", -1, 0.5, 2000, True, ["x"], [1], {"x": 1}, {"x": "y"})


def parser_problems(document):
    """Return the problems that the gateway has with a document, before it looks at its environment."""
    parsed = parse_valid_part(document)
    found = {str(problem) for problem in parsed.problems}
    for row in parsed.settings.upstreams.values():
        for check in (lambda: parse_defaults(row.defaults), lambda: check_extra_body(row.extra_body, get("anthropic"))):
            try:
                check()
            except ConfigError as error:
                found.add(str(error))
    return found


def examples():
    """Yield every settings file of the docs and of deploy/, with its location."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, block in enumerate(
            re.findall(r"^```toml[^\n]*\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        ):
            document = tomllib.loads(block)
            if "project" not in document:  # an entry point of a package
                yield f"{page.relative_to(ROOT)}, block {number}", document
    yield "deploy/toolwire.toml", tomllib.loads((ROOT / "deploy/toolwire.toml").read_text("utf-8"))


def sample(schema):
    """Return a value with every known setting."""
    if "$ref" in schema:
        return sample(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return sample(schema["anyOf"][-1])
    values = {"string": "_aZ0", "integer": 1, "number": 1, "boolean": False}
    if schema["type"] == "array":
        return [sample(schema["items"])]
    if schema["type"] == "object":
        if "properties" not in schema:
            return {} if "additionalProperties" not in schema else {"a": sample(schema["additionalProperties"])}
        return {name: sample(inner) for name, inner in schema["properties"].items()}
    return values[schema["type"]]


def mutations(value, path=()):
    """Yield each location of a document with another value, without a value (KeyError), or with an unknown name."""
    for other in WRONG_VALUES:
        yield path, other
    if isinstance(value, dict):
        yield (*path, "unknown_name"), 1
        for name, inner in value.items():
            yield (*path, name), KeyError
            yield from mutations(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from mutations(inner, (*path, number))


def mutated(document, path, value):
    changed = deepcopy(document)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


def test_every_example_of_the_docs_is_judged_as_by_the_parser():
    accepted = 0
    for location, document in examples():
        assert VALIDATOR.is_valid(document) == (not find_shape_problems(document)), location
        accepted += VALIDATOR.is_valid(document)
    assert accepted > 20


@pytest.mark.finding("NU9")
def test_schema_and_parser_refuse_the_same_changes():
    """Each change of a type, of a name or of a required setting; the schema also knows most ranges.

    Exceptions: an integer may be written 1.0 in JSON Schema, and is refused by the parser; infinity is not JSON.
    """
    complete, refused = sample(SCHEMA), 0
    del complete["upstreams"]["a"]["defaults"]["reasoning"]["budget"]  # not together with an effort
    for name, table in complete.items():  # one at a time, which is faster
        document = {name: table}
        assert VALIDATOR.is_valid(document)
        before = parser_problems(document)
        for path, value in mutations(document):
            changed = mutated(document, path, value) if path else {"unknown_name": value}
            is_valid, shape = VALIDATOR.is_valid(changed), find_shape_problems(changed)
            assert not (is_valid and shape), (path, value, shape)
            if not is_valid:
                refused += 1
                assert parser_problems(changed) - before, (path, value)
    assert refused > 1000


@pytest.mark.finding("NU9")
def test_command_prints_the_schema(capsys):
    assert main(["serve", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


@pytest.mark.finding("NU9")
@pytest.mark.parametrize("is_inside", [False, True])
def test_new_settings_file_names_the_installed_schema(tmp_path, monkeypatch, is_inside):
    """Editors resolve the first line against the file: a URL, or a path relative to it."""
    monkeypatch.chdir(tmp_path)
    schema = SCHEMA_FILE
    if is_inside:
        schema = tmp_path / "my env" / "toolwire.schema.json"
        monkeypatch.setattr("toolwire.gateway.settings_file.SCHEMA_FILE", schema)
    assert main(["serve", "init", "--no-probe"]) == 0
    directive, address = Path("toolwire.toml").read_text("utf-8").splitlines()[0].split(" ")
    assert directive == "#:schema"
    assert address.startswith("./" if is_inside else "file:///")
    found = unquote(urlsplit(address).path)
    assert (tmp_path / found).resolve() == schema
