"""Requests that providers accepted, recorded by other projects.

Each is detected, identical after decoding and encoding on its own wire, and translated to every other wire with every
change carried or reported. The same holds for siblings of them, which differ in one place.
"""

import json
import re
from collections import Counter

import pytest
import recorded_traffic
from recorded_shapes import changed, sites, variations
from recorded_traffic import SKIPPED_PATHS, exchanges, wire_exchanges

import toolwire
from recordings import WIRES
from sdk_validation import validate_request
from tables import every_case
from toolwire.bridge.translation.detection import Detected
from toolwire.ir.errors import StoredStateError
from toolwire.ir.pointer import resolve
from toolwire.testing import differences
from toolwire.testing.pair_checks import request_pair
from toolwire.wire import get

COMPLETE = len(exchanges()) >= recorded_traffic.PUBLISHED
REQUESTS = [one for one in wire_exchanges() if one.accepted]

# The recordings are older than version 2026-10-21 of Anthropic's API, which has no sampling parameters.
VERSIONS = {"anthropic": "anthropic@2023-06-01"}

PUBLISHED_REQUESTS = {
    "openai": 372,
    "gemini": 235,
    "anthropic": 225,
    "vertex": 81,
    "groq": 62,
    "mistral": 45,
    "openrouter": 44,
    "deepseek": 13,
    "cohere": 12,
    "bedrock": 13,
    "cerebras": 8,
    "huggingface": 8,
    "azure": 3,
    "ollama": 3,
}
"""Number of accepted requests of each provider on a wire of ours."""

DEVIATIONS: tuple[tuple[str, str, str], ...] = ()
"""(wire, pattern for the pointer, reason) of each accepted request that is not identical after decoding and encoding."""

REPAIRED = (
    ("anthropic", "/max_tokens", "required by the API: a default is written"),
    ("anthropic", "/output_config/format/schema<json_schema>", "required by the API: null is written"),
    ("gemini", "/generationConfig/responseLogprobs", "required by the API beside logprobs: true is written"),
    ("ollama", "/logprobs", "required by the API beside top_logprobs: true is written"),
    ("openai_chat", "/logprobs", "required by the API beside top_logprobs: true is written"),
    ("openai_responses", "/input/*/arguments<function_call>", "required by the API: an empty object is written"),
)
"""(wire, shape, reason) of fields that are written although a sibling of a known request lacks them."""

WITHOUT_EFFECT = (
    ("openai_chat", r"/stream_options/include_usage", "every other wire always reports usage"),
    ("openai_chat", r".*/tool_calls<assistant>/\*/index<function>", "the position of the call in its list"),
    ("gemini", r"/systemInstruction/role.*", "a system instruction has no role; the API ignores it"),
    ("gemini", r".*/function_?[rR]esponse/name", "a result belongs to the call of its id, whose name it takes"),
    ("openai_chat", r"/messages/\*/name<tool>", "a result belongs to the call of its id, whose name it takes"),
    ("openai_responses", r"/input/\*/name(space)?<function_call_output>", "a result takes the name of its call"),
    ("openai_responses", r"/input/\*/tools<tool_search_output>/\*/defer_loading<function>", "a found tool is loaded"),
    ("ollama", r"/tools/\*/type<function>", "the server ignores it: every tool is a function"),
    ("ollama", r".*/tool_calls<assistant>/\*/type<function>", "the server ignores it: every call is of a function"),
    ("ollama", r".*/tool_calls<assistant>/\*/function(<function>)?/index", "the position of the call in its list"),
)
"""(wire, pattern for the shape, reason) of values that change nothing on another wire and are no loss there."""

REFUSED_TRANSLATIONS = (
    (
        r"does not allow a forced tool call with a thinking budget",
        "Anthropic refuses a forced call together with a thinking budget",
        "gemini",
        {
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "tools": [{"functionDeclarations": [{"name": "f"}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            "generationConfig": {"thinkingConfig": {"thinkingBudget": 2048}},
        },
    ),
    (
        r"two tools have the name",
        "Anthropic refuses two tools of one name",
        "openai_chat",
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "f"}}] * 2,
        },
    ),
    (
        r"the request has no message to answer",
        "the conversation is only in the provider's own items",
        "gemini",
        {"contents": [{"role": "user", "parts": [{"brandNewPart": {}}]}]},
    ),
)
"""(message, reason, wire, example) of accepted requests that are refused before anything is sent to another provider."""


