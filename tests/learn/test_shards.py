"""Shards are computed once, stored, and returned in order; other inputs are other shards."""

import pytest

from toolwire.learn.run_folder import job_key, run_shards
from toolwire.net.executors import ProcessPool
from toolwire.run.executor import InProcess, WorkFailed


class SquareRows:
    def __call__(self, number):
        return {"shard": number, "square": number * number, "text": "é"}


def test_finished_shards_are_not_computed_again(tmp_path):
    first = run_shards(tmp_path, "job", list("abc"), SquareRows(), executor=ProcessPool(2))
    assert first == [{"shard": number, "square": number * number, "text": "é"} for number in range(3)]
    progress = []
    again = run_shards(tmp_path, "job", list("abcd"), lambda _: "new", progress=lambda *at: progress.append(at))
    assert again == [*first, "new"]
    assert progress == [(3, 4), (4, 4)]


def test_other_inputs_and_jobs_are_other_shards(tmp_path):
    assert run_shards(tmp_path, "job", ["a"], lambda _: "first") == ["first"]
    assert run_shards(tmp_path, "job", ["b"], lambda _: "second") == ["second"]
    assert run_shards(tmp_path, "other", ["a"], lambda _: "third") == ["third"]
    assert run_shards(tmp_path, "job", ["a"], lambda _: "fourth") == ["first"]


def test_failed_shard_is_reported_and_the_others_stay(tmp_path):
    calls = []

    def work(number):
        calls.append(number)
        if number == 2 and len(calls) == 3:
            raise RuntimeError("no memory")
        return number * 10

    with pytest.raises(WorkFailed, match="RuntimeError: no memory") as caught:
        run_shards(tmp_path, "job", list("abcd"), work, executor=InProcess(attempts=1))
    assert [failed.number for failed in caught.value.failures] == [2]
    assert run_shards(tmp_path, "job", list("abcd"), work) == [0, 10, 20, 30]
    assert calls == [0, 1, 2, 3, 2]


def test_job_key_depends_on_settings_and_inputs():
    assert job_key({"b": 1, "a": 2}, ["x"]) == job_key({"a": 2, "b": 1}, ["x"])
    assert len({job_key({"a": 2}, ["x"]), job_key({"a": 3}, ["x"]), job_key({"a": 2}, ["y"])}) == 3


def test_no_shards_are_no_work(tmp_path):
    assert run_shards(tmp_path, "job", [], str) == []
