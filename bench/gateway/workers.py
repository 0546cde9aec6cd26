"""Measure the CPU time per request of one worker and of two, with the same settings.

    python bench/gateway/workers.py              the state in a SQLite file
    python bench/gateway/workers.py redis://…    in Redis, or postgresql://…

All gateways run at the same time, and many short rounds are interleaved; the median of each counts. Keys, limits, routing
and metrics are on. `no state` is one process without `[state]`, whose limits and turns are in its memory. The load has
calls in its history, so every request also looks for stored turns.
"""

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from candidates import KEY, UPSTREAM
from closed_loop import load
from server_process import cpu_of
from workload import body_of

from toolwire.gateway.keys import hash_key

HERE = Path(__file__).parent
ROUNDS = 15
REQUESTS = 400  # of each worker
CONNECTIONS = 20  # of each worker
SETTINGS = """
[upstreams]
chat = {{ base_url = "http://127.0.0.1:{upstream}", wire = "openai_chat" }}
claude = {{ base_url = "http://127.0.0.1:{upstream}", wire = "anthropic" }}
[models]
same = {{ upstream = "chat", model = "m" }}
cross = {{ upstream = "claude", model = "m" }}
[log]
to = "nowhere"
[keys.bench]
hash = "{hash}"
requests_per_minute = 100000000
"""


class Gateway:
    """`toolwire serve` as a process; `figures` has the CPU times per request, in microseconds, by model."""

    def __init__(self, name: str, workers: int, state: str | None, folder: Path, upstream: int) -> None:
        self.name = name
        self.workers = workers
        self.figures: dict[str, list[float]] = {"same": [], "cross": []}
        file = folder / f"{name.replace(' ', '-')}.toml"
        text = SETTINGS.format(upstream=upstream, hash=hash_key(KEY))
        file.write_text(text + (f'[state]\nurl = "{state}"\n' if state else ""), encoding="utf-8")
        command = [sys.executable, "-m", "toolwire", "serve", "--quiet", "--config", str(file), "--port", "0"]
        command += ["--workers", str(workers)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://[\d.]+:(\d+)", self.process.stdout.readline())
        assert found is not None, f"{name} did not start"
        self.port = int(found[1])

    def measure(self, model: str) -> None:
        before = cpu_of(self.process.pid)
        headers = {"authorization": f"Bearer {KEY}"}
        loaded = asyncio.run(
            load(
                self.port,
                "/v1/chat/completions",
                body_of(model),
                requests=REQUESTS * self.workers,
                at_once=CONNECTIONS * self.workers,
                headers=headers,
            )
        )
        assert loaded.failed == 0, f"{self.name}: {loaded.failed} requests failed"
        self.figures[model].append((cpu_of(self.process.pid) - before) / loaded.done)

    def typical(self, model: str) -> float:
        """Return the median without the first round, which opens connections and fills caches."""
        return median(self.figures[model][1:])


def main(state: str | None) -> None:
    provider = subprocess.Popen([sys.executable, HERE / "provider.py", str(UPSTREAM + 100)], stdout=subprocess.PIPE)
    assert provider.stdout is not None
    provider.stdout.readline()
    with tempfile.TemporaryDirectory() as folder:
        address = state or str(Path(folder) / "state.db")
        gateways = [
            Gateway(name, workers, used, Path(folder), UPSTREAM + 100)
            for name, workers, used in (("no state", 1, None), ("one worker", 1, address), ("two workers", 2, address))
        ]
        try:
            for _ in range(ROUNDS):
                for model in ("same", "cross"):
                    for gateway in gateways:
                        gateway.measure(model)
        finally:
            for gateway in gateways:
                gateway.process.terminate()
                gateway.process.wait()
            provider.kill()
            provider.wait()
    _, one, two = gateways
    print(f"{'CPU per request, µs':20} {'same wire':>10} {'cross':>10}")
    for gateway in gateways:
        print(f"{gateway.name:20} {gateway.typical('same'):10.0f} {gateway.typical('cross'):10.0f}")
    ratios = [median(_ratios(two.figures[model], one.figures[model])) for model in ("same", "cross")]
    print(f"{'two / one':20} {ratios[0]:10.2f} {ratios[1]:10.2f}")


def _ratios(figures: list[float], others: list[float]) -> list[float]:
    """Return the ratio of each round, because the speed of a shared machine changes from round to round."""
    return [figure / other for figure, other in zip(figures[1:], others[1:], strict=True)]


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
