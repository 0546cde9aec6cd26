"""Upstreams that hang, fail or demand a wait, over real sockets and on a virtual clock: counts and order, no times."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from types import SimpleNamespace

import pytest

from hostile import REQUEST, TEXT_ANSWER, body_of, decode_answer, path_of, post
from serving import serving
from toolwire import Response
from toolwire.gateway import app
from toolwire.gateway.faults import network_fault_of
from toolwire.gateway.observe.metrics import Metrics
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Fault
from toolwire.testing import PartialReply, Upstream
from virtual_time import in_virtual_time

SILENT = PartialReply(Response(), None, "stall")
FAILURE = Fault("server", "failed", 500)


@pytest.fixture(autouse=True)
def gateway_uses_the_clock_of_the_loop(monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time(), time=time.time)
    monkeypatch.setattr(app, "time", clock)


def settings_for(*upstreams, limits=None, **row):
    """`m`, at the upstreams in this order."""
    usual = {"wire": "openai_chat", "retries": 0, **row}
    names = "abcd"[: len(upstreams)]
    models = {name: {"upstream": name, "model": "m"} for name in names[1:]}
    return {
        "upstreams": {
            name: {"base_url": upstream.url, **usual} for name, upstream in zip(names, upstreams, strict=True)
        },
        "models": {"m": {"upstream": "a", "fallbacks": list(names[1:])}, **models},
        "limits": limits or {},
    }


async def ask(gateway, *, stream=False, within=None):
    async with asyncio.timeout(within):
        return await post(
            gateway, path_of("openai_chat", "m", stream=stream), body_of("openai_chat", REQUEST, "m", stream=stream)
        )


def text_of(answer, *, stream=False):
    return decode_answer(answer, "openai_chat", stream=stream).text


def states(gateway):
    return gateway.gateway._health.states()


@pytest.mark.finding("OP2")
@pytest.mark.parametrize("stream", [True, False])
@in_virtual_time
async def test_hanging_upstream_is_left_with_the_default_settings(stream):
    async with (
        Upstream(*[SILENT] * 9, answers_probes=False) as first,
        Upstream(*[TEXT_ANSWER] * 9) as second,
        serving(settings_for(first, second)) as gateway,
    ):
        answers = await asyncio.gather(*(ask(gateway, stream=stream, within=40.0) for _ in range(4)))
        assert [text_of(answer, stream=stream) for answer in answers] == [TEXT_ANSWER.text] * 4
        assert text_of(await ask(gateway, stream=stream), stream=stream) == TEXT_ANSWER.text
    assert (len(first.requests), len(second.requests)) == (4, 5)


@pytest.mark.finding("OP2")
@in_virtual_time
async def test_slow_whole_answer_is_never_repeated():
    """An upstream that answers probes needs many times the silence after which it would count as hanging."""
    async with (
        Upstream(*[TEXT_ANSWER] * 3, delay=20.0, answers_probes=True) as first,
        Upstream(TEXT_ANSWER) as second,
        serving(settings_for(first, second, first_event=2.0)) as gateway,
    ):
        answers = await asyncio.gather(*(ask(gateway) for _ in range(3)))
        assert [text_of(answer) for answer in answers] == [TEXT_ANSWER.text] * 3
    assert (len(first.requests), len(second.requests)) == (3, 0)
    assert 5 <= first.probes <= 10  # one in each silence of 2 seconds


@pytest.mark.finding("OP2")
@in_virtual_time
async def test_stream_without_a_first_event_goes_to_the_next_target_although_probes_are_answered():
    async with (
        Upstream(SILENT, answers_probes=True) as first,
        Upstream(TEXT_ANSWER) as second,
        serving(settings_for(first, second, first_event=5.0)) as gateway,
    ):
        assert text_of(await ask(gateway, stream=True), stream=True) == TEXT_ANSWER.text
    assert [turn.failures for turn in gateway.turns] == [(("a", "timeout"),)]


@pytest.mark.finding("OP2")
@in_virtual_time
async def test_stuck_model_gets_single_requests_although_its_server_answers_probes():
    async with (
        Upstream(*[SILENT] * 99, answers_probes=True) as first,
        Upstream(*[TEXT_ANSWER] * 99) as second,
        serving(settings_for(first, second)) as gateway,
    ):
        for _ in range(6):  # each takes longer than a cooldown
            await asyncio.gather(*(ask(gateway, stream=True) for _ in range(10)))
            await asyncio.sleep(12.0)
            assert set(states(gateway)) == {"a/m"}
    assert 10 < len(first.requests) <= 10 + 5
    assert len(second.requests) == 60


@pytest.mark.finding("OP2")
@in_virtual_time
async def test_target_returns_after_a_probe_that_cannot_be_sent(monkeypatch):
    async def fail_to_probe(seconds):
        raise ConfigError("cannot read the client certificate")

    async with (
        Upstream(SILENT, *[TEXT_ANSWER] * 9, answers_probes=True) as first,
        Upstream(*[TEXT_ANSWER] * 9) as second,
        serving(settings_for(first, second, first_event=5.0)) as gateway,
    ):
        upstream = gateway.gateway._router.find_upstream("a")
        monkeypatch.setattr(upstream, "is_answering", fail_to_probe)
        await ask(gateway, stream=True)
        monkeypatch.undo()
        for _ in range(4):
            await asyncio.sleep(12.0)
            await ask(gateway, stream=True)
        assert states(gateway) == {}
    assert len(first.requests) >= 3


@pytest.mark.finding("OP2")
@in_virtual_time
async def test_only_target_has_no_time_for_the_first_event():
    async with (
        Upstream(PartialReply(TEXT_ANSWER, 1, "stall"), answers_probes=False) as provider,
        serving(settings_for(provider, first_event=1.0, idle=60.0)) as gateway,
    ):
        with pytest.raises(TimeoutError):
            await ask(gateway, stream=True, within=50.0)
    assert (len(provider.requests), provider.probes) == (1, 0)


@pytest.mark.finding("OP2")
@pytest.mark.parametrize("stream", [True, False])
@in_virtual_time
async def test_clients_that_leave_a_hanging_upstream_make_it_fail_over(stream):
    """Clients with a timeout below the gateway's: each of them would leave before the first-event timeout."""
    async with (
        Upstream(*[SILENT] * 99, answers_probes=False) as first,
        Upstream(*[TEXT_ANSWER] * 99) as second,
        serving(settings_for(first, second)) as gateway,
    ):
        lost = 0
        for _ in range(10):
            try:
                answer = await ask(gateway, stream=stream, within=8.0)
                assert text_of(answer, stream=stream) == TEXT_ANSWER.text
            except TimeoutError:
                lost += 1
        assert lost <= 4
        assert len(second.requests) >= 6


