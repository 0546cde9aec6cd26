"""Where references lead."""

from urllib.parse import urljoin

import pytest

from tables import every_case
from toolwire.schema import lower
from toolwire.schema.keywords import Identifiers, old_draft_number
from toolwire.schema.parsing.parser import parse_schema

DOCUMENT = {
    "$id": "https://example.com/root.json",
    "properties": {
        "a": {"$ref": "#/$defs/text"},
        "enum": {"enum": [{"$id": "data.json", "$anchor": "data"}]},
    },
    "$defs": {
        "text": {"type": "string"},
        "inner": {
            "$id": "nested/inner.json",
            "properties": {"self": {"$ref": "#"}, "text": {"$ref": "#/$defs/text"}},
            "$defs": {"text": {"$anchor": "words", "type": "integer"}},
        },
        "named": {"$anchor": "here"},
        "a/b": {},
    },
}


@every_case(
    ("ref", "at", "target"),
    [
        ("#", "", ""),
        ("", "", ""),
        ("#/$defs/text", "/properties/a", "/$defs/text"),
        ("#/$defs/a~1b", "", "/$defs/a~1b"),
        ("#/%24defs/text", "", "/$defs/text"),
        ("#here", "/properties/a", "/$defs/named"),
        ("root.json#/$defs/text", "", "/$defs/text"),
        ("https://example.com/root.json", "/properties/a", ""),
        ("nested/inner.json", "", "/$defs/inner"),
        ("nested/inner.json#words", "", "/$defs/inner/$defs/text"),
        ("#", "/$defs/inner/properties/self", "/$defs/inner"),
        ("#/$defs/text", "/$defs/inner/properties/text", "/$defs/inner/$defs/text"),
        ("inner.json", "/$defs/inner/properties/text", "/$defs/inner"),
        ("#words", "/$defs/inner/properties/text", "/$defs/inner/$defs/text"),
        ("#words", "", None),
        ("#here", "/$defs/inner/properties/text", None),
        ("#/$defs/nowhere", "", None),
        ("data.json", "", None),
        ("#data", "", None),
        ("https://example.org/other.json", "", None),
    ],
)
def test_a_reference_is_resolved_against_the_resource_around_it(ref, at, target):
    assert Identifiers(DOCUMENT).resolve(ref, at) == target


def test_identifiers_of_draft_4_are_called_id():
    document = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "definitions": {"a": {"id": "#text", "type": "string"}, "b": {"$id": "b.json"}},
    }
    assert Identifiers(document).resolve("#text", "") == "/definitions/a"
    assert Identifiers(document).resolve("b.json", "") is None


@pytest.mark.parametrize("identifier", ["#/properties/a", "urn:example:a", "http://[bad"])
def test_unusual_identifiers_do_not_break_references(identifier):
    document = {"properties": {"a": {"$id": identifier, "$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}}
    assert Identifiers(document).resolve("#/$defs/x", "") == "/$defs/x"
    lower(document, "gemini")


def test_dynamic_reference_with_one_anchor_is_resolved():
    document = {"properties": {"next": {"$dynamicRef": "#node"}}, "$dynamicAnchor": "node"}
    assert Identifiers(document).resolve("#node", "/properties/next", "$dynamicRef") == ""


def test_a_dynamic_reference_with_several_anchors_is_left_to_the_validator():
    document = {
        "type": "object",
        "properties": {"item": {"$dynamicRef": "#content"}},
        "$defs": {
            "one": {"$dynamicAnchor": "content", "type": "integer"},
            "two": {"$id": "two", "$dynamicAnchor": "content", "type": "string"},
        },
    }
    source = parse_schema(document)
    assert [finding.at for finding in source.defects] == ["/properties/item/$dynamicRef"]
    assert any(loss.severity == "warning" for loss in lower(document, "openai_strict").losses)


def test_a_recursive_reference_across_resources_is_left_to_the_validator():
    document = {
        "$id": "http://localhost/outer",
        "$recursiveAnchor": True,
        "properties": {"a": {"$id": "inner", "$recursiveAnchor": True, "items": {"$recursiveRef": "#"}}},
    }
    assert Identifiers(document).resolve("#", "/properties/a/items", "$recursiveRef") is None
    assert Identifiers(document).resolve("#", "/properties/a/items") == "/properties/a"


def test_external_reference_is_never_sent():
    schema = {"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}
    lowered = lower(schema, "openai")
    assert "https://example.org/a.json" not in str(lowered.schema.get("properties", {}).get("a", {}).get("$ref"))
    assert lowered.conforms
    assert "/properties/a/$ref" in {loss.path for loss in lowered.losses}


@pytest.mark.parametrize(
    ("declared", "draft"),
    [
        ("http://json-schema.org/draft-04/schema#", 4),
        ("http://json-schema.org/draft-07/schema", 7),
        ("https://json-schema.org/draft/2020-12/schema", None),
        (None, None),
        (7, None),
    ],
)
def test_draft_is_read_from_the_schema_keyword(declared, draft):
    assert old_draft_number({"$schema": declared}) == draft


@every_case("base", ["http://a/b/c/d", "http://a", "http://a/b/", "/b/c", "file:///x/y.json", "urn:a:b"])
@every_case("uri", ["g", "./g", "g/", "/g", "//g/h", "../g", "../../g", "../../../g", "g/./h", "g/../h", "k:l", "."])
def test_relative_references_are_resolved_as_in_rfc_3986(base, uri):
    # urljoin of Python 3.13.0 loses the empty authority of a file URL above its root
    above_root = base.startswith("file:") and uri.startswith("../../")
    expected = "file:///g" if above_root else urljoin(base, uri)
    document = {"$id": base, "$defs": {"x": {"$id": expected}}}
    if base.startswith("urn:") or (not base.startswith(("http", "file")) and ".." in uri):
        assert Identifiers(document).resolve(uri, "") in (None, "/$defs/x")  # not defined by the RFC
    else:
        assert Identifiers(document).resolve(uri, "") == ("" if expected == base else "/$defs/x")
