"""Ids of objects in bodies of relayed requests: at any depth, in small and large documents, on every endpoint."""

import json

import pytest

from gateway_client import post, send
from hostile import run
from relay_upstream import document, relaying
from toolwire.gateway.keys import hash_key
from toolwire.gateway.relay.objects import referred_ids

KEYS = {"keys": {name: {"hash": hash_key(f"sk-{name}")} for name in ("alice", "bob")}}
MODELS = {"models": {"picture": {"upstream": "openai_chat", "model": "gpt-image"}}}
ALICE, BOB = ({"authorization": f"Bearer sk-{name}"} for name in ("alice", "bob"))
IMAGE_PART = {"type": "image", "source": {"type": "file", "file_id": "ID"}}
REFERRING = [
    ("/v1/batches", {"input_file_id": "ID"}),
    ("/v1/vector_stores", {"name": "n", "file_ids": ["ID"]}),
    ("/v1/fine_tuning/jobs", {"model": "m", "training_file": "ID"}),
    ("/v1/fine_tuning/jobs", {"model": "m", "training_files": [{"file_id": "ID", "weight": 1}]}),
    ("/v1/fine_tuning/jobs", {"model": "m", "validation_files": ["ID"]}),
    ("/v1/videos", {"model": "openai_chat/m", "prompt": "p", "input_reference": {"file_id": "ID"}}),
    ("/v1/images/edits", {"model": "picture", "prompt": "p", "images": [{"file_id": "ID"}]}),
    ("/v1/images/edits", {"model": "picture", "prompt": "p", "mask": {"file_id": "ID"}}),
    ("/v1/moderations", {"model": "openai_chat/m", "input": [{"source": {"type": "file_id", "id": "ID"}}]}),
    ("/v1/vector_stores/MINE/file_batches", {"files": [{"file_id": "ID", "attributes": {}}]}),
    ("/v1/vector_stores/MINE/files", {"file_id": "ID"}),
    (
        "/v1/messages/batches",
        {"requests": [{"custom_id": "1", "params": {"messages": [{"role": "user", "content": [IMAGE_PART]}]}}]},
    ),
    ("/v1/further", {"model": "openai_chat/m", "document": {"type": "file", "file_id": "ID"}}),
]


def settings(tmp_path, **more):
    relay = {"paths": ["POST /v1/further"], "upstreams": ["openai_chat"]}
    return {**KEYS, **MODELS, "responses": {"store": str(tmp_path / "objects.db")}, "relay": relay, **more}


def with_id(body, object_id):
    return json.loads(json.dumps(body).replace('"ID"', json.dumps(object_id)))


async def create(gateway, path, bearer, **headers):
    status, _, data = await post(gateway.url, path, {}, {**bearer, **headers})
    assert status == 200
    return json.loads(data)["id"]


class Numbered:
    """Answers every request with the id of a new object."""

    def __init__(self):
        self.count = 0

    def __call__(self, _):
        self.count += 1
        return document({"id": f"object-{self.count}"})


