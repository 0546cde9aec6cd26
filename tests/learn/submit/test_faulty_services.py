"""Faulty services: unsuitable addresses, long waits, endless lists, large files and fields of other types."""

import tracemalloc
from functools import partial

import pytest
from test_submission import CREATE, ENVIRONMENT, UPLOAD, Run, every_service, examples, open_with, settings_of

from toolwire.ir.errors import ConfigError, ProtocolError
from toolwire.ir.parts import Text
from toolwire.ir.request import Message
from toolwire.ir.response import UpstreamError
from toolwire.learn import make_example, write_examples
from toolwire.learn.submit import service_api
from toolwire.learn.submit.datasets import FileRules, encode_openai, write_dataset


@pytest.fixture
def data(tmp_path):
    write_examples(tmp_path / "data.jsonl", examples(), "toolwire")
    return tmp_path / "data.jsonl"


@pytest.mark.parametrize("url", ["http://storage.example", "ftp://storage.example"])
def test_training_data_are_not_sent_to_an_unencrypted_address(tmp_path, data, url):
    run = Run(tmp_path, data, "together")
    run.mock.url = url
    with pytest.raises(ProtocolError, match="neither https nor on this machine") as caught:
        run.go()
    assert "storage.example" not in str(caught.value)
    assert not any(call.method == "PUT" for call in run.mock.calls)


@every_service
@pytest.mark.parametrize("requests", [UPLOAD, CREATE], ids=["upload", "creation"])
def test_long_wait_that_a_service_demands_is_left_to_the_user(tmp_path, data, name, requests):
    run = Run(tmp_path, data, name)
    run.mock.fail(requests[name], 429, {"error": {"message": "slow down"}}, {"retry-after": "86400"})
    with pytest.raises(UpstreamError, match="slow down") as caught:
        run.go()
    assert "86400 s" in caught.value.hint
    assert sum(run.clock.slept) < 60
    assert run.go().job.phase == "done"
    assert len(run.mock.jobs) == 1


def test_wait_of_minutes_that_a_service_demands_is_kept(tmp_path, data):
    run = Run(tmp_path, data, "openai")
    run.mock.fail(r"GET .*/files", 429, {"error": {"message": "slow down"}}, {"retry-after": "200"})
    assert run.go().job.phase == "done"
    assert any(200 <= wait <= 220 for wait in run.clock.slept)


ENDLESS = {
    "openai": ("list_files", {"data": [{"id": "file-x"}], "has_more": True}),
    "mistral": ("list_jobs", {"data": [{"id": "x"}] * 100}),
    "vertex": ("list_jobs", {"tuningJobs": [], "nextPageToken": "again"}),
}


@pytest.mark.parametrize("name", sorted(ENDLESS))
def test_list_without_an_end_is_an_error(tmp_path, data, name, monkeypatch):
    monkeypatch.setattr(service_api, "_MAX_PAGES", 5)
    run = Run(tmp_path, data, name)
    method, page = ENDLESS[name]
    monkeypatch.setattr(run.mock, method, lambda call: page)
    with pytest.raises(ProtocolError, match="more than 5 pages"):
        run.go()
    assert not run.mock.jobs


@pytest.mark.parametrize("name", ["openai", "vertex"])
def test_too_large_result_file_leaves_nothing(tmp_path, data, name, monkeypatch):
    run = Run(tmp_path, data, name)
    with monkeypatch.context() as patch:
        patch.setattr(service_api, "_MAX_DOWNLOAD", 10)
        with pytest.raises(ProtocolError, match="exceeds 10 bytes"):
            run.go()
    assert not [path.name for path in run.folder.iterdir() if path.name.startswith("metrics")]
    assert run.go().job.phase == "done"


WRONG = {
    "openai": {"error": ["x"], "metadata": "x", "trained_tokens": {}, "fine_tuned_model": 7},
    "mistral": {"metadata": "x", "trained_tokens": "many", "fine_tuned_model": {}, "events": "x"},
    "together": {"total_price": "free", "token_count": [], "model_output_name": 7, "events": "x"},
    "vertex": {"error": "x", "tuningDataStats": "x", "tunedModel": 7, "gcsMetricsUri": 7, "supervisedTuningSpec": []},
}


@every_service
def test_fields_of_other_types_are_like_missing_ones(tmp_path, data, name):
    run = Run(tmp_path, data, name)
    answer = run.mock.get
    run.mock.get = lambda call, job_id: {**answer(call, job_id), **WRONG[name]}
    job = run.go().job
    assert (job.phase, job.model, job.trained_tokens, job.cost) == ("done", None, None, None)


def test_text_in_place_of_an_error_is_the_reason(tmp_path, data):
    run = Run(tmp_path, data, "openai")
    run.mock.get = lambda call, job_id: {"id": job_id, "status": "failed", "error": "out of memory"}
    with pytest.raises(Exception, match="out of memory"):
        run.go()


def test_token_of_google_is_not_sent_to_another_storage():
    environment = {**ENVIRONMENT, "STORAGE_EMULATOR_HOST": "https://storage.example"}
    open_vertex = partial(open_with, environment, settings=settings_of("vertex"))
    with pytest.raises(ConfigError, match="not sent to another server") as caught:
        open_vertex()
    assert "unset STORAGE_EMULATOR_HOST" in caught.value.hint
    assert open_vertex(key_variable="CLOUDSDK_AUTH_ACCESS_TOKEN").endswith(" https://storage.example")


# Data


def test_file_is_written_row_by_row(tmp_path):
    rows = (
        make_example([Message("user", (Text("a" * 20_000),)), Message("assistant", (Text("b"),))]) for _ in range(500)
    )
    write_examples(tmp_path / "in.jsonl", rows, "toolwire")
    rules = FileRules(encode=encode_openai, least_examples=1, most_bytes=10**9)
    tracemalloc.start()
    try:
        written = write_dataset(tmp_path / "in.jsonl", tmp_path / "out.jsonl", rules)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written.bytes == (tmp_path / "out.jsonl").stat().st_size > 10_000_000
    assert peak < 5_000_000


def test_file_that_becomes_too_large_leaves_nothing(tmp_path, data):
    rules = FileRules(encode=encode_openai, least_examples=1, most_bytes=1_000)
    with pytest.raises(ConfigError, match=r"data\.jsonl has more than 1000 bytes"):
        write_dataset(data, tmp_path / "out.jsonl", rules)
    assert [path.name for path in tmp_path.iterdir()] == ["data.jsonl"]
