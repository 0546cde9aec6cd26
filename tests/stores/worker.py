"""What the processes do that are killed and that race: claim, have an effect, complete.

An effect is a line in a file, written at once: whoever counts the lines knows how often a call was executed.
"""

import os
import random
import signal
import uuid
from collections import Counter

from stores.servers import open_test_store
from toolwire.net.stores import sqlite_connection
from toolwire.run.values.records import DAY, Claim
from waiting import SAFETY

POINTS = ("before claim", "after claim", "after effect", "after complete")


def work(url, effects, keys, *, lease=60.0, reclaim=False, die_at=None, shuffle=None):
    """All keys in turn. `die_at`: the point of the first key at which the process kills itself."""
    sqlite_connection._BUSY_TIMEOUT = SAFETY  # SQLite does not queue its writers: with seven others, one waits for long
    keys = list(keys)
    if shuffle is not None:
        random.Random(shuffle).shuffle(keys)
    store = open_test_store(url)
    for key in keys:
        run(store, effects, key, lease=lease, reclaim=reclaim, die_at=die_at)


def run(store, effects, key, *, lease=60.0, reclaim=False, die_at=None):
    """A write tool as it has to be run: only where the claim is ours. Returns what was found otherwise."""
    token = uuid.uuid4().hex
    _die_if_at(POINTS[0], die_at)
    record = store.claim(Claim(key=key, tool="pay", fingerprint="f", token=token, lease=lease, reclaim=reclaim))
    if record.token != token:
        return record
    _die_if_at(POINTS[1], die_at)
    record_effect(effects, key)
    _die_if_at(POINTS[2], die_at)
    store.complete(key, token, f"paid {key}", DAY)
    _die_if_at(POINTS[3], die_at)
    return None


def _die_if_at(point, die_at):
    if point == die_at:
        os.kill(os.getpid(), signal.SIGKILL)


def record_effect(effects, key):
    file = os.open(effects, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, f"{key}\n".encode())
    os.close(file)


def executions(effects):
    """key → how often it was executed"""
    return Counter(effects.read_text().split("\n")[:-1]) if effects.exists() else Counter()
