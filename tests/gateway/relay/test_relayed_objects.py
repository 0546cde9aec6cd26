"""Files, batches, jobs and uploads: their ids belong to the key and the upstream that created them."""

import json
from itertools import count

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, NotFoundError

from gateway_client import post, send
from hostile import run
from relay_upstream import JSON, Reply, document, relay_upstream, relaying
from serving import serving
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.keys import hash_key
from toolwire.ir.errors import ConfigError

KEYS = {"keys": {name: {"hash": hash_key(f"sk-{name}")} for name in ("alice", "bob")}}
LIMITED = {"keys": {"alice": {"hash": hash_key("sk-alice"), "models": ["openai_chat/m"]}}}


def stored(tmp_path, **more):
    return {**KEYS, "responses": {"store": str(tmp_path / "objects.db")}, **more}


class Provider:
    """The files, batches and jobs of a provider, which knows only one key: the gateway's."""

    def __init__(self, page=20):
        self.objects = {}
        self._numbers = count(1)
        self._page = page

    def __call__(self, received):
        _, collection, *rest = received.path.split("/")
        if received.path.startswith("/fine_tuning/jobs"):
            collection, *rest = "jobs", *received.path.split("/")[3:]
        if received.path.startswith("/v1/messages/batches"):
            collection, *rest = "batches", *received.path.split("/")[4:]
        if received.method == "POST" and not rest:
            return self._create(collection, received)
        if not rest:
            return self._list(collection, received.query)
        if rest[0] not in self.objects:
            return document({"error": {"message": "no such object", "type": "invalid_request_error"}}, 404)
        if rest[1:] in (["content"], ["results"]):
            return Reply(b'{"custom_id":"1"}\n' * 1000, {"content-type": "application/octet-stream"})
        if received.method == "DELETE":
            del self.objects[rest[0]]
            return document({"id": rest[0], "deleted": True, "object": "file"})
        return document(self.objects[rest[0]])

    def _create(self, collection, received):
        object_id = f"{collection}-{next(self._numbers)}"
        made = {"id": object_id, "object": collection, "created_at": 1, "status": "completed"}
        if collection == "batches":
            made |= {"output_file_id": f"out-{object_id}", "endpoint": "/v1/chat/completions"}
            self.objects[f"out-{object_id}"] = {"id": f"out-{object_id}", "object": "file"}
            if received.path.startswith("/v1/messages"):
                made |= {"processing_status": "ended", "results_url": "https://api.anthropic.com/v1/messages/batches/x"}
        self.objects[object_id] = made
        return document(made)

    def _list(self, collection, query):
        after = dict(part.split("=") for part in query.split("&") if part).get("after")
        listed = [made for made in self.objects.values() if made["id"].startswith(collection)]
        start = next((number + 1 for number, made in enumerate(listed) if made["id"] == after), 0)
        page = listed[start : start + self._page]
        return document({"object": "list", "data": page, "has_more": start + self._page < len(listed)})


def client_of(gateway, name):
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=f"sk-{name}", max_retries=0)


@run
async def test_files_and_batches_of_the_openai_client(tmp_path):
    async with relaying(Provider(), more=stored(tmp_path)) as (gateway, _), client_of(gateway, "alice") as client:
        file = await client.files.create(file=("in.jsonl", b"{}\n" * 100_000), purpose="batch")
        assert (await client.files.retrieve(file.id)).id == file.id
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        done = await client.batches.retrieve(batch.id)
        results = await client.files.content(done.output_file_id)
        assert await results.aread() == b'{"custom_id":"1"}\n' * 1000
        assert [item.id async for item in client.files.list()] == [file.id]
        assert [item.id async for item in client.batches.list()] == [batch.id]
        assert (await client.files.delete(file.id)).deleted
        with pytest.raises(NotFoundError):
            await client.files.retrieve(file.id)
        job = await client.fine_tuning.jobs.create(
            model="gpt-mini", training_file=(await client.files.create(file=b"{}", purpose="fine-tune")).id
        )
        assert (await client.fine_tuning.jobs.retrieve(job.id)).id == job.id


@run
async def test_ids_of_another_key_are_unknown(tmp_path):
    async with (
        relaying(Provider(), more=stored(tmp_path)) as (gateway, upstream),
        client_of(gateway, "alice") as alice,
        client_of(gateway, "bob") as bob,
    ):
        file = await alice.files.create(file=b"{}", purpose="batch")
        batch = await alice.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        seen = len(upstream.requests)
        for use in (
            bob.files.retrieve(file.id),
            bob.files.content(file.id),
            bob.files.delete(file.id),
            bob.batches.retrieve(batch.id),
            bob.batches.cancel(batch.id),
            bob.files.content(batch.output_file_id),
            bob.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"),
            bob.fine_tuning.jobs.create(model="m", training_file=file.id),
        ):
            with pytest.raises(NotFoundError):
                await use
        assert len(upstream.requests) == seen
        assert [item async for item in bob.files.list()] == []


