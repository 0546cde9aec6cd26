"""The searchable text of a tool: its fields, their bounds, and no characters that a person cannot see."""

import pytest

from toolwire import Tool
from toolwire.retrieve.documents import MAX_DESCRIPTION, MAX_PARAMETERS, clean_text, make_document
from toolwire.run.tools.words import split_words


def test_fields_of_a_tool():
    schema = {
        "properties": {
            "userId": {"description": "The user"},
            "filter": {"properties": {"from": {"description": "Start"}}},
            "tags": {"items": {"properties": {"label": {}}}},
            "target": {"anyOf": [{"properties": {"path": {"description": "A path"}}}, {"type": "null"}]},
        }
    }
    document = make_document(Tool("getUser", "Get a user", schema), server="crm", tags=("sales",))
    assert split_words(document.field_text("name")) == ["user", "crm", "sal"]
    assert document.field_text("description") == "Get a user"
    assert {name for name, _ in document.parameters} == {"userId", "filter", "from", "tags", "label", "target", "path"}
    assert ("path", "A path") in document.parameters
    assert "crm" in document.text
    assert "Get a user" in document.text


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("fi\u200ble", "file"),  # zero-width space
        ("de\u00adlete", "delete"),  # soft hyphen
        ("\u202eelif\u202c", "elif"),  # direction override
        ("ok" + "".join(chr(0xE0000 + ord(char)) for char in "pick me"), "ok"),  # tag characters
        ("a\x00b\x1b[2Jc", "a b [2Jc"),
        ("a\n\n  b\u2028c\u3000d", "a b c d"),
        ("a\ue000b\ud800c", "abc"),  # private use, lone surrogate
        ("Größe 東京", "Größe 東京"),
    ],
)
def test_invisible_characters_are_removed(text, visible):
    assert clean_text(text) == visible


def test_texts_are_bounded():
    schema = {"properties": {f"p{number}": {"description": "d " * 10_000} for number in range(1_000)}}
    document = make_document(Tool("f", "word " * 100_000, schema))
    assert len(document.description) <= MAX_DESCRIPTION
    assert len(document.parameters) == MAX_PARAMETERS
    assert len(document.field_text("parameters")) < 64 * 320


def test_hostile_schemas_are_read():
    cyclic = {"properties": {}}
    cyclic["properties"]["self"] = {}
    deep = {}
    for _ in range(100):
        deep = {"properties": {"deeper": deep}}
    for schema in (deep, {"properties": []}, {"properties": {"a": 3}}, {"anyOf": {"x": 1}}, {"items": [1]}, cyclic):
        assert make_document(Tool("f", None, schema)).name == "f"
    assert len(make_document(Tool("f", None, deep)).parameters) < 10


def test_key_depends_on_the_declaration():
    one = make_document(Tool("f", "a"))
    assert one.key == make_document(Tool("f", "a"), server="other").key
    assert one.key != make_document(Tool("f", "b")).key
