"""Every request that is sent passes the provider's documented constraints and the types of its SDK."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accepted_bodies import FIXED, MODELS, translated, violations
from canonical import distinct, requests
from combinations import for_every
from messy import BODIES
from sdk_validation import validate_request
from tables import every_case
from toolwire.bridge import mark_stable_prefix
from toolwire.ir import Message, Text
from toolwire.ir.text import to_bytes
from toolwire.stream.strict import parse_object
from toolwire.wire import get

ENDPOINTS = [(target, model) for target, models in MODELS.items() for model in models]


@every_case("failure", FIXED, ids=repr)
def test_fixed_defect_does_not_return(failure):
    body = translated(failure.source, failure.target, failure.model)
    assert body is None or failure.rule not in [one.rule for one in violations(body, failure.target, failure.model)]


def check(body, target, model):
    if body is not None:
        body = parse_object(to_bytes(body))
        assert violations(body, target, model) == []
        validate_request(target, body)


@given(request=requests())
@for_every(endpoint=ENDPOINTS)
def test_random_request_is_accepted(endpoint, request):
    check(translated(distinct(request), *endpoint), *endpoint)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("source", BODIES)
@pytest.mark.parametrize("target", MODELS)
def test_messy_history_is_accepted(source, target):
    if source == target:
        return

    @given(body=BODIES[source], model=st.sampled_from(MODELS[target]))
    def run(body, model):
        check(translated((source, body), target, model), target, model)

    run()


@given(request=requests())
@for_every(endpoint=ENDPOINTS)
def test_random_request_with_cache_marks_is_accepted(endpoint, request):
    long = Message("system", (Text("x" * 5000),))
    unmarked = replace(request, messages=(long, *(one for one in request.messages if not _has_mark(one))))
    check(translated(mark_stable_prefix(distinct(unmarked), get(endpoint[0])), *endpoint), *endpoint)


def _has_mark(message):
    return any(getattr(part, "cache", None) is not None for part in message.parts)