@run
async def test_list_continues_after_pages_of_other_keys(tmp_path):
    async with (
        relaying(Provider(page=3), more=stored(tmp_path)) as (gateway, _),
        client_of(gateway, "alice") as alice,
        client_of(gateway, "bob") as bob,
    ):
        first = await alice.files.create(file=b"1", purpose="batch")
        for _ in range(8):
            await bob.files.create(file=b"2", purpose="batch")
        last = await alice.files.create(file=b"3", purpose="batch")
        assert [item.id async for item in alice.files.list()] == [first.id, last.id]


@pytest.mark.parametrize("has_more", [True, False])
@run
async def test_ends_of_a_page_are_ids_of_the_key(has_more, tmp_path):
    others = [{"id": "file-a"}, {"object": "file"}, {"id": 3}, {"id": "file-b"}]
    page = {"object": "list", "data": others, "first_id": "file-a", "last_id": "file-b", "has_more": has_more}

    def answer(received):
        return document({"id": "file-b"} if received.method == "POST" else page)

    async with relaying(answer, more=stored(tmp_path)) as (gateway, _), client_of(gateway, "alice") as alice:
        url, bearer = f"{gateway.url}/v1/files", {"authorization": "Bearer sk-alice"}
        status, _, data = await send("GET", url, headers=bearer)
        assert status == 200
        assert json.loads(data) == {**page, "data": [], "first_id": None, "last_id": None}
        await alice.files.create(file=b"1", purpose="batch")
        _, _, data = await send("GET", url, headers=bearer)
        assert json.loads(data) == {**page, "data": [{"id": "file-b"}], "first_id": "file-b", "last_id": "file-b"}


@run
async def test_owner_outlives_the_gateway(tmp_path):
    provider = Provider()
    async with relaying(provider, more=stored(tmp_path)) as (gateway, _), client_of(gateway, "alice") as client:
        file = await client.files.create(file=b"1", purpose="batch")
    async with relaying(provider, more=stored(tmp_path)) as (gateway, _), client_of(gateway, "alice") as client:
        assert (await client.files.retrieve(file.id)).id == file.id


@run
async def test_object_stays_at_its_upstream(tmp_path):
    """The preferred upstream creates objects, and later requests go to the owner's upstream, whatever is preferred."""
    provider, rows = Provider(), ("openai_chat", "openai_responses")
    more = stored(tmp_path, relay={"upstreams": ["openai_responses"]})
    async with relaying(provider, rows, more) as (gateway, _), client_of(gateway, "alice") as client:
        file = await client.files.create(file=b"1", purpose="batch")
        assert gateway.turns[-1].upstream == "openai_responses"
    async with relaying(provider, rows, stored(tmp_path)) as (gateway, _), client_of(gateway, "alice") as client:
        await client.files.retrieve(file.id)
        assert gateway.turns[-1].upstream == "openai_responses"
        status, _, data = await send("GET", f"{gateway.url}/v1/files", headers={"authorization": "Bearer sk-alice"})
        assert status == 400 and b"several upstreams" in data and b"[relay]" in data


@run
async def test_message_batches_of_the_anthropic_client(tmp_path):
    async with relaying(Provider(), ("anthropic",), stored(tmp_path)) as (gateway, upstream):
        async with AsyncAnthropic(base_url=gateway.url, api_key="sk-alice", max_retries=0) as client:
            batch = await client.messages.batches.create(
                requests=[{"custom_id": "1", "params": {"model": "m", "max_tokens": 1, "messages": []}}]
            )
            assert batch.results_url == f"{gateway.url}/v1/messages/batches/{batch.id}/results"
            results = [item async for item in await client.messages.batches.results(batch.id)]
            assert len(results) == 1000
            assert upstream.requests[-1].path == f"/v1/messages/batches/{batch.id}/results"
        async with AsyncAnthropic(base_url=gateway.url, api_key="sk-bob", max_retries=0) as client:
            with pytest.raises(Exception, match="no object"):
                await client.messages.batches.retrieve(batch.id)


@pytest.mark.parametrize(
    ("method", "path", "attempts"),
    [
        ("POST", "/batches", 1),
        ("POST", "/vector_stores/vs_1/file_batches", 1),
        ("POST", "/uploads/vs_1/complete", 1),
        ("POST", "/videos/vs_1/remix", 1),
        ("POST", "/batches/vs_1/cancel", 1),
        ("GET", "/batches/vs_1", 3),
        ("DELETE", "/files/vs_1", 3),
    ],
)
@run
async def test_post_about_an_object_is_never_repeated(method, path, attempts, tmp_path):
    failed = document({"error": {"message": "failed"}}, 503)

    def answer(received):
        return document({"id": "vs_1"}) if received.path == "/vector_stores" else failed

    async with relaying(answer, more=stored(tmp_path), retries=2) as (gateway, upstream):
        bearer = {"authorization": "Bearer sk-alice"}
        await post(gateway.url, "/v1/vector_stores", {}, bearer)
        status, _, _ = await send(method, f"{gateway.url}/v1{path}", headers=bearer)
        assert (status, len(upstream.requests) - 1) == (503, attempts)


