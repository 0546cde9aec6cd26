"""`python -m toolwire.testing`: replies of the command line."""

import asyncio

import pytest

from toolwire import ModelClient
from toolwire.ir.errors import TruncatedStream
from toolwire.ir.response import UpstreamError
from toolwire.testing import Upstream
from toolwire.testing import __main__ as command
from waiting import SAFETY, until


def test_replies_are_given_in_a_cycle(capsys):
    async def scenario():
        serving = asyncio.create_task(command.serve(["429:7", "Hello", "cut"], port=0, delay=0.0))
        printed = []
        try:
            await until(lambda: printed.append(capsys.readouterr().out) or "".join(printed).endswith("\n"))
            url = "".join(printed).removeprefix("listening on ").strip()
            async with ModelClient("anthropic/any", base_url=url, key="k", retries=0) as client:
                for _ in range(2):
                    with pytest.raises(UpstreamError) as refused:
                        await client.ask("Hi")
                    assert (refused.value.fault.kind, refused.value.fault.retry_after) == ("rate_limit", 7.0)
                    assert (await client.ask("Hi")).text == "Hello"
                    with pytest.raises(TruncatedStream):
                        await client.ask("Hi")
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), SAFETY))
    assert capsys.readouterr().out.splitlines() == ["any: 429:7", "any: Hello", "any: cut"] * 2


def test_requests_are_not_kept_and_names_are_escaped(capsys, monkeypatch):
    started = []
    monkeypatch.setattr(
        command, "Upstream", lambda *script, **options: started.append(Upstream(*script, **options)) or started[0]
    )

    async def scenario():
        serving = asyncio.create_task(command.serve(["Hello"], port=0, delay=0.0))
        try:
            await until(lambda: "listening" in capsys.readouterr().out)
            (upstream,) = started
            async with ModelClient("openai-chat/\x1b[31mred", base_url=upstream.url, key="k", retries=0) as client:
                ids = [(await client.ask("Hi")).id for _ in range(3)]
            await until(lambda: not upstream.requests)
            assert len(set(ids)) == 3
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), SAFETY))
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 3
    assert "red: Hello" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize("option", ["--port=70000", "--port=-1", "--delay=-1", "--delay=nan", "--delay=inf"])
def test_number_outside_its_range_is_an_error(option, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main([option])
    name, _, number = option.partition("=")
    message = capsys.readouterr().err
    assert name in message
    assert f"got {number}" in message.replace("-1.0", "-1")


def test_taken_port_is_an_error(capsys):
    async def scenario():
        async with Upstream() as other:
            port = other.url.rpartition(":")[2]
            assert await asyncio.to_thread(command.main, ["--port", port]) == 2

    asyncio.run(asyncio.wait_for(scenario(), SAFETY))
    assert "cannot listen on port" in capsys.readouterr().err