@pytest.mark.finding("OP2")
@in_virtual_time
async def test_impatient_client_does_not_take_a_healthy_upstream_from_others():
    async with (
        Upstream(*[SILENT] * 40, answers_probes=True) as first,
        Upstream(*[TEXT_ANSWER] * 99) as second,
        serving(settings_for(first, second)) as gateway,
    ):
        for _ in range(12):
            with pytest.raises(TimeoutError):
                await ask(gateway, within=5.0)
        assert states(gateway) == {}
        assert not second.requests


@pytest.mark.finding("OP5")
@in_virtual_time
async def test_outage_of_all_upstreams_is_not_multiplied():
    async with (
        Upstream(*[FAILURE] * 999) as first,
        Upstream(*[FAILURE] * 999) as second,
        serving(settings_for(first, second, retries=2)) as gateway,
    ):
        answers = [await ask(gateway) for _ in range(60)]
        sent = len(first.requests) + len(second.requests)
    assert {answer.status for answer in answers} == {502, 503}
    refused = [answer for answer in answers if answer.status == 503]
    assert refused and all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert sent <= 60 * 1.25


@pytest.mark.finding("OP5")
@in_virtual_time
async def test_only_target_that_fails_is_refused_at_once_and_used_again_when_it_works():
    async with (
        Upstream(*[FAILURE] * 5, *[TEXT_ANSWER] * 99) as provider,
        serving(settings_for(provider)) as gateway,
    ):
        statuses = [(await ask(gateway)).status for _ in range(20)]
        assert statuses == [502] * 5 + [503] * 15
        await asyncio.sleep(1.1)
        assert [(await ask(gateway)).status for _ in range(3)] == [200] * 3
    assert len(provider.requests) == 8


@pytest.mark.finding("OP5")
@pytest.mark.parametrize(
    ("fault", "status"), [(Fault("not_found", "no file", 404), 404), (Fault("authentication", "no", 401), 502)]
)
@in_virtual_time
async def test_client_cannot_take_the_only_target_from_others_by_requests_that_are_refused(fault, status):
    async with Upstream(*[fault] * 9, TEXT_ANSWER) as provider, serving(settings_for(provider)) as gateway:
        assert [(await ask(gateway)).status for _ in range(9)] == [status] * 9
        assert (await ask(gateway)).status == 200


@pytest.mark.finding("OP6")
@pytest.mark.parametrize("stream", [True, False])
@in_virtual_time
async def test_long_retry_after_is_passed_on_with_its_status(stream):
    wait = Fault("rate_limit", "later", 429, retry_after=12.0)
    async with (
        Upstream(wait, TEXT_ANSWER) as provider,
        serving(settings_for(provider, retries=2, limits={"ping": 0.1})) as gateway,
    ):
        started_at = asyncio.get_running_loop().time()
        answer = await ask(gateway, stream=stream)
        assert asyncio.get_running_loop().time() - started_at < 2.0  # of the virtual clock
    assert (answer.status, answer.headers["retry-after"]) == (429, "12")
    assert len(provider.requests) == 1


