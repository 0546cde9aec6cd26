"""Recorded requests with tool searches, which providers accepted, between Anthropic and Responses and on every other wire."""

import json

import pytest
import recorded_traffic
from recorded_traffic import wire_exchanges

import toolwire
from recordings import WIRES
from toolwire.audit import check_body
from toolwire.bridge.fitting.tool_search import hosted_method, read_hosted
from toolwire.ir import Opaque, ToolResult
from toolwire.ir.tools import SEARCH_TOOLS, HostedSearchResult
from toolwire.wire import get

OTHER = {"anthropic": "openai_responses", "openai_responses": "anthropic"}
MODELS = {"anthropic": "claude-sonnet-5", "openai_responses": "gpt-5.6", "gemini": "gemini-3-pro-preview"}
LATER_DECLARATIONS = ("tool_addition", "additional_tools")
"""Other ways to declare tools inside of a conversation, which are reported as lost."""


def searching():
    return [
        one
        for one in wire_exchanges()
        if one.accepted
        and one.wire in OTHER
        and ('"tool_search' in (text := json.dumps(one.request)) or '"tool_reference"' in text)
    ]


def found_names(request):
    names = []
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                names += part.found
            elif isinstance(part, Opaque) and isinstance(search := read_hosted(part), HostedSearchResult):
                names += search.found
    return names


def has_search(request):
    """Return whether a request declares a search, which is an ordinary function on Anthropic if the client runs it."""
    tools = request.tools
    return any(tool.kind == "search" or tool.name == SEARCH_TOOLS or hosted_method(tool) is not None for tool in tools)


def test_recordings_with_searches_are_present():
    recorded_traffic.require_recordings()
    assert {one.wire for one in searching()} == set(OTHER)


def test_recorded_searches_survive_the_other_wire_with_search():
    for one in searching():
        target = OTHER[one.wire]
        translated = toolwire.translate(one.request, source=one.wire, target=target, model=MODELS[target])
        assert check_body(translated.body, target) == [], one
        errors = [loss.concept for loss in translated.losses if loss.severity == "error"]
        assert set(errors) <= set(LATER_DECLARATIONS), one
        before, after = get(one.wire).decode_request(one.request), get(target).decode_request(translated.body)
        if has_search(before):
            assert has_search(after), one
            assert found_names(after) == found_names(before), one


@pytest.mark.parametrize("target", [wire for wire in WIRES if wire not in OTHER])
def test_recorded_searches_reach_wires_without_search(target):
    for one in searching():
        translated = toolwire.translate(one.request, source=one.wire, target=target, model=MODELS.get(target, "m"))
        assert check_body(translated.body, target, MODELS.get(target, "m")) == [], one
        before, after = get(one.wire).decode_request(one.request), get(target).decode_request(translated.body)
        missing = set(found_names(before)) & {tool.name for tool in before.tools} - {tool.name for tool in after.tools}
        assert not missing, one
