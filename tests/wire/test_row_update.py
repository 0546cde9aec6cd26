"""A document with newer rows: what it can change, what it must not, and the differences that are shown."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import every_case
from toolwire.ir.errors import ConfigError
from toolwire.wire import get
from toolwire.wire.models.profiles import match_capabilities
from toolwire.wire.models.row_update import compare_rows, parse_row_update, use_row_update
from toolwire.wire.models.vendors import BUILTIN, find, names

DATE = "2026-11-19"
MODEL = {"models": ["kimi-k9*"], "capabilities": {"window": 1000}, "source": "https://example.com", "date": DATE}
NEW_VENDOR = {"name": "new-vendor", "base_url": "https://new.example/v1", "keys": [{"variable": "NEW_API_KEY"}]}


def update(*vendors, models=()):
    return parse_row_update({"date": DATE, "vendors": list(vendors), "models": list(models)})


@pytest.fixture
def using():
    yield use_row_update
    use_row_update(None)


def test_fields_of_an_entry_replace_those_of_the_built_in_row(using):
    using(update({"name": "groq", "base_url": "https://api.groq.com/openai/v2", "counts_on_request": False}))
    row, builtin = find("groq"), BUILTIN["groq"]
    assert (row.base_url, row.counts_on_request) == ("https://api.groq.com/openai/v2", False)
    assert (row.keys, row.fields, row.stated_tool_limits) == (builtin.keys, builtin.fields, builtin.stated_tool_limits)
    using(None)
    assert find("groq") == builtin


def test_new_vendors_and_facts_about_models_are_used(using):
    wire = get("openai_chat")
    assert match_capabilities(wire, "kimi-k9-pro").capabilities.window is None
    using(update(NEW_VENDOR, models=[MODEL]))
    assert "new-vendor" in names()
    assert find("new-vendor").keys[0].header == "authorization"
    assert match_capabilities(wire, "kimi-k9-pro").capabilities.window == 1000
    using(None)
    assert "new-vendor" not in names()
    assert match_capabilities(wire, "kimi-k9-pro").capabilities.window is None


def test_facts_of_an_update_come_before_the_built_in_facts_and_after_the_users(using):
    wire = get("anthropic")
    facts = {**MODEL, "models": ["claude-opus-4-6*"]}
    using(update(models=[facts]))
    assert match_capabilities(wire, "claude-opus-4-6").capabilities.window == 1000
    own = parse_row_update({"date": DATE, "models": [{**facts, "capabilities": {"window": 5}}]}).models
    assert match_capabilities(wire, "claude-opus-4-6", rows=own).capabilities.window == 5


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_every_built_in_row_is_an_entry_without_a_difference(name):
    entry = json.loads(msgspec.json.encode(BUILTIN[name]))
    found = update(entry)
    assert found.vendors == (BUILTIN[name],)
    assert list(compare_rows(None, found)) == []


@pytest.mark.parametrize(
    ("vendor", "field", "value"),
    [
        ("groq", "headers", {"x-team": "a"}),
        ("groq", "variables", {"project": ["OPENAI_API_KEY"]}),
        ("groq", "location", "eu"),
        ("bedrock", "signing_name", "sts"),
    ],
)
def test_fields_that_send_secrets_elsewhere_are_marked(vendor, field, value):
    changes = {change.field: change for change in compare_rows(None, update({"name": vendor, field: value}))}
    assert changes[field].moves_keys


def test_differences_show_where_keys_are_sent():
    before = update({"name": "groq", "wire": "openai_responses"}, models=[MODEL])
    after = update({"name": "groq", "regional_urls": ["https://eu.groq.example"]}, NEW_VENDOR)
    shown = {(change.row, change.field): change for change in compare_rows(before, after)}
    assert shown["vendor groq", "wire"][2:] == ("openai_responses", "openai_chat", False)
    assert shown["vendor groq", "regional_urls"][2:] == ("[]", '["https://eu.groq.example"]', True)
    assert shown["vendor new-vendor", "base_url"][2:] == ("", "https://new.example/v1", True)
    assert shown["kimi-k9*", "facts"].before.startswith('{"window":1000}')
    assert shown["kimi-k9*", "facts"].after == ""


@every_case(
    ("entry", "words"),
    [
        ({"name": "local", "transport": "os:system"}, "transport names code"),
        ({**NEW_VENDOR, "transport": "os:system"}, "transport names code"),
        ({**NEW_VENDOR, "id": "(a+)+$"}, "no built-in row has the regular expression"),
        ({**NEW_VENDOR, "hosts": ".*"}, "no built-in row has the regular expression"),
        (
            {**NEW_VENDOR, "surfaces": [{"wire": "openai_chat", "path": "/x", "api_versions": "(a|a)*b"}]},
            "no built-in row has the regular expression",
        ),
        ({**NEW_VENDOR, "base_url": "http://example.com/v1"}, "is not an https URL"),
        ({**NEW_VENDOR, "base_url": "https://user@example.com/v1"}, "is not an https URL"),
        ({**NEW_VENDOR, "base_url": "https://example.com/a b"}, "is not an https URL"),
        ({**NEW_VENDOR, "base_url": ""}, "needs a base_url"),
        ({**NEW_VENDOR, "regional_urls": ["ftp://a"]}, "is not an https URL"),
        ({**NEW_VENDOR, "domains": ["com"]}, "is not a domain"),
        ({**NEW_VENDOR, "keys": [{"variable": "a b"}]}, "is not the name of an environment variable"),
        ({**NEW_VENDOR, "keys": [{"variable": "A", "header": "x\r\ny"}]}, "the header .* is not valid"),
        ({**NEW_VENDOR, "headers": {"x-y": "a\nb"}}, "the header 'x-y' is not valid"),
        ({**NEW_VENDOR, "wire": "soap"}, "soap"),
        ({**NEW_VENDOR, "dialect": "soap"}, "soap"),
        ({**NEW_VENDOR, "base_ulr": "x"}, "unknown field 'base_ulr'.*did you mean 'base_url'"),
        ({**NEW_VENDOR, "keys": 5}, "vendor new-vendor: Expected `array`"),
        ({"name": "New Vendor"}, "needs a name of small letters"),
        ({}, "needs a name of small letters"),
    ],
)
def test_unusable_vendor_is_refused(entry, words):
    with pytest.raises(ConfigError, match=words):
        update(entry)


@every_case(
    ("document", "words"),
    [
        ([], "not an update of rows"),
        ({"vendors": []}, "missing required field `date`"),
        ({"date": "soon"}, "not an update of rows"),
        ({"date": DATE, "script": "x"}, "unknown field `script`"),
        ({"date": DATE, "vendors": [NEW_VENDOR, NEW_VENDOR]}, "two entries are about the same vendor"),
        ({"date": DATE, "vendors": [NEW_VENDOR] * 501}, "length <= 500"),
        ({"date": DATE, "models": [{**MODEL, "source": 5}]}, "models: row 0"),
        ({"date": DATE, "models": [{**MODEL, "capabilities": {"id": "(a+)+$"}}]}, "no built-in row has the regular"),
        ({"date": DATE, "models": [{**MODEL, "capabilities": {"windw": 5}}]}, "unknown field 'windw'"),
    ],
)
def test_unusable_document_is_refused(document, words):
    with pytest.raises(ConfigError, match=words):
        parse_row_update(document)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=10,
)
ANY_ENTRY = st.dictionaries(st.sampled_from(type(BUILTIN["groq"]).__struct_fields__), ANY_JSON, max_size=4)


@given(st.fixed_dictionaries({"date": st.just(DATE), "vendors": st.lists(ANY_ENTRY | ANY_JSON, max_size=3)}))
def test_any_document_is_read_or_refused(document):
    try:
        parse_row_update(document)
    except ConfigError:
        pass
