"""The official SDKs run a job on the same mocks, which shows that the mocks answer as the services do."""

import os
from importlib import import_module

import pytest

from tuning_services import KEY, MistralMock, OpenAIMock, TogetherMock, VertexMock, serve

ROW = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n'


IS_REQUIRED = os.environ.get("TOOLWIRE_PEER") == "tuning"  # `make test-peers` installs all of them


def sdk(module):
    return import_module(module) if IS_REQUIRED else pytest.importorskip(module)


def test_openai_sdk_runs_a_job(tmp_path):
    import openai

    with serve(OpenAIMock()) as url, openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        file = client.files.create(file=("x.jsonl", ROW), purpose="fine-tune")
        method = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}}
        jobs = client.fine_tuning.jobs
        job = jobs.create(model="m", training_file=file.id, metadata={"toolwire_run": "x"}, method=method)
        assert [found.id for found in jobs.list(metadata={"toolwire_run": "x"})] == [job.id]
        for _ in OpenAIMock.states:
            job = jobs.retrieve(job.id)
        assert (job.status, job.fine_tuned_model) == ("succeeded", "ft:m:org::1")
        assert [event.message for event in jobs.list_events(job.id)] == ["Step 3/3", "Step 2/3", "Step 1/3"]


def test_mistral_sdk_runs_a_job():
    client_module = sdk("mistralai.client")
    if not IS_REQUIRED and not hasattr(client_module.models, "CompletionFineTuningJob"):
        pytest.skip("mistralai 2.5 and newer have no fine-tuning jobs")
    with serve(MistralMock()) as url:
        client = client_module.Mistral(api_key=KEY, server_url=url)
        file = client.files.upload(file={"file_name": "x.jsonl", "content": ROW}, purpose="fine-tune")
        files = [{"file_id": file.id, "weight": 1}]
        jobs = client.fine_tuning.jobs
        job = jobs.create(model="m", training_files=files, hyperparameters={"epochs": 3}, auto_start=False)
        for _ in range(2):
            job = jobs.get(job_id=job.id)
        assert job.status == "VALIDATED" and job.metadata.cost == 4.5
        jobs.start(job_id=job.id)
        for _ in range(2):
            job = jobs.get(job_id=job.id)
        assert (job.status, job.fine_tuned_model) == ("SUCCESS", "ft:ministral:abc")


def test_together_sdk_runs_a_job(tmp_path):
    together = sdk("together")
    path = tmp_path / "x.jsonl"
    path.write_bytes(ROW)
    with serve(TogetherMock()) as url:
        client = together.Together(api_key=KEY, base_url=url, max_retries=0)
        file = client.files.upload(path, purpose="fine-tune")
        job = client.fine_tuning.create(training_file=file.id, model="m", n_epochs=3, suffix="s")
        for _ in TogetherMock.states:
            job = client.fine_tuning.retrieve(job.id)
        assert (job.status, job.x_model_output_name) == ("completed", "me/m-s")


@pytest.mark.filterwarnings("ignore:The SDK's tuning implementation")
def test_google_sdk_runs_a_job():
    from google import genai
    from google.genai import types
    from google.oauth2.credentials import Credentials

    mock = VertexMock()
    mock.files["t.jsonl"] = {}, ROW
    with serve(mock) as url:
        client = genai.Client(
            vertexai=True,
            project="demo",
            location="us-central1",
            credentials=Credentials(token=KEY),
            http_options={"base_url": url},
        )
        config = types.CreateTuningJobConfig(epoch_count=3, labels={"toolwire_run": "x"})
        data = types.TuningDataset(gcs_uri="gs://data/t.jsonl")
        job = client.tunings.tune(base_model="gemini-2.5-flash", training_dataset=data, config=config)
        for _ in VertexMock.states:
            job = client.tunings.get(name=job.name)
        assert job.state == "JOB_STATE_SUCCEEDED"
        assert job.tuned_model.endpoint.endswith("endpoints/8")
