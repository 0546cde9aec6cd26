"""Which targets, in which order."""

from collections import Counter
from random import Random

import pytest

from toolwire.gateway import routing
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.routing.health import HealthTable
from toolwire.gateway.routing.router import NoTarget, Router, UnknownModel
from toolwire.gateway.routing.upstreams import ConfiguredUpstream
from toolwire.ir.response import Fault
from toolwire.net.model.pass_through import replace_model
from toolwire.stream.strict import parse_object

FAILURE = Fault("server", "failed", 500)
UPSTREAMS = {name: {"base_url": "http://localhost"} for name in ("a", "b")}


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def router(models, clock=None, cooldown=10.0):
    settings = parse_settings({"upstreams": UPSTREAMS, "models": models})
    upstreams = {name: ConfiguredUpstream(name, row, None, {}) for name, row in settings.upstreams.items()}
    health = HealthTable(clock or Clock(), Random(1))
    return Router(upstreams, settings.models, cooldown=cooldown, health=health, random=Random(1))


def labels(found, model, *, tools=False):
    return [target.label for target in found.plan(model, tools=tools)]


def test_model_names_are_resolved_to_routes():
    found = router(
        {
            "gpt": {"upstream": "a", "model": "gpt-x"},
            "claude-*": {"upstream": "b"},
            "claude-haiku-*": {"upstream": "a", "model": "h"},
        }
    )
    assert labels(found, "gpt") == ["a/gpt-x"]
    assert labels(found, "claude-9") == ["b/claude-9"]  # by its own name
    assert labels(found, "claude-haiku-9") == ["a/h"]  # the longer pattern
    assert labels(found, "a/anything/else") == ["a/anything/else"]
    assert labels(found, "a:anything") == ["a/anything"]
    assert labels(found, "a/llama:8b") == ["a/llama:8b"]  # the colon is the model's own
    assert labels(found, "a:org/llama:8b") == ["a/org/llama:8b"]
    assert found.names == ["gpt"]


def test_name_with_a_tag_is_not_a_model_of_an_upstream_that_shares_its_family(monkeypatch):
    monkeypatch.setitem(UPSTREAMS, "mistral", {"base_url": "http://localhost"})
    found = router({"a/mistral:7b": {"upstream": "a", "model": "mistral:7b"}})
    for model in ("mistral:7b", "mistral:latest", "Mistral:7b"):
        with pytest.raises(UnknownModel):
            found.plan(model, tools=False)
    assert labels(found, "a:mistral:7b") == ["a/mistral:7b"]
    assert [labels(found, model) for model in ("mistral/7b", "mistral:large")] == [["mistral/7b"], ["mistral/large"]]
    assert labels(found, "a:v2") == ["a/v2"]
    assert labels(router({"mistral/7b": {"upstream": "a", "model": "m"}}), "mistral:7b") == ["a/m"]  # a row is explicit


def test_wildcard_of_the_target_is_the_text_that_the_pattern_matches():
    found = router({"claude/*": {"upstream": "a", "model": "claude-*"}, "*-v2": {"upstream": "b", "model": "*"}})
    assert labels(found, "claude/sonnet-5") == ["a/claude-sonnet-5"]
    assert labels(found, "gpt-v2") == ["b/gpt"]


@pytest.mark.parametrize("model", ["gtp", "c/x", "a/", "/", "", "A/x", "../a/x", "x" * 100_000])
def test_unknown_model_raises_with_a_suggestion(model):
    known = router({"gpt": {"upstream": "a"}})
    with pytest.raises(UnknownModel) as caught:
        known.plan(model, tools=False)
    assert caught.value.status == 404
    assert len(str(caught.value)) < 500
    hint = known.describe_models(caught.value.model, lambda _: True)
    assert ("did you mean 'gpt'?" in hint) == (model == "gtp")
    assert hint.endswith("available models: gpt; write UPSTREAM/MODEL, with an upstream of a, b")
    assert known.describe_models(caught.value.model, lambda name: name == "gpt").endswith("available models: gpt")
    assert known.describe_models(caught.value.model, lambda _: False) == ""


def test_fallbacks_come_after_all_targets():
    found = router(
        {
            "m": {"targets": [{"upstream": "a", "model": "1"}, {"upstream": "b", "model": "2"}], "fallbacks": ["n"]},
            "n": {"upstream": "a", "model": "3"},
        }
    )
    for _ in range(20):
        plan = labels(found, "m")
        assert sorted(plan[:2]) == ["a/1", "b/2"] and plan[2] == "a/3"


def test_targets_are_chosen_by_weight():
    targets = [{"upstream": "a", "model": "1", "weight": 9}, {"upstream": "b", "model": "2", "weight": 1}]
    found = router({"m": {"targets": targets}})
    first = Counter(labels(found, "m")[0] for _ in range(1000))
    assert 850 < first["a/1"] < 950


