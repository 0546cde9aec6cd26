"""Settings that change a body: parameters that a request lacks, and fields that are merged after encoding."""

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.ir.losses import Losses
from toolwire.ir.parts import Text
from toolwire.ir.request import Message, Params, ReasoningConfig, Request
from toolwire.net.model.endpoint import resolve
from toolwire.net.model.endpoint_request import EndpointRequest
from toolwire.net.model.endpoint_settings import NO_DEFAULTS, merge_body, parse_defaults
from toolwire.stream.strict import parse_object

USER = (Message("user", (Text("hi"),)),)


def sent(model, request, **options):
    endpoint = resolve(model, {}, key="k-12345678", **options)
    return parse_object(EndpointRequest(request, endpoint, stream=False, text=None, losses=Losses()).body)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("openai-chat/m", {"temperature": 0.2, "max_completion_tokens": 99, "reasoning_effort": "low"}),
        ("groq/m", {"temperature": 0.2, "max_tokens": 99, "reasoning_effort": "low"}),
        ("openai/m", {"temperature": 0.2, "max_output_tokens": 99, "reasoning": {"effort": "low"}}),
    ],
)
def test_defaults_are_used_where_the_request_has_no_value(model, expected):
    defaults = {"temperature": 0.2, "max_tokens": 99, "reasoning": {"effort": "low"}}
    body = sent(model, Request(messages=USER), defaults=defaults)
    assert {name: body[name] for name in expected} == expected
    own = Request(messages=USER, params=Params(temperature=1.0, max_tokens=5), reasoning=ReasoningConfig("off"))
    assert sent(model, own, defaults=defaults) == sent(model, own)


def test_defaults_change_nothing_that_is_set():
    defaults = parse_defaults({"temperature": 0.5})
    request = Request(params=Params(temperature=0.0))
    assert defaults.apply(request) is request
    assert NO_DEFAULTS.apply(Request()) == Request()
    assert parse_defaults({"reasoning": {"budget": 2000}}).reasoning == ReasoningConfig("budget", budget=2000)
    assert parse_defaults({"reasoning": {"effort": "none"}}).reasoning == ReasoningConfig("off")
    assert parse_defaults({"stop": ["x"]}).params == {"stop": ("x",)}


@pytest.mark.parametrize(
    ("defaults", "words"),
    [
        ({"temprature": 1}, "unknown parameter 'temprature' in defaults.*did you mean 'temperature'"),
        ({"messages": []}, "unknown parameter 'messages'"),
        ({"n": 2}, "unknown parameter 'n'"),
        ({"temperature": "hot"}, "defaults: .*temperature"),
        ({"max_tokens": 1.5}, "defaults: .*max_tokens"),
        ({"reasoning": {"efort": "low"}}, "defaults: .*efort"),
        ({"reasoning": {"effort": "low", "budget": 5}}, "both an effort and a budget"),
    ],
)
def test_invalid_defaults_are_rejected(defaults, words):
    with pytest.raises(ConfigError, match=words):
        parse_defaults(defaults)


def test_extra_body_is_merged_into_objects_and_replaces_other_values():
    body = {"a": {"b": 1, "c": [1]}, "temperature": 1.0}
    extra = {"a": {"c": [2], "d": {"e": 3}}, "temperature": 0.1, "provider": {"sort": "price"}}
    merged = merge_body(body, extra)
    assert merged == {"a": {"b": 1, "c": [2], "d": {"e": 3}}, "temperature": 0.1, "provider": {"sort": "price"}}
    assert body == {"a": {"b": 1, "c": [1]}, "temperature": 1.0}


def test_extra_body_reaches_the_request_after_encoding():
    extra = {"provider": {"order": ["a"]}, "max_tokens": 7}
    body = sent("openrouter/m", Request(messages=USER, params=Params(max_tokens=99)), extra_body=extra)
    assert (body["provider"], body["max_tokens"]) == ({"order": ["a"]}, 7)
    gemini = sent(
        "gemini/m", Request(messages=USER, params=Params(temperature=1.0)), extra_body={"generationConfig": {"topK": 3}}
    )
    assert gemini["generationConfig"] == {"temperature": 1.0, "topK": 3}


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("openai-chat/m", "messages"),
        ("openai/m", "input"),
        ("gemini/m", "contents"),
        ("openai/m", "tools"),
        ("openai/m", "model"),
        ("openai/m", "stream"),
        ("anthropic/m", "system"),
    ],
)
def test_extra_body_must_not_replace_the_request(model, field):
    with pytest.raises(ConfigError, match=f"extra_body must not set '{field}'"):
        resolve(model, {}, key="k", extra_body={field: []})
