"""Bytes that were recorded, and those of the wires' vectors, behind the gateway: every SDK reads the same calls out of them."""

import json

import pytest

from matrix_world import open_world
from places import TESTS
from recordings import RECORDED, Recorded
from sdk_validation import validate_chunks, validate_response
from sdks import CLIENTS, Answer
from shapes import FORMATS, WIRES, Call, ModelAnswer, provider_answer
from tables import every_case
from toolwire.ir.folding import fold
from toolwire.ir.parts import ToolCall
from toolwire.ir.response import Response
from toolwire.testing import Vector, load_vectors
from toolwire.testing.upstream import RawReply
from toolwire.wire import get

VECTORS = TESTS / "vectors" / "wire"
NDJSON = {"content-type": "application/x-ndjson"}
SDK_OF = {
    "openai_chat": "openai chat",
    "openai_responses": "openai responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "gemini_interactions": "gemini interactions",
    "cohere": "cohere",
}


@pytest.fixture(scope="module")
def world():
    with open_world() as made:
        yield made


def ask(world, client, wire: str, answer: RawReply) -> Answer:
    world.upstream.script[:] = [answer]
    return world.run(client.ask(f"m-{wire}", client.user_message("hi"), (), None, stream=answer.streamed))


def calls_in(answer: Answer) -> list[tuple[str, dict]]:
    assert len({call.id for call in answer.calls}) == len(answer.calls)
    return [(call.name, call.arguments) for call in answer.calls]


def raw(wire: str, stream: bytes, whole: object) -> RawReply:
    if not stream:
        return RawReply(json.dumps(whole).encode())
    return RawReply(stream, headers=NDJSON if wire == "ollama" else {}, streamed=True)


def recorded_answers() -> list[Recorded]:
    """Each only once: many clients were told the same."""
    different = {(one.bare_wire, one.stream, json.dumps(one.answer.get("json"))): one for one in RECORDED}
    return list(different.values())


@pytest.mark.one_in(7)
@pytest.mark.parametrize("sdk", CLIENTS)
@pytest.mark.parametrize("recorded", recorded_answers(), ids=repr)
def test_recorded_answer_is_equivalent_through_the_gateway(recorded, sdk, world):
    client, wire = world.clients[sdk], recorded.bare_wire
    answer = raw(wire, recorded.stream, recorded.answer.get("json"))
    straight = ask(world, world.straight[SDK_OF[wire]], wire, answer)
    through = ask(world, client, wire, answer)
    assert calls_in(through) == calls_in(straight)
    assert [call.id for call in through.calls] == [call.id for call in straight.calls]
    assert through.text == straight.text
    assert through.stop == client.stops[not straight.calls]


def decoded(wire: str, vector: Vector) -> Response:
    if vector.kind == "response":
        return get(wire).decode_response(vector.body)
    decoder = get(wire).stream_decoder()
    return fold([*decoder.feed(vector.data), *decoder.close()])


def is_plain(call: ToolCall) -> bool:
    """A function that every protocol can call."""
    return call.kind == "function" and call.state == "complete" and call.namespace is None


def vectors_with_calls() -> list:
    """For every SDK but the provider's own: there bytes pass, and what it makes of them is not ours to say."""
    return [
        pytest.param(wire, vector, sdk, id=f"{wire} {vector} {sdk}")
        for wire in WIRES
        for vector in load_vectors(VECTORS / f"{wire}.json")
        if vector.kind in ("response", "stream")
        and (calls := decoded(wire, vector).calls)
        and all(map(is_plain, calls))
        for sdk in CLIENTS
        if sdk != SDK_OF.get(wire)
    ]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("wire", "vector", "sdk"), vectors_with_calls())
def test_the_calls_of_a_vector_reach_every_client(wire, vector, sdk, world):
    client = world.clients[sdk]
    answer = ask(world, client, wire, raw(wire, vector.data, vector.body))
    assert calls_in(answer) == [(call.name, call.arguments) for call in decoded(wire, vector).calls]
    assert answer.stop == client.stops[0]


@every_case("upstream", [*WIRES, *FORMATS])
@every_case("said", [ModelAnswer("Hi."), ModelAnswer("Hi.", (Call("c1", "f", {"a": 1}), Call("c2", "g", {})), "Hm.")])
def test_matrix_answers_match_the_provider_types(upstream, said):
    wire = upstream if upstream in WIRES else "openai_chat"
    validate_response(wire, json.loads(provider_answer(upstream, said, stream=False).body))
    validate_chunks(wire, provider_answer(upstream, said, stream=True).body)