@pytest.mark.parametrize(("path", "body"), REFERRING)
@pytest.mark.parametrize("padding", [0, 20_000])
@run
async def test_referred_object_belongs_to_the_key(path, body, padding, tmp_path):
    """A body that is larger than `stream_body` is checked, too."""
    more = settings(tmp_path, limits={"stream_body": 10_000})
    async with relaying(Numbered(), ("openai_chat", "anthropic"), more) as (gateway, upstream):
        create_path = "/v1/messages/batches" if "messages" in path else "/v1/vector_stores"
        mine, other = await create(gateway, create_path, BOB), await create(gateway, create_path, ALICE)
        path, sent = path.replace("MINE", mine), {**body, "user": "u" * padding}
        seen = len(upstream.requests)
        status, _, data = await post(gateway.url, path, with_id(sent, other), BOB)
        assert (status, len(upstream.requests)) == (404, seen), data
        assert b"there is no object" in data
        status, _, data = await post(gateway.url, path, with_id(sent, mine), BOB)
        assert status == 200, data
        if "picture" in json.dumps(body):
            assert upstream.requests[-1].document["model"] == "gpt-image"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"a": {"file_id": "x"}}, {"x": "/a/file_id"}),
        ({"file_ids": ["x", 1, None, ["y"], {"id": "z"}]}, {"x": "/file_ids/0", "y": "/file_ids/3/0"}),
        ({"a/b": [{"file_id": "x"}, {"file_id": "x"}]}, {"x": "/a~1b/0/file_id"}),
        ({"metadata": {"file_id": "x"}, "files": [{"attributes": {"file_id": "y"}}]}, {}),
        ({"requests": [{"params": [{"type": "tool_use", "input": {"file_id": "x"}}]}]}, {}),
        ({"type": "tool_use", "id": "t", "input": {"file_id": "x"}}, {"x": "/input/file_id"}),
        ({"type": "message", "input": {"file_id": "x"}}, {"x": "/input/file_id"}),
        ({"properties": {"file_id": {"type": "string"}}, "required": ["file_id"]}, {}),
        ({"file_id": None, "id": "x"}, {}),
    ],
)
def test_references_are_found_at_any_depth(body, found):
    assert referred_ids(body) == found


def test_references_are_found_in_a_deeply_nested_document():
    body = {"file_id": "x"}
    for _ in range(198):
        body = {"a": body}
    assert [*referred_ids(body)] == ["x"]


@run
async def test_many_references_are_checked(tmp_path):
    async with relaying(Numbered(), more=settings(tmp_path)) as (gateway, upstream):
        mine = await create(gateway, "/v1/files", ALICE)
        ids = [mine] * 10 + [f"file-{number}" for number in range(3000)]
        status, _, data = await post(gateway.url, "/v1/vector_stores", {"file_ids": ids}, ALICE)
        assert (status, len(upstream.requests)) == (404, 1)
        assert b"file-0" in data


@run
async def test_model_of_another_upstream_cannot_use_the_object(tmp_path):
    more = settings(tmp_path)
    async with relaying(Numbered(), ("openai_chat", "openai_responses"), more) as (gateway, upstream):
        mine = await create(gateway, "/v1/files", ALICE)
        body = {"model": "openai_responses/m", "images": [{"file_id": mine}]}
        status, _, data = await post(gateway.url, "/v1/images/edits", body, ALICE)
        assert (status, len(upstream.requests)) == (400, 1)
        assert b"is not served by openai_chat" in data


@run
async def test_answer_about_a_part_of_an_object_makes_no_owner(tmp_path):
    def answer(received):
        name = received.path.rpartition("/")[2]
        return document({"id": name if received.method == "GET" or "-" in name else f"{name}-1"})

    async with relaying(answer, more=settings(tmp_path)) as (gateway, _):
        mine = await create(gateway, "/v1/vector_stores", BOB)
        await create(gateway, "/v1/files", ALICE)
        path = f"{gateway.url}/v1/vector_stores/{mine}/files/files-1"
        for method in ("GET", "POST"):
            status, _, data = await send(method, path, headers=BOB)
            assert (status, json.loads(data)["id"]) == (200, "files-1")
        assert (await send("GET", f"{gateway.url}/v1/files/files-1", headers=BOB))[0] == 404
        assert (await send("GET", f"{gateway.url}/v1/files/files-1", headers=ALICE))[0] == 200


@run
async def test_object_that_is_created_below_another_gets_an_owner(tmp_path):
    """The parts of an upload are named when it is completed, and a remixed video is a new one."""
    async with relaying(Numbered(), more=settings(tmp_path)) as (gateway, _):
        upload = await create(gateway, "/v1/uploads", ALICE)
        part = await create(gateway, f"/v1/uploads/{upload}/parts", ALICE)
        complete = f"/v1/uploads/{upload}/complete"
        assert (await post(gateway.url, complete, {"part_ids": ["object-9"]}, ALICE))[0] == 404
        assert (await post(gateway.url, complete, {"part_ids": [part]}, ALICE))[0] == 200