def test_recordings_are_present():
    recorded_traffic.require_recordings()


def test_missing_recordings_fail_where_ci_is_set(monkeypatch, tmp_path):
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="no recordings"):
        recorded_traffic.require_recordings(tmp_path)
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no recordings"):
        recorded_traffic.require_recordings(tmp_path)


def test_unknown_paths_are_not_skipped():
    with pytest.raises(recorded_traffic.UnknownPath, match="/v1/brand_new"):
        recorded_traffic.skip_reason_of("/v1/brand_new")
    assert recorded_traffic.wire_of("/openai/deployments/gpt-4o/chat/completions?api-version=1") == "openai_chat"
    vertex = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-4@20250514:streamRawPredict"
    assert recorded_traffic.wire_of(vertex) == "anthropic"


def test_every_skip_rule_is_needed_and_none_hides_a_wire():
    recorded_traffic.require_recordings()
    skipped = [one for one in exchanges() if one.wire is None]
    assert all(one.skip_reason for one in skipped)
    assert not [one.path for one in wire_exchanges() if recorded_traffic.skip_rule_of(one.path)]
    if COMPLETE:
        used = {recorded_traffic.skip_rule_of(one.path) for one in skipped}
        assert used == set(SKIPPED_PATHS)


@pytest.mark.one_in(7)
@every_case("exchange", REQUESTS, ids=repr)
def test_accepted_request_is_detected(exchange):
    expected = Detected(exchange.wire, "request")
    assert toolwire.detect(exchange.request) == expected
    assert toolwire.detect(json.dumps(exchange.request)) == expected


@pytest.mark.one_in(3)
@every_case("exchange", REQUESTS, ids=repr)
def test_accepted_request_is_identical_on_its_own_wire(exchange):
    unlisted = [pointer for pointer in deviations(exchange) if not _listed(exchange.wire, pointer)]
    assert not unlisted


def test_every_listed_deviation_occurs():
    if COMPLETE:
        found = [(one.wire, pointer) for one in REQUESTS for pointer in deviations(one)]
        for row in DEVIATIONS:
            assert any(_matches(row, wire, pointer) for wire, pointer in found), row


def deviations(exchange):
    wire = get(VERSIONS.get(exchange.wire, exchange.wire))
    written, losses = wire.encode_request(wire.decode_request(exchange.request))
    found = differences(written, exchange.request) + [loss.path for loss in losses]
    if not found and json.dumps(written, sort_keys=True) != json.dumps(exchange.request, sort_keys=True):
        found.append("")
    return found


def _listed(wire, pointer, rows=None):
    return any(_matches(row, wire, pointer) for row in (DEVIATIONS if rows is None else rows))


def _matches(row, wire, place):
    return row[0] == wire and re.fullmatch(row[1], place) is not None


@pytest.mark.one_in(5)
@every_case("exchange", REQUESTS, ids=repr)
def test_accepted_request_is_translated_with_every_change_reported(exchange):
    """The translation is also valid for the types of the target's own SDK."""
    source = VERSIONS.get(exchange.wire, exchange.wire)
    for target in _others(exchange.wire):
        translation = _translated(exchange, target)
        if translation is None:
            continue
        request_pair(get(source), exchange.request, get(target))
        for loss in translation.losses:
            resolve(exchange.request, loss.path)
            assert loss.detail
        validate_request(target, translation.body)


def _translated(exchange, target):
    """None where the request needs a conversation that its provider keeps, or is refused for a listed reason."""
    model = exchange.model_in_path
    try:
        return toolwire.translate(exchange.request, source=exchange.wire, target=target, model=model)
    except toolwire.EncodeError as error:
        if isinstance(error, StoredStateError):
            assert refers_to_stored_items(exchange.request)
        elif not any(re.search(message, str(error)) for message, *_ in REFUSED_TRANSLATIONS):
            raise
        return None


@pytest.mark.parametrize("row", REFUSED_TRANSLATIONS, ids=lambda row: row[1])
def test_every_listed_refusal_of_a_translation_occurs(row):
    message, _, source, example = row
    with pytest.raises(toolwire.EncodeError, match=message):
        toolwire.translate(example, source=source, target="anthropic")


def refers_to_stored_items(request):
    items = request.get("input")
    kinds = {item.get("type") for item in items if isinstance(item, dict)} if isinstance(items, list) else set()
    stored = any(request.get(field) for field in ("previous_response_id", "conversation", "prompt", "cachedContent"))
    return stored or not kinds.isdisjoint({"item_reference", "compaction"})


