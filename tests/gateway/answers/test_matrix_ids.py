"""Ids that upstreams leave out or use twice: every client still pairs its results, and so does the upstream."""

import json

import pytest

from matrix_world import World, open_world
from sdks import CLIENTS, Function, Result
from shapes import Call, ModelAnswer, provider_answer
from toolwire.ir.parts import ToolCall, ToolResult
from toolwire.ir.request import Request
from toolwire.testing.upstream import RawReply

TOOL = Function("get_weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})


@pytest.fixture(scope="module")
def world():
    with open_world() as made:
        yield made


def calls(*cities: str, call_id: str) -> tuple[Call, ...]:
    return tuple(Call(call_id, "get_weather", {"city": city}) for city in cities)


def without_ids(answer: RawReply) -> RawReply:
    """As older servers of Gemini and Ollama answer."""

    def strip(line: str) -> str:
        head, brace, rest = line.partition("{")
        return head + json.dumps(_without_id(json.loads(brace + rest))) if brace else line

    body = "\n".join(map(strip, answer.body.decode().split("\n")))
    return RawReply(body.encode(), answer.status, answer.headers, answer.streamed)


def _without_id(value):
    if isinstance(value, dict):
        return {key: _without_id(one) for key, one in value.items() if key != "id"}
    return [_without_id(one) for one in value] if isinstance(value, list) else value


def converse(world: World, sdk: str, model: str, turns: list[RawReply]) -> list[str]:
    """A conversation in which every turn but the last has calls; each result says the city of its call, the last first."""
    world.reset()
    client = world.clients[sdk]
    world.upstream.script[:] = turns
    history = client.user_message("How is the weather?")
    seen = []
    for turn in turns:
        answer = world.run(client.ask(model, history, (TOOL,), None, stream=turn.streamed))
        results = [Result(call, call.arguments["city"]) for call in reversed(answer.calls)]
        history = [*history, *answer.said, *(client.results(results) if results else [])]
        seen += [call.arguments["city"] for call in answer.calls]
    assert answer.text == "Done."
    return seen


def pairs_of(request: Request) -> list[tuple[str, str]]:
    """(city that was asked for, city that was answered): by id, turn by turn."""
    pairs = []
    waiting: dict[str, ToolCall] = {}
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                assert part.id not in waiting
                waiting[part.id] = part
            elif isinstance(part, ToolResult):
                pairs.append((waiting.pop(part.call_id).arguments["city"], part.text))
    assert not waiting
    return pairs


@pytest.mark.one_in(5)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("sdk", "wire"),
    # before its own wire a client gets the bytes as they are, and has no ids to pair by
    [(sdk, wire) for sdk in CLIENTS for wire in ("gemini", "ollama") if sdk != wire],
)
def test_calls_without_ids_are_paired_with_their_results(world, sdk, wire, stream):
    told = [
        ModelAnswer(calls=calls("Paris", "Rome", call_id="")),
        ModelAnswer(calls=calls("Oslo", call_id="")),
        ModelAnswer("Done."),
    ]
    seen = converse(world, sdk, f"m-{wire}", [without_ids(provider_answer(wire, one, stream=stream)) for one in told])
    assert seen == ["Paris", "Rome", "Oslo"]
    last = world.upstream.requests[-1].request
    assert pairs_of(last) == [("Paris", "Paris"), ("Rome", "Rome"), ("Oslo", "Oslo")]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "wire", ["openai_chat", "openai_responses", "anthropic", "gemini", "gemini_interactions", "ollama"]
)
@pytest.mark.parametrize("sdk", CLIENTS)
def test_id_used_in_two_turns_is_paired_by_turn(world, sdk, wire, stream):
    """Some models number their calls anew in every turn."""
    told = [ModelAnswer(calls=calls(city, call_id="call_0")) for city in ("Paris", "Rome")]
    seen = converse(
        world, sdk, f"m-{wire}", [provider_answer(wire, one, stream=stream) for one in (*told, ModelAnswer("Done."))]
    )
    assert seen == ["Paris", "Rome"]
    assert pairs_of(world.upstream.requests[-1].request) == [("Paris", "Paris"), ("Rome", "Rome")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("sdk", CLIENTS)
def test_emulated_calls_in_two_turns_reach_the_client(world, sdk, stream):
    told = [
        ModelAnswer(calls=calls("Paris", "Rome", call_id="")),
        ModelAnswer(calls=calls("Oslo", call_id="")),
        ModelAnswer("Done."),
    ]
    seen = converse(world, sdk, "m-hermes", [provider_answer("hermes", one, stream=stream) for one in told])
    assert seen == ["Paris", "Rome", "Oslo"]
