"""Capability rows: which model they apply to, which row decides, and rows of a user."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordings import WIRES
from toolwire.ir.errors import ConfigError
from toolwire.net.capability_file import load_capability_rows
from toolwire.wire import (
    CapabilityRow,
    ModelCapabilities,
    capabilities_for,
    explain_capabilities,
    get,
    parse_capability_rows,
)
from toolwire.wire.capability_rows import UNKNOWN_MODEL
from toolwire.wire.model_rows import ROWS
from toolwire.wire.profiles import fit_codec, normalise_model, overlay

ROW = {"models": ["house-*"], "capabilities": {"forced_choice": False}, "source": "our server", "date": "2026-11-16"}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("projects/p/locations/l/publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("us.anthropic.claude-opus-4-6-v1:0", "claude-opus-4-6"),
        ("anthropic.claude-opus-4-8", "claude-opus-4-8"),
        ("claude-opus-4@20250514", "claude-opus-4"),
        ("openai.gpt-5.5", "gpt-5.5"),
        ("openai/gpt-4o-mini:free", "gpt-4o-mini"),
        ("ft:gpt-4o-mini-2024-07-18:org::id", "gpt-4o-mini-2024-07-18"),
        ("GPT-5.4", "gpt-5.4"),
    ],
)
def test_names_of_one_model_are_normalised(given, name):
    assert normalise_model(given) == name


@pytest.mark.parametrize(
    ("wire", "vendor", "model"),
    [
        ("ollama", None, "my-claude-clone"),
        ("ollama", None, "claude-opus-5-5"),
        ("anthropic", None, "my-claude-clone"),
        ("openai_chat", "ollama-chat", "gpt-4o"),
        ("openai_chat", "vllm", "gpt-5"),
        ("openai_chat", "openrouter", "anthropic/claude-opus-5-5"),
        ("openai_chat", None, "gpt-oss-120b"),
        ("openai_chat", None, "gpt"),
        ("gemini", None, "not-gemini-2.5-pro"),
        ("anthropic", None, ""),
    ],
)
def test_row_applies_only_where_vendor_and_beginning_of_the_name_match(wire, vendor, model):
    assert capabilities_for(wire, model, vendor=vendor) is UNKNOWN_MODEL


def test_newer_members_of_a_family_are_not_mistaken_for_older_ones():
    assert capabilities_for("anthropic", "claude-opus-5").forced_choice is None
    assert capabilities_for("anthropic", "claude-opus-5-5").forced_choice is False
    assert capabilities_for("anthropic", "claude-opus-4-20250514").efforts == ()
    assert capabilities_for("openai_responses", "gpt-5-2025-08-07").efforts == ("minimal", "low", "medium", "high")
    assert capabilities_for("openai_responses", "gpt-5.2-2025-12-11").default_effort == "none"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.models[0]} {row.date}")
def test_every_row_has_a_source_and_states_something(row):
    assert re.match(r"https://|recorded: |openai 3", row.source)
    assert row.wires
    assert row.vendors
    assert row.capabilities != UNKNOWN_MODEL
    assert "2025-11-01" < row.date < "2026-11-17"


def test_every_row_decides_a_field_of_one_of_its_models():
    deciding = set()
    for row in ROWS:
        for model in row.models:
            name = re.sub(r"\[(.)[^]]*]", r"\1", model).replace("*", "")
            for wire in row.wires:
                deciding |= {
                    id(one) for one in explain_capabilities(wire, name, vendor=row.vendors[0].strip("*")).rows.values()
                }
    assert [row.models for row in ROWS if id(row) not in deciding] == []


@pytest.mark.parametrize("wire", WIRES)
@given(model=st.text(max_size=30))
def test_unknown_model_has_no_rows(wire, model):
    families = ("claude", "gpt", "chatgpt", "o1", "o3", "o4", "gemini", "gemma")
    if not normalise_model(model).startswith(families):
        assert explain_capabilities(wire, model).rows == {}
        assert capabilities_for(wire, f"my-{model}") is UNKNOWN_MODEL


def test_rows_of_a_user_come_first_and_keep_the_built_in_facts():
    row = CapabilityRow(("claude-opus-5-5",), ModelCapabilities(forced_choice=True), "our proxy", "2026-11-16")
    found = explain_capabilities("anthropic", "claude-opus-5-5", rows=(row,))
    assert found.capabilities.forced_choice is True
    assert found.rows["forced_choice"] is row
    assert found.capabilities.thinking_off is False


def test_description_replaces_only_its_known_fields():
    base = capabilities_for("anthropic", "claude-opus-5-5")
    described = overlay(ModelCapabilities(forced_choice=True, efforts=()), base)
    assert (described.forced_choice, described.efforts, described.thinking_off) == (True, (), False)
    assert overlay(UNKNOWN_MODEL, base) == base


def test_row_cannot_add_what_the_wire_does_not_have():
    codec = fit_codec(get("ollama"), ModelCapabilities(media=("image", "video"), forced_choice=True, budgets=True))
    assert codec.capabilities.media == {"image"}
    assert codec.capabilities.choices == get("ollama").capabilities.choices
    assert not codec.capabilities.budgets


def test_rows_are_read_from_a_file(tmp_path):
    file = tmp_path / "models.json"
    file.write_text(json.dumps([ROW]))
    rows = load_capability_rows(file)
    assert capabilities_for("openai_chat", "house-7b", rows=rows).forced_choice is False
    assert capabilities_for("openai_chat", "my-house-7b", rows=rows) is UNKNOWN_MODEL


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, "expected an array of capability rows"),
        ([{**ROW, "model": []}], "unknown field 'model' in row 0 (did you mean 'models'?)"),
        ([ROW, {**ROW, "capabilities": {"forced_choise": False}}], "unknown field 'forced_choise' in row 1.capabilities (did you mean 'forced_choice'?)"),
        ([{**ROW, "capabilities": {"forced_choice": "no"}}], "row 0: Expected `bool | null`, got `str` in capabilities.forced_choice"),
        ([{**ROW, "date": "today"}], "row 0: Expected `str` matching regex"),
        ([{"models": []}], "row 0: Object missing required field `capabilities`"),
        ([{**ROW, "capabilities": {"system": "top"}}], "row 0: Invalid enum value 'top' in capabilities.system"),
        ([{**ROW, "capabilities": {"min_output": -1}}], "row 0: Expected `int` >= 0 in capabilities.min_output"),
        ([{**ROW, "capabilities": {"id": "["}}], "row 0.id: '[' is not a valid regular expression"),
        ([{**ROW, "capabilities": {"name": "[a-z]+"}}], "row 0.name: '[a-z]+' does not match '_aZ0'"),
        ([{**ROW, "capabilities": {"media": ["smell"]}}], "unknown value 'smell' in row 0.media"),
        ([{**ROW, "capabilities": {"refused_params": ["heat"]}}], "unknown value 'heat' in row 0.refused_params"),
        (["x"], "row 0: Expected `object`, got `str`"),
    ],
)  # fmt: skip
def test_invalid_rows_are_refused_with_their_location(document, expected):
    with pytest.raises(ConfigError) as caught:
        parse_capability_rows(document)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("content", "expected"), [(None, "cannot read"), (b"{", "is not valid JSON"), (b"[1]", "row 0: Expected")]
)
def test_invalid_file_is_named(tmp_path, content, expected):
    file = tmp_path / "models.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_capability_rows(file)
    assert str(file) in str(caught.value)
    assert expected in str(caught.value)


def test_documentation_describes_every_field():
    page = (Path(__file__).parents[3] / "docs" / "capabilities.md").read_text("utf-8")
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) == set(ModelCapabilities.__struct_fields__)