def _others(wire):
    return [target for target in WIRES if target != wire]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("wire", WIRES)
def test_no_changed_value_is_ignored_on_another_wire(wire):
    """Change one value at a time: the translation changes as well, or a loss names the place."""
    ignored, used = [], set()
    for site in sites(wire):
        value = changed(site.value)
        if value is None or refers_to_stored_items(site.request):
            continue
        for target in _others(wire):
            if _is_ignored(site, value, target):
                rows = [row for row in WITHOUT_EFFECT if _matches(row, wire, site.shape)]
                used.update(rows)
                ignored += [] if rows else [f"{site} to {target}"]
    assert not ignored, "\n".join(ignored)
    if COMPLETE:
        assert used == {row for row in WITHOUT_EFFECT if row[0] == wire}


def _is_ignored(site, value, target):
    try:
        before = toolwire.translate(site.request, source=site.wire, target=target)
        after = toolwire.translate(site.replaced(value), source=site.wire, target=target)
    except toolwire.ToolwireError:
        return False  # refused with a reason
    if json.dumps(before.body, sort_keys=True) != json.dumps(after.body, sort_keys=True):
        return False
    return not _covers(before.losses, site.pointer) and not _covers(after.losses, site.pointer)


def _covers(losses, pointer):
    """A loss for the document or for all messages together is not about this value."""
    near = [loss.path for loss in losses if loss.path not in ("", "/messages", "/tools", "/contents", "/input")]
    return any(f"{pointer}/".startswith(f"{path}/") or path.startswith(f"{pointer}/") for path in near)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("wire", WIRES)
def test_siblings_of_known_requests_are_refused_or_identical(wire):
    """Unknown fields, nulls, empty values, other types: what can be decoded comes back as it was."""
    codec = get(VERSIONS.get(wire, wire))
    changes, used = [], set()
    for site in sites(wire):
        for name, value in variations(site):
            request = site.replaced(value)
            try:
                decoded = codec.decode_request(request)
            except toolwire.ToolwireError:
                continue
            written = codec.encode_request(decoded).body
            if json.dumps(written, sort_keys=True) == json.dumps(request, sort_keys=True):
                continue
            rows = [row for row in REPAIRED if row[:2] == (wire, site.shape) and name in ("removed", "null")]
            used.update(rows)
            changes += [] if rows else [f"{name}: {site} changed at {differences(written, request)}"]
    assert not changes, "\n".join(changes)
    if COMPLETE:
        assert used == {row for row in REPAIRED if row[0] == wire}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("wire", WIRES)
def test_siblings_of_known_requests_are_translated_with_every_change_reported(wire):
    """Other values, unknown fields and types that are new: nothing of it disappears on the way to another wire."""
    codec = get(VERSIONS.get(wire, wire))
    failures = []
    for site in sites(wire):
        siblings = [value for name, value in variations(site) if name in ("unknown fields", "unknown type")]
        if isinstance(site.value, (str, int, float)) and site.path[-1] not in BINARY:
            siblings.append(changed(site.value))
        for request in map(site.replaced, siblings):
            failures += [
                f"{site} to {target}: {error}" for target in _others(wire) for error in _pair(codec, request, target)
            ]
    assert not failures, "\n".join(failures)


BINARY = frozenset({"data", "url", "image_url", "file_data", 0})
"""Keys of base64 text and of addresses, and the index of an image on Ollama: another text there is no such value."""


def _pair(codec, request, target):
    try:
        codec.decode_request(request)
    except toolwire.ToolwireError:
        return []
    try:
        request_pair(codec, request, get(target))
    except AssertionError as error:
        return [str(error)]
    return []


@pytest.mark.parametrize("wire", WIRES)
def test_unknown_fields_are_accepted_everywhere(wire):
    """No provider refuses the next version of its own clients, and neither do we."""
    codec = get(VERSIONS.get(wire, wire))
    refused = []
    for site in sites(wire):
        for name, value in variations(site):
            if name == "unknown fields":
                try:
                    codec.decode_request(site.replaced(value))
                except toolwire.ToolwireError as error:
                    refused.append(f"{site}: {error}")
    assert not refused, "\n".join(refused)


def test_no_request_of_the_published_files_is_left_out():
    if COMPLETE:
        assert Counter(one.provider for one in REQUESTS) >= Counter(PUBLISHED_REQUESTS)
