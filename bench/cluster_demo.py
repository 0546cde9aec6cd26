"""`make demo-cluster`: 50 payments on PostgreSQL, two gateways and three workers, while one process is killed every two seconds.

The model is a small HTTP server that calls the tool `pay` and then answers. Each gateway forwards to it, each worker uses
one of the gateways. Every payment is a row in PostgreSQL, so a second one would be counted.
"""

import argparse
import asyncio
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

RUNS, WORKERS, GATEWAYS, EVERY = 50, 3, 2, 2.0
SETTINGS = """\
[upstreams.house]
base_url = "http://127.0.0.1:{port}/v1"
wire = "openai_chat"

[models.clerk]
upstream = "house"
model = "clerk"
"""


class Clerk(BaseHTTPRequestHandler):
    """The model: it pays the invoice of the prompt, then says so."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(0.3)
        message = {"role": "assistant", "content": "Paid."}
        if not any(message["role"] == "tool" for message in request["messages"]):
            invoice = re.search(r"\d+", str(request["messages"][-1]["content"]))[0]
            function = {"name": "pay", "arguments": json.dumps({"invoice": int(invoice)})}
            message = {
                "role": "assistant",
                "tool_calls": [{"id": f"call_{invoice}", "type": "function", "function": function}],
            }
        reason = "tool_calls" if "tool_calls" in message else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "clerk", "choices": [choice]}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def work(url, gateway):
    """Execute runs of the agent `payments`, whose model is reached by a gateway."""
    import psycopg

    import toolwire
    from toolwire import Agent, ModelClient, Runner
    from toolwire.durable import DurableRuns, RunWorker

    @toolwire.tool(effect="write")
    async def pay(invoice: int) -> str:
        """Pay an invoice."""
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("INSERT INTO payments VALUES (%s)", [invoice])
        await asyncio.sleep(0.2)
        return f"paid invoice {invoice}"

    with DurableRuns(url) as runs:
        client = ModelClient("clerk", base_url=f"{gateway}/v1")
        payments = Agent(client, Runner(pay, store=runs.store, lease=5.0), name="payments")
        RunWorker(runs, [payments], heartbeat=5.0).run()


class Cluster:
    """The processes of the demo, which are started again after a kill."""

    def __init__(self, url, folder, clerk_port):
        settings = folder / "toolwire.toml"
        settings.write_text(SETTINGS.format(port=clerk_port))
        ports = [free_port() for _ in range(GATEWAYS)]
        self.commands, self.ports = {}, {}
        for number, port in enumerate(ports, 1):
            self.ports[f"gateway {number}"] = port
            serve = [sys.executable, "-m", "toolwire", "serve", "--config", str(settings), "--port", str(port)]
            self.commands[f"gateway {number}"] = serve
        for number in range(1, WORKERS + 1):
            gateway = f"http://127.0.0.1:{ports[number % GATEWAYS]}"
            self.commands[f"worker {number}"] = [sys.executable, __file__, "--work", url, gateway]
        self.processes, self.kills = {}, Counter()
        self._log = (folder / "log").open("wb")
        for name in self.commands:
            self.start(name)

    def start(self, name):
        self.processes[name] = subprocess.Popen(self.commands[name], stdout=self._log, stderr=self._log)

    def victims(self, runs):
        """Return the processes that work, and have another one of their kind that does.

        A process needs longer than two seconds to start on a busy machine, so without this rule none would ever work.
        """
        workers = [record.key for record in runs.store.records("running", 1000)]
        ready = [name for name in self.commands if self._is_ready(name, workers)]
        kinds = Counter(name.split()[0] for name in ready)
        return [name for name in ready if kinds[name.split()[0]] > 1]

    def _is_ready(self, name, workers):
        if name in self.ports:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.ports[name])) == 0
        return any(f"-{self.processes[name].pid}-" in key for key in workers)  # its heartbeat

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()
        self.kills[name] += 1
        self.start(name)

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        self._log.close()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def show(cluster, reports, seconds, last):
    """Print the table, over the former one on a terminal."""
    states = Counter(report.status for report in reports)
    rows = [f"{name:12} killed {cluster.kills[name]:2} times" for name in cluster.commands]
    states_line = "  ".join(f"{states[state]} {state}" for state in ("queued", "delayed", "running", "done", "failed"))
    lines = [f"{seconds:4.0f} s   {states_line}", *rows]
    if sys.stdout.isatty() and last:
        print(f"\033[{len(lines)}A", end="")
    elif not sys.stdout.isatty():
        lines = lines[:1]
    print("\n".join(f"{line:70}" for line in lines), flush=True)


def demo():
    import psycopg

    from stores.servers import Postgres
    from toolwire.durable import DurableRuns

    chance, server = random.Random(7), Postgres()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE payments (invoice int)")
    command = [sys.executable, __file__, "--model", str(port := free_port())]
    clerk = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # callers that are killed close their connections
    with tempfile.TemporaryDirectory() as folder, DurableRuns(server.url) as runs:
        for number in range(RUNS):
            runs.enqueue("payments", f"Pay invoice {number}", run_id=f"invoice-{number}")
        cluster, started, last = Cluster(server.url, Path(folder), port), time.monotonic(), False
        while True:
            time.sleep(EVERY)
            if victims := cluster.victims(runs):
                cluster.kill(chance.choice(victims))
            reports = runs.list(RUNS)
            show(cluster, reports, time.monotonic() - started, last)
            last = True
            if all(report.ended for report in reports):
                break
        cluster.stop()
    clerk.kill()
    clerk.wait()
    with psycopg.connect(server.url) as connection:
        paid = Counter(invoice for (invoice,) in connection.execute("SELECT invoice FROM payments"))
    server.stop()
    finished = sum(report.status == "done" for report in reports)
    twice = sum(count > 1 for count in paid.values())
    print(f"{len(paid)} payments were made, {RUNS - len(paid)} were interrupted before and reported as unknown")
    print(f"{finished} finished, {twice} twice")
    return 0 if finished == RUNS and twice == 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", nargs=2, metavar=("URL", "GATEWAY"), help=argparse.SUPPRESS)
    parser.add_argument("--model", type=int, metavar="PORT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(*arguments.work)
    elif arguments.model:
        ThreadingHTTPServer(("127.0.0.1", arguments.model), Clerk).serve_forever()
    else:
        sys.exit(demo())


if __name__ == "__main__":
    main()