def test_failed_target_is_tried_last_until_its_cooldown_ends():
    clock = Clock()
    found = router(
        {"m": {"upstream": "a", "model": "1", "fallbacks": ["n"]}, "n": {"upstream": "b", "model": "2"}}, clock
    )
    first, _ = found.plan("m", tools=False)
    found.fail(first, clock.now, FAILURE)
    assert labels(found, "m") == ["b/2", "a/1"]
    clock.now += 9.9
    assert labels(found, "m") == ["b/2", "a/1"]
    clock.now += 1.2
    assert labels(found, "m") == ["a/1", "b/2"]
    found.fail(first, clock.now, Fault("rate_limit", "later", 429, retry_after=50.0))  # it said for how long
    clock.now += 30
    assert labels(found, "m") == ["b/2", "a/1"]
    found.succeed(first, clock.now)
    assert labels(found, "m") == ["a/1", "b/2"]


def test_failing_target_is_planned_when_no_other_is_left():
    clock = Clock()
    found = router({"m": {"upstream": "a", "model": "1"}}, clock)
    found.fail(found.plan("m", tools=False)[0], clock.now, FAILURE)
    assert labels(found, "m") == ["a/1"]


def test_health_outlives_a_reload():
    clock = Clock()
    rows = {"m": {"upstream": "a", "model": "1", "fallbacks": ["n"]}, "n": {"upstream": "b", "model": "2"}}
    found = router(rows, clock)
    found.fail(found.plan("m", tools=False)[0], clock.now, FAILURE)
    settings = parse_settings({"upstreams": UPSTREAMS, "models": rows})
    upstreams = {name: ConfiguredUpstream(name, row, None, {}) for name, row in settings.upstreams.items()}
    assert labels(Router(upstreams, settings.models, cooldown=5.0, health=found._health), "m") == ["b/2", "a/1"]


@pytest.mark.finding("OP2")
def test_time_for_the_first_event_is_the_models_or_the_upstreams_or_longer_for_reasoning_models():
    rows = {
        "m": {"upstream": "a", "model": "gpt-4o"},
        "r": {"upstream": "a", "capabilities": {"efforts": ["low", "high"]}},
        "s": {"upstream": "a", "capabilities": {"efforts": ["low", "high"]}, "first_event": 7.0},
    }
    found = router(rows)
    assert [found.plan(model, tools=False)[0].first_event for model in "mrs"] == [30.0, 300.0, 7.0]


def test_requests_with_tools_go_only_to_targets_that_accept_tools():
    found = router(
        {
            "m": {"upstream": "a", "model": "1", "tools": False, "fallbacks": ["n"]},
            "n": {"upstream": "b", "model": "2"},
            "o": {"upstream": "a", "model": "1", "tools": False},
        }
    )
    assert labels(found, "m") == ["a/1", "b/2"]
    assert labels(found, "m", tools=True) == ["b/2"]
    with pytest.raises(NoTarget, match="accepts no tools"):
        found.plan("o", tools=True)


@pytest.mark.parametrize("fails", [True, False])
def test_number_of_remembered_targets_is_bounded(fails, monkeypatch):
    """Clients may ask for any number of names."""
    monkeypatch.setattr(routing.health, "MAX_COOLDOWNS", 100)
    monkeypatch.setattr(routing.router, "_MAX_REMEMBERED", 100)
    clock = Clock()
    found = router({}, clock)
    for number in range(130):
        target = found.plan(f"a/{number}", tools=False)[0]
        if fails:
            found.fail(target, clock.now, FAILURE)
        clock.now += 1
    assert len(found._health) <= 110


BODIES = [
    (b'{"model":"m","messages":[]}', b'{"model":"new/\\"x","messages":[]}'),
    (b'{ "stream" : true, "n": 1, "x": null,\n"model" : "m" , "messages":[]}', None),
    (b'{"messages":[{"model":"m"}],"model":"m"}', None),
    (b'{"a":"model","model":"m"}', None),
    (b'{"a":"\\"model\\":\\"m\\"","model":"m"}', None),
    (b'{"model":"\\u006d","x":1}', None),
    (b'{"\\u006dodel":"m","x":1}', None),
    (b'{"x":{"model":"m"},"model":"m"}', None),
    (b'{"model\\n":"no","model":"m"}', None),
]


@pytest.mark.parametrize(("body", "expected"), BODIES)
def test_only_the_model_field_is_replaced(body, expected):
    document = parse_object(body)
    out = replace_model(body, document, 'new/"x')
    assert parse_object(out) == {**document, "model": 'new/"x'}
    if expected is not None:
        assert out == expected


def test_same_model_returns_the_same_bytes():
    body = b' {"model" : "m", "x": 1.0e2}'
    assert replace_model(body, parse_object(body), "m") is body
    assert replace_model(b'{"contents":[]}', {"contents": []}, "m") == b'{"contents":[]}'