@run
async def test_key_for_some_models_cannot_run_a_batch(tmp_path):
    async with relaying(Provider(), more={**stored(tmp_path), **LIMITED}) as (gateway, upstream):
        bearer = {"authorization": "Bearer sk-alice"}
        for path in ("/v1/batches", "/v1/messages/batches", "/v1/fine_tuning/jobs"):
            assert (await post(gateway.url, path, {"model": "openai_chat/m"}, bearer))[0] == 403
        assert upstream.requests == []


@run
async def test_without_a_store_the_setting_is_named():
    async with relaying(Provider(), more=KEYS) as (gateway, upstream):
        bearer = {"authorization": "Bearer sk-alice"}
        status, _, data = await post(gateway.url, "/v1/batches", {}, bearer)
        assert status == 501
        assert "[responses]" in json.loads(data)["error"]["message"]
        assert upstream.requests == []


@pytest.mark.parametrize("responses", [{}, {"store": "memory:"}])
def test_settings_that_require_objects_without_a_store_are_refused(responses):
    with pytest.raises(ConfigError, match=r"\[relay\].*objects: needs a store") as caught:
        parse_settings({"relay": {"objects": True}, "responses": responses})
    assert "store in [responses]" in caught.value.hint


@pytest.mark.parametrize("body", [b"[1]", b"not JSON", b""])
@run
async def test_answer_about_an_object_must_be_a_document(body, tmp_path):
    async with relaying(lambda _: Reply(body, JSON), more=stored(tmp_path)) as (gateway, _):
        bearer = {"authorization": "Bearer sk-alice"}
        status, _, _ = await post(gateway.url, "/v1/batches", {}, bearer)
        assert status == 502


@pytest.mark.parametrize(
    ("below", "reply", "is_dropped"),
    [
        ("", document({"id": "vector_stores-1", "deleted": True}), True),
        ("", document({"id": "vector_stores-1", "deleted": False}), False),
        ("", document({"id": "vector_stores-1", "type": "message_batch_deleted"}), True),  # of Anthropic
        ("", Reply(b"", {}, 204), True),
        ("/files/file-1", document({"id": "file-1", "deleted": True}), False),
        ("/files/file-1", Reply(b"", {}, 204), False),
        ("/files/vector_stores-2", document({"id": "vector_stores-2", "deleted": True}), False),
    ],
)
@run
async def test_owner_is_dropped_with_the_object_only(below, reply, is_dropped, tmp_path):
    created = document({"id": "vector_stores-1"})
    async with relaying(lambda it: reply if it.method == "DELETE" else created, more=stored(tmp_path)) as (gateway, _):
        bearer = {"authorization": "Bearer sk-alice"}
        await post(gateway.url, "/v1/vector_stores", {}, bearer)
        url = f"{gateway.url}/v1/vector_stores/vector_stores-1"
        status, _, data = await send("DELETE", url + below, headers=bearer)
        assert (status, data) == (reply.status, reply.body)
        assert (await send("GET", url, headers=bearer))[0] == (404 if is_dropped else 200)


@run
async def test_results_of_a_listed_batch_belong_to_its_key(tmp_path):
    """A client that polls the list never requests the batch itself."""
    batch, other = {"id": "batch-1", "status": "in_progress"}, {"id": "batch-2", "output_file_id": "out-2"}

    def answer(received):
        if received.method == "POST":
            return document(batch)
        if received.path == "/batches":
            return document({"data": [{**batch, "output_file_id": "out-1", "error_file_id": None}, other]})
        return Reply(b"results", {"content-type": "application/octet-stream"})

    async with relaying(answer, more=stored(tmp_path)) as (gateway, _):
        bearer = {"authorization": "Bearer sk-alice"}
        await post(gateway.url, "/v1/batches", {"endpoint": "/v1/chat/completions"}, bearer)
        url = f"{gateway.url}/v1/files/out-1/content"
        assert (await send("GET", url, headers=bearer))[0] == 404
        assert (await send("GET", f"{gateway.url}/v1/batches", headers=bearer))[0] == 200
        assert (await send("GET", url, headers=bearer))[0] == 200
        assert (await send("GET", url.replace("out-1", "out-2"), headers=bearer))[0] == 404


@run
async def test_signing_upstream_creates_an_object_from_a_held_body(tmp_path):
    environment = {
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "very-secret-0123456789",
        "AWS_REGION": "us-east-1",
        "HOME": "/nonexistent",
    }
    async with relay_upstream(lambda _: document({"id": "batch-1"})) as upstream:
        rows = {"aws": {"provider": "bedrock-mantle", "auth": "sigv4", "base_url": upstream.url}}
        async with serving({"upstreams": rows, **stored(tmp_path)}, environment=environment) as gateway:
            bearer, body = {"authorization": "Bearer sk-alice"}, {"endpoint": "/v1/chat/completions"}
            status, _, data = await post(gateway.url, "/v1/batches", body, bearer)
            assert status == 200, data
        [received] = upstream.requests
        assert received.document == body
        assert received.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")
        assert received.headers["x-amz-date"]
