"""A gateway with four workers under load, for SECONDS (60) with CLIENTS (60): `make test-soak`.

Its Redis is killed and restarted empty, it reloads its settings, and at last it is stopped, all under load. Every answer
is its own question's, every signed turn comes back whole, whichever worker gets the next request, and each limit admits
exactly its number of requests: of all workers, with and without Redis. Requests that are refused because of overload are
repeated.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parent)]

from loaded import process  # noqa: E402
from questions import Load, ask_until_admitted, question  # noqa: E402
from soak_gateway import rows, while_stopping  # noqa: E402

from hostile import request_bytes  # noqa: E402
from stores.servers import Redis  # noqa: E402
from toolwire.gateway.keys import hash_key  # noqa: E402

WORKERS = 4
LIMIT = 100  # requests per minute
TURN_CLIENTS = 8
CANCELLED = "cancel "  # the server logs it at the end of the drain time
CREATED = "created "  # printed before the log begins: the file of a secret that signs reasoning
LIMITED = ("before", "away", "after")


def settings(fast: str, slow: str, redis: str) -> str:
    text = rows(fast, slow) + f"[state]\nurl = {json.dumps(redis)}\n"
    text += f'[keys.free]\nhash = "{hash_key("free")}"\n'
    for name in LIMITED:
        text += f'[keys.{name}]\nhash = "{hash_key(name)}"\nrequests_per_minute = {LIMIT}\n'
    return text


class Turns:
    """Clients that return the result of a call on another connection than the call came on."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.outcomes: Counter[str] = Counter()
        self.workers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._numbers = iter(range(500_000_000, 10**9))

    async def run(self, until: float) -> None:
        await asyncio.gather(*(self._client(until) for _ in range(TURN_CLIENTS)))

    async def _client(self, until: float) -> None:
        while time.monotonic() < until:
            token = f"token-{next(self._numbers):09}"
            history = [{"role": "user", "content": f"{token} signed "}]
            first = await self._ask(history)
            if first.status != 200:
                self.outcomes["failed"] += 1
                self.wrong.append(f"turn of {token}: {first.status} {first.body[:300]!r}")
                continue
            calls = json.loads(first.body)["choices"][0]["message"]["tool_calls"]
            history.append({"role": "assistant", "content": None, "tool_calls": calls})
            history.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": "rain"})
            second = await self._ask(history)
            found = "kept" if f"{token} kept".encode() in second.body else "lost"
            self.outcomes[found] += 1
            self.workers["same" if _worker(first) == _worker(second) else "other"] += 1
            if found == "lost":
                self.wrong.append(f"turn of {token}: {second.status} {second.body[:300]!r}")

    async def _ask(self, history):
        return await _send(self.port, {"model": "anthropic/m", "messages": history}, "free")


def _worker(answer) -> str:
    return answer.headers["x-request-id"][:16]


async def _send(port: int, document: object, key: str):
    body = json.dumps(document).encode()
    return await ask_until_admitted(
        port, request_bytes("/v1/chat/completions", body, {"authorization": f"Bearer {key}"})
    )


async def limited(port: int, key: str) -> list[str]:
    """Three times as many requests as the limit admits."""

    async def one(number: int) -> int:
        data, _ = question("openai_chat", "anthropic/m", "brief", number, stream=False, key=key)
        return (await ask_until_admitted(port, data)).status

    found = Counter(await asyncio.gather(*(one(number) for number in range(1, 3 * LIMIT + 1))))
    print(f"limit {key}: {dict(found)}")
    return [] if found == {200: LIMIT, 429: 2 * LIMIT} else [f"limit {key}: {dict(found)}"]


async def events(running, port: int, redis: Redis, seconds: float) -> list[str]:
    """Use up limits, reload the settings, kill Redis and restart it, while the load runs."""
    part = seconds / 8
    await asyncio.sleep(part)
    wrong = await limited(port, "before")
    running.send_signal(signal.SIGHUP)
    await asyncio.sleep(part)
    redis._process.kill()
    redis._process.wait()
    await asyncio.sleep(part)
    wrong += await limited(port, "away")
    running.send_signal(signal.SIGHUP)
    await asyncio.sleep(part)
    await asyncio.to_thread(redis.start)
    await asyncio.sleep(max(part, 2.5))  # the pause after a failure, and a request that ends it
    wrong += await limited(port, "after")
    return wrong


async def under_load(running, port: int, redis: Redis, clients: int, seconds: float) -> list[str]:
    load, turns = Load(port, "free", repeats=True), Turns(port)
    until = time.monotonic() + seconds
    happened, *_ = await asyncio.gather(
        events(running, port, redis, seconds), load.run(clients, seconds), turns.run(until)
    )
    print(f"{sum(load.outcomes.values())} requests in {seconds:g} s, {clients} clients, {WORKERS} workers")
    for name, count in sorted(load.outcomes.items()):
        print(f"  {count:7} {name}")
    print(f"turns: {dict(turns.outcomes)}; the next request went to: {dict(turns.workers)}")
    wrong = [*happened, *load.wrong, *turns.wrong]
    if not turns.workers["other"]:
        wrong.append("no turn was continued by another worker")
    return wrong


async def main() -> int:
    clients, seconds = int(os.environ.get("CLIENTS", "60")), float(os.environ.get("SECONDS", "60"))
    redis = Redis(keeps=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            provider = str(HERE / "provider.py")
            file = Path(folder) / "toolwire.toml"
            async with process(provider, "0") as (_, fast), process(provider, "0.15") as (_, slow):
                file.write_text(settings(fast, slow, redis.url), encoding="utf-8")
                command = ["-m", "toolwire", "serve", "--quiet", "--config", str(file), "--port", "0"]
                async with process(*command, "--workers", str(WORKERS), log=Path(folder, "errors")) as (
                    running,
                    banner,
                ):
                    found = re.search(r"http://[\d.]+:(\d+)", banner)
                    assert found is not None, banner
                    wrong = await under_load(running, int(found[1]), redis, clients, seconds)
                    wrong += await while_stopping(running, int(found[1]), key="free")
            lines = (Path(folder) / "errors").read_text().splitlines()
    finally:
        redis.stop()
    wrong += [
        f"not a line of the log: {line[:300]}" for line in lines if not line.startswith(('{"ts"', CANCELLED, CREATED))
    ]
    log = [json.loads(line) for line in lines if line.startswith('{"ts"')]
    messages = Counter(line["message"] for line in log if line["event"] == "log")
    for message, count in messages.items():
        print(f"log, {count} times: {message}")
    wrong += [f"log: {line}" for line in log if line["event"] == "log" and "traceback" in line]
    for line in wrong[:20]:
        print("WRONG", line)
    print("wrong:", len(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
