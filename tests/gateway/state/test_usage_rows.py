"""Usage in SQLite and PostgreSQL: the same rows, the same sums, and the command that shows them."""

import asyncio
import json
import time

import msgspec
import pytest

from plain_http import Http
from serving import serving, upstream_rows
from toolwire.cli.main import main
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.keys import hash_key
from toolwire.gateway.state.opening import open_state
from toolwire.gateway.state.usage import UsageRow, open_usage
from toolwire.ir.errors import ConfigError, StoreError
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.response import Response, Stop, Usage
from toolwire.testing.upstream import Upstream

DAY = 86_400.0


@pytest.fixture(params=["sqlite", "postgres"])
def address(request, tmp_path):
    return str(tmp_path / "usage.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def store(address):
    opened = open_usage(address)
    yield opened
    opened.close()


def row(number, **fields):
    usual = UsageRow(str(number), 10 * DAY, "ann", "m", "u", "um", 200, None, 10, 5, 2, 1, False, 1, 0.5)
    return msgspec.structs.replace(usual, **fields)


def test_usage_is_summed_by_key_model_and_day(store):
    store.add(
        [
            row(1),
            row(2, key="bob", status=429, error="rate_limit", input=0, output=0),
            row(3, time=11.5 * DAY, model="n"),
        ]
    )
    by_key = {one.what: one for one in store.sums("key", 0.0)}
    assert (by_key["ann"].requests, by_key["ann"].errors, by_key["bob"].errors) == (2, 0, 1)
    assert (by_key["ann"].input, by_key["ann"].output, by_key["ann"].cached, by_key["ann"].reasoning) == (20, 10, 4, 2)
    assert (by_key["ann"].calls, by_key["ann"].seconds) == (2, 1.0)
    assert [(one.what, one.requests) for one in store.sums("model", 0.0)] == [("m", 2), ("n", 1)]
    assert [(one.what, one.requests) for one in store.sums("day", 0.0)] == [("1970-01-11", 2), ("1970-01-12", 1)]
    assert [one.what for one in store.sums("day", 11 * DAY)] == ["1970-01-12"]
    assert store.sums("key", 12 * DAY) == []


def test_duplicate_rows_are_counted_once(store):
    store.add([row(1), row(2)])
    store.add([row(2), row(3)])
    assert [one.requests for one in store.sums("key", 0.0)] == [3]


def test_unusual_model_names_are_stored(store):
    store.add([row(1, model="a\0b'; DROP TABLE toolwire_usage; --", input=2**40), row(2, model="\U0001f600")])
    assert len(store.sums("model", 0.0)) == 2


def test_batch_is_written_atomically(store):
    with pytest.raises(StoreError):
        store.add([row(1), row(2, status=None)])
    store.add([row(3)])
    assert [one.requests for one in store.sums("key", 0.0)] == [1]


def test_postgres_store_reconnects_after_a_crash(postgres_server, postgres_url):
    store = open_usage(postgres_url)
    store.add([row(1)])
    postgres_server.crash()
    with pytest.raises(StoreError, match="PostgreSQL"):
        store.add([row(2)])
    store.add([row(2)])
    assert [one.requests for one in store.sums("key", 0.0)] == [2]
    store.close()


@pytest.mark.parametrize("address", ["mysql://me:geheim@host/db", "", "postgresql://me:geheim@[host/db"])
def test_invalid_usage_address_is_rejected_without_its_secrets(address):
    with pytest.raises(ConfigError) as error:
        open_usage(address)
    assert "geheim" not in str(error.value)


def test_missing_folder_raises_store_error(tmp_path):
    with pytest.raises(StoreError, match="check that the folder exists"):
        open_usage(str(tmp_path / "nowhere" / "usage.db")).add([row(1)])


async def send_requests(address):
    """Three requests of two keys, one of them refused."""
    answer = Response(
        parts=(ToolCall("c", "f", {}),), stop=Stop("tool_calls"), usage=Usage(100, 50, cached=30, reasoning=20)
    )
    keys = {"ann": {"hash": hash_key("ann's")}, "bob": {"hash": hash_key("bob's"), "requests_per_minute": 1}}
    hello = Response(parts=(Text("hi"),), stop=Stop("stop"), usage=Usage(7, 3))
    async with Upstream(answer, hello) as upstream, Http() as http:
        document = {"upstreams": upstream_rows(upstream.url), "keys": keys, "state": {"usage": address}}
        state = open_state(parse_settings(document), {})
        async with serving(document, limiter=state.limiter, turn_store=state.turn_store, sinks=state.sinks) as gateway:
            for key in ("ann's", "bob's", "bob's", "nobody's"):
                body = {"model": "anthropic/m", "messages": [{"role": "user", "content": "x"}]}
                await http.post(f"{gateway.url}/v1/chat/completions", body, {"authorization": f"Bearer {key}"})
            await http.get(f"{gateway.url}/health")
        await state.aclose()


def _today():
    return time.strftime("%Y-%m-%d", time.gmtime())


def test_usage_command_shows_recorded_usage(address, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USAGE", address)
    (tmp_path / "toolwire.toml").write_text('[state]\nusage_env = "USAGE"\n')
    assert main(["serve", "usage"]) == 0
    assert capsys.readouterr().out == "no usage recorded\n"
    today = _today()
    asyncio.run(send_requests(address))
    assert main(["serve", "usage"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["key", "requests", "errors"]
    assert [line[:-1] for line in lines[2:]] == [
        ["ann", "1", "0", "100", "50", "30", "20", "1"],
        ["bob", "2", "1", "7", "3", "0", "0", "0"],
        ["total", "3", "1", "107", "53", "30", "20", "1"],
    ]
    assert main(["serve", "usage", "--by", "model", "--since", "24h", "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert (told["model"], told["requests"], told["input"]) == ("anthropic/m", 3, 107)
    assert main(["serve", "usage", "--by", "day", "--since", today, "--json"]) == 0
    days = [one["day"] for one in json.loads(capsys.readouterr().out)]
    assert set(days) <= {today, _today()} and days  # midnight may pass meanwhile
    assert main(["serve", "usage", "--since", "2999-01-01"]) == 0
    assert capsys.readouterr().out == "no usage recorded\n"


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("", [], "does not record usage"),
        ('[state]\nusage = "u.db"\n', ["--since", "yesterday"], "invalid time 'yesterday'"),
        ('[state]\nusage_env = "NOT_SET"\n', [], "NOT_SET is not set"),
        ('[state]\nusage = "u.db"\nusage_env = "X"\n', [], "remove one of them"),
    ],
)
def test_usage_command_reports_configuration_errors(tmp_path, capsys, monkeypatch, text, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolwire.toml").write_text(text)
    assert main(["serve", "usage", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"url": "mysql://x"}, "unsupported"),
        ({"url": "redis://x", "url_env": "X"}, "remove one of them"),
        ({"url_env": "X"}, "X is not set"),
        ({"strict": True}, "requires url"),
    ],
)
def test_invalid_state_settings_are_rejected(state, words):
    with pytest.raises(ConfigError, match=words):
        open_state(parse_settings({"state": state}), {})
