"""Read and replace the state of a stored run, whose store has only events."""

import time

import msgspec

from toolwire.run.session.events import RunStep, encode_steps, fold_events
from toolwire.run.session.state import decode_state
from toolwire.run.values.records import StoredRun, read_rows, split_rows


def read_state(store, run_id):
    """Return the state of a run as text, the fold of its events."""
    stored = store.runs.get(run_id)
    return msgspec.json.encode(fold_events(read_rows(store.runs, stored), stored.version)).decode()


def replace_state(store, run_id, text, status="running"):
    """Replace the log of a run by one event with this state, as somebody with access to the store could."""
    stored = store.runs.get(run_id)
    rows = split_rows(encode_steps(None, [RunStep("start", time.time(), decode_state(text))]))
    return store.runs.append(StoredRun(run_id, status), rows, stored.version, restart=True)
