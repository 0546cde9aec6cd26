"""A call of the gateway's own tools that needs approval: the model reads that it waits, the next identical call runs once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

import toolwire
from serving import serving, upstream_rows
from toolwire import Response, Runner, Text, ToolCall, ToolResult, open_store
from toolwire.cli.main import main
from toolwire.cli.serve.tools import ToolLoader
from toolwire.gateway import parse_settings
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Stop
from toolwire.net import StoredApprovals
from toolwire.run import Policy
from toolwire.testing import Upstream

CALL = Response(parts=(ToolCall("s1", "pay", {"amount": 5}),), stop=Stop("tool_calls"))
FINAL = Response(parts=(Text("Done."),), stop=Stop("stop"))


async def ask(url: str) -> str | None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": "Pay 5."}]
        answer = await client.chat.completions.create(model="openai_chat/m", messages=messages)
        return answer.choices[0].message.content


def result_texts(heard: list[Any]) -> list[str]:
    return [
        part.text
        for one in heard
        for message in one.request.messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


@pytest.mark.finding("X7")
def test_call_of_a_gateway_tool_waits_and_runs_once_after_its_approval(tmp_path: Path, capsys: Any) -> None:
    paid: list[int] = []

    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return f"paid {amount}"

    file = str(tmp_path / "runs.db")
    store = open_store(file)
    policy = Policy(approve=("write",))

    async def check() -> None:
        runner = Runner(pay, store=store, policy=policy, approve=StoredApprovals(store.runs))
        async with Upstream(*[CALL, FINAL] * 3) as upstream:
            async with serving({"upstreams": upstream_rows(upstream.url)}, runners={"*": runner}) as gateway:
                assert await ask(gateway.url) == "Done."
                (waiting,) = store.runs.list("waiting")
                assert paid == []
                assert await asyncio.to_thread(main, ["runs", "approve", waiting.run_id, "s1", "--store", file]) == 0
                assert "repeats the call" in capsys.readouterr().out
                assert await ask(gateway.url) == "Done."
                assert paid == [5]
                assert await ask(gateway.url) == "Done."
                assert paid == [5], "the approval is used up"
            first, second, third = result_texts(upstream.requests)
        assert f"waits for approval: pay is a write tool. It is not finished. Its id is {waiting.run_id}." in first
        assert second == "paid 5"
        assert "waits for approval" in third
        runner.close()

    asyncio.run(check())
    store.close()


def test_settings_name_the_effects_that_need_approval(tmp_path: Path) -> None:
    tools = tmp_path / "pay_tools.py"
    tools.write_text('def pay(amount: int) -> str:\n    """Pay."""\n    return \'paid\'\n')
    row = {"files": [str(tools)], "approve": ["write"]}

    async def load(row: dict[str, Any]) -> str:
        loader = ToolLoader(())
        opened = await loader.prepare(parse_settings({"tools": {"*": row}}))
        (open_row,) = opened.rows.values()
        (result,) = await open_row.runner.run([CALL.calls[0]])
        await loader.abandon(opened)
        return result.text

    assert "waits for approval" in asyncio.run(load({**row, "store": str(tmp_path / "runs.db")}))
    with pytest.raises(ConfigError, match="needs a store"):
        asyncio.run(load(row))
    with pytest.raises(ConfigError, match="approve"):
        asyncio.run(load({**row, "approve": ["everything"], "store": str(tmp_path / "runs.db")}))