@pytest.mark.finding("OP6")
@in_virtual_time
async def test_wait_before_a_retry_does_not_turn_the_status_of_a_stream_into_200():
    wait = Fault("rate_limit", "later", 429, retry_after=1.5)
    async with (
        Upstream(wait, wait, wait) as provider,
        serving(settings_for(provider, retries=2, limits={"ping": 0.2})) as gateway,
    ):
        answer = await ask(gateway, stream=True)
    assert (answer.status, len(provider.requests)) == (429, 3)


@pytest.mark.finding("OP9")
@in_virtual_time
async def test_upstream_that_demands_an_hour_is_used_again_after_a_minute():
    wait = Fault("rate_limit", "later", 429, retry_after=3600.0)
    async with (
        Upstream(wait, TEXT_ANSWER) as first,
        Upstream(*[TEXT_ANSWER] * 9) as second,
        serving(settings_for(first, second)) as gateway,
    ):
        await ask(gateway)
        await asyncio.sleep(50)
        await ask(gateway)
        assert (len(first.requests), len(second.requests)) == (1, 2)
        await asyncio.sleep(20)
        await ask(gateway)
        assert (len(first.requests), len(second.requests)) == (2, 2)


@pytest.mark.finding("OP10")
@in_virtual_time
async def test_one_request_reaches_a_failing_upstream_when_its_cooldown_ends():
    async with (
        Upstream(*[FAILURE] * 99) as first,
        Upstream(*[TEXT_ANSWER] * 999) as second,
        serving(settings_for(first, second)) as gateway,
    ):
        await ask(gateway)
        await asyncio.sleep(11.5)
        answers = await asyncio.gather(*(ask(gateway) for _ in range(80)))
    assert {answer.status for answer in answers} == {200}
    assert len(first.requests) == 2


@in_virtual_time
async def test_changes_of_a_state_are_logged_once(caplog):
    caplog.set_level(logging.INFO, "toolwire.gateway")
    async with (
        Upstream(FAILURE, *[TEXT_ANSWER] * 9) as first,
        Upstream(*[TEXT_ANSWER] * 9) as second,
        serving(settings_for(first, second)) as gateway,
    ):
        await ask(gateway)
        assert states(gateway) == {"a/m": "cooling"}
        await ask(gateway)
        await asyncio.sleep(11.5)
        await ask(gateway)
        assert states(gateway) == {}
    assert [record.getMessage() for record in caplog.records if "target" in record.getMessage()] == [
        "target a/m: cooling after closed (server)",
        "target a/m: closed after half-open",
    ]


def test_answer_about_a_refused_connection_has_no_address(caplog):
    error = ConnectionRefusedError("refused by 10.0.0.7")
    for origin in ("https://models.internal:8443", "http://10.0.0.7:11434", "http://localhost.internal", ""):
        assert network_fault_of(error, "up", origin).message == "no connection to the upstream up"
    for origin in ("http://localhost:11434", "http://127.0.0.1:11434", "http://[::1]:11434"):
        message = "no connection to the upstream up (check that its server runs on the gateway's machine)"
        assert network_fault_of(error, "up", origin).message == message
        assert f"upstream up: {origin}: refused" in caplog.text


@pytest.mark.anyio
async def test_client_is_told_that_a_local_server_does_not_run():
    with socket.socket() as unused:  # bound, but it does not listen
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with serving(settings_for(SimpleNamespace(url=f"{url}/v1"))) as gateway:
            answer = await ask(gateway)
    assert answer.status == 502
    assert "the upstream a (check that its server runs on the gateway's machine)" in answer.body.decode()


@in_virtual_time
async def test_metrics_have_the_states_the_probes_and_the_refused_retries():
    metrics = Metrics()
    async with (
        Upstream(*[FAILURE] * 99, answers_probes=False) as first,
        Upstream(*[SILENT] * 9, answers_probes=False) as second,
        Upstream(*[TEXT_ANSWER] * 99) as third,
        serving(settings_for(first, second, third), sinks=[metrics]) as gateway,
    ):
        await ask(gateway)
        page = metrics.page().decode()
        gateway.gateway._health._budgets["a"].refused = 4
        worker = Metrics()
        worker.merge(metrics.snapshot())
        worker.add_current(metrics.snapshot())
    for line in (
        'toolwire_upstream_state{state="cooling",target="a/m"} 1.0',
        'toolwire_upstream_state{state="open",target="b/m"} 1.0',
        'toolwire_upstream_probes_total{outcome="unanswered",upstream="b"} 1.0',
    ):
        assert line in page and line in worker.page().decode()
    assert 'toolwire_upstream_retries_refused_total{upstream="a"} 4.0' in worker.page().decode()
