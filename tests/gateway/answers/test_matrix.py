"""Every official SDK before every kind of upstream: the client gets the right calls, the upstream is asked rightly.

The upstream answers in the provider's own shape (shapes.py), never through our encoders, and what it is asked is judged by
the provider's own types as well.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from matrix_world import World, open_world
from sdk_validation import validate_request
from sdks import CLIENTS, IMAGE, Answer, Client, Function, Result
from shapes import FORMATS, SIGNATURE, WIRES, Call, ModelAnswer, provider_answer
from toolwire.ir.parts import Media, Reasoning, Text, ToolCall, ToolResult
from toolwire.ir.request import Request
from toolwire.ir.tools import ToolChoice

CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "A city"}}, "required": ["city"]}
TOOLS = (
    Function("get_weather", "The weather in a city now", CITY),
    Function("get_time", "The local time in a city", CITY),
)
QUESTION = "How is the weather?"


@pytest.fixture(scope="module")
def world():
    with open_world() as made:
        yield made


class Cell(NamedTuple):
    """A client before an upstream, streaming or not."""

    world: World
    client: Client
    upstream: str
    stream: bool
    client_name: str

    @property
    def paris(self) -> Call:
        return self._call("Paris")

    @property
    def rome(self) -> Call:
        return self._call("Rome")

    def _call(self, city: str) -> Call:
        """With an id that no other cell has: the gateway remembers calls."""
        return Call(f"call_{city}_{self.world.number}", "get_weather", {"city": city})

    @property
    def emulated(self) -> bool:
        return self.upstream in FORMATS

    @property
    def asked(self) -> list[Request]:
        """What the upstream was asked, in canonical terms."""
        requests = [heard.request for heard in self.world.upstream.requests]
        assert None not in requests
        return requests

    def ask(
        self, history: list, *said: ModelAnswer, choice: str | None = None, tools: tuple[Function, ...] = TOOLS
    ) -> Answer:
        self.world.upstream.script[:] = [provider_answer(self.upstream, one, stream=self.stream) for one in said]
        question = self.client.ask(f"m-{self.upstream}", history, tools, choice, stream=self.stream)
        return self.world.run(question)

    def after(
        self, calls: tuple[Call, ...], reply: Callable[[Call], Result], words: str = "", thought: str = ""
    ) -> tuple[Answer, Answer]:
        """The turn with the calls, and the one after all of them were answered, the last first."""
        history = self.client.user_message(QUESTION)
        first = self.ask(history, ModelAnswer(words, calls, thought))
        results = self.client.results([reply(call) for call in reversed(first.calls)])
        return first, self.ask([*history, *first.said, *results], ModelAnswer("All done."))


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request):
    return request.param


@pytest.fixture(params=[*WIRES, *FORMATS])
def upstream(request):
    return request.param


@pytest.fixture(params=list(CLIENTS))
def cell(request, world, upstream, stream):
    world.reset()
    yield Cell(world, world.clients[request.param], upstream, stream, request.param)
    for heard in world.upstream.requests:
        validate_request(heard.wire, json.loads(heard.body))


def parts_of(request: Request, kind: type) -> list[Any]:
    return [part for message in request.messages for part in message.parts if isinstance(part, kind)]


def text_of(request: Request) -> str:
    return "\n".join(part.text for part in parts_of(request, Text))


def same_calls(answer: Answer, calls: tuple[Call, ...]) -> bool:
    return [(one.name, one.arguments) for one in answer.calls] == [(one.name, one.arguments) for one in calls]


def check_offered(cell: Cell) -> None:
    """Every request offered both tools."""
    for request in cell.asked:
        assert text_of(request).count(QUESTION) == 1
        if cell.emulated:
            assert not request.tools
            assert all(tool.name in text_of(request) and tool.description in text_of(request) for tool in TOOLS)
        else:
            offered = [Function(tool.name, tool.description, plain(tool.input_schema)) for tool in request.tools]
            assert offered == list(TOOLS)


def plain(schema: Any) -> Any:
    """Without the marks that some dialects add to every object."""
    return {name: value for name, value in schema.items() if name != "additionalProperties"}


def results_by_city(request: Request) -> dict[str, ToolResult]:
    """Each result beside the call that it answers; every call has one, and each result stands for one call."""
    calls = {call.id: call for call in parts_of(request, ToolCall)}
    results = parts_of(request, ToolResult)
    assert sorted(calls) == sorted(result.call_id for result in results)
    return {calls[result.call_id].arguments["city"]: result for result in results}


def check_turn(cell: Cell, first: Answer, last: Answer, calls: tuple[Call, ...]) -> None:
    assert same_calls(first, calls)
    assert len({call.id for call in first.calls}) == len(calls)
    assert (first.stop, last.stop) == cell.client.stops
    assert (last.text, last.calls) == ("All done.", [])
    assert len(cell.asked) == 2
    check_offered(cell)
    if not cell.emulated:
        assert [call.id for call in first.calls] == [call.id for call in calls]
        assert [call.id for call in parts_of(cell.asked[1], ToolCall)] == [call.id for call in calls]
    if cell.upstream == "gemini":
        signed = [[one.data for one in call.artefacts] for call in parts_of(cell.asked[1], ToolCall)]
        assert signed == [[SIGNATURE], *[[]] * (len(calls) - 1)]


@pytest.mark.one_in(3)
def test_one_call_and_its_result_round_trip(cell):
    first, last = cell.after((cell.paris,), lambda call: Result(call, "sunny"), words="I will check.")
    check_turn(cell, first, last, (cell.paris,))
    assert first.text.strip() == "I will check."
    if cell.emulated:
        assert "sunny" in text_of(cell.asked[1])
    else:
        assert results_by_city(cell.asked[1])["Paris"].text == "sunny"


@pytest.mark.one_in(5)
def test_two_parallel_calls_of_one_tool(cell):
    first, last = cell.after((cell.paris, cell.rome), lambda call: Result(call, f"sunny in {call.arguments['city']}"))
    check_turn(cell, first, last, (cell.paris, cell.rome))
    if cell.emulated:
        # by their place alone: the order of the calls, whatever that of the results was
        assert re.findall("sunny in (Paris|Rome)", text_of(cell.asked[1])) == ["Paris", "Rome"]
    else:
        told = {city: result.text for city, result in results_by_city(cell.asked[1]).items()}
        assert told == {"Paris": "sunny in Paris", "Rome": "sunny in Rome"}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("upstream", ["anthropic", "gemini", "gemini_interactions", "openai_responses"], indirect=True)
def test_signed_reasoning_is_returned_to_its_model(cell):
    first, last = cell.after(
        (cell.paris, cell.rome), lambda call: Result(call, "sunny"), "I will check.", "Two cities, two calls."
    )
    check_turn(cell, first, last, (cell.paris, cell.rome))
    proofs = [one.data for part in parts_of(cell.asked[1], Reasoning) for one in part.artefacts]
    assert proofs == ([] if cell.upstream == "gemini" else [SIGNATURE])  # Gemini signs the call, see check_turn


@pytest.mark.one_in(5)
def test_error_result_is_flagged_or_marked(cell):
    first, last = cell.after((cell.paris,), lambda call: Result(call, "no such city", is_error=True))
    check_turn(cell, first, last, (cell.paris,))
    if cell.emulated:
        said = text_of(cell.asked[1])
        assert "no such city" in said
        assert ("error: no such city" in said) is cell.client.flags_errors
        return
    result = results_by_city(cell.asked[1])["Paris"]
    flagged = cell.client.flags_errors and cell.upstream in ("anthropic", "gemini", "gemini_interactions")
    assert result.is_error is flagged
    mark = "[tool error] " if cell.client.flags_errors and not flagged else ""
    assert result.text == f"{mark}no such city"


@pytest.mark.one_in(5)
def test_image_result_reaches_the_upstream(cell):
    first, last = cell.after((cell.paris,), lambda call: Result(call, "a picture", image=True))
    check_turn(cell, first, last, (cell.paris,))
    request = cell.asked[1]
    inside = [part for result in parts_of(request, ToolResult) for part in result.parts if isinstance(part, Media)]
    [picture] = inside + parts_of(request, Media)
    assert (picture.kind, picture.media_type, picture.data) == ("image", "image/png", IMAGE)
    assert "a picture" in (text_of(request) if cell.emulated else results_by_city(request)["Paris"].text)


@pytest.mark.one_in(5)
def test_forced_tool_choice_is_translated(cell):
    called = ModelAnswer(calls=(cell.paris,))
    if cell.upstream == "ollama":  # the grammar of the requested format allows only this text
        called = ModelAnswer(json.dumps({"name": cell.paris.name, "arguments": cell.paris.arguments}))
    answer = cell.ask(cell.client.user_message(QUESTION), called, choice="get_weather")
    assert same_calls(answer, (cell.paris,))
    assert not answer.text
    assert answer.stop == cell.client.stops[0]
    [request] = cell.asked
    if cell.emulated:
        assert "You have to call the function get_weather now" in text_of(request)
        assert "get_time" not in text_of(request)
    elif cell.upstream == "ollama":
        [turn] = cell.world.gateway.turns
        assert request.output.schema["properties"]["name"] == {"const": "get_weather"}
        assert plain(request.output.schema["properties"]["arguments"]) == CITY
        assert [loss.concept for loss in turn.losses if loss.severity != "info"] == []
    elif "cohere" in (cell.upstream, cell.client_name):  # its choice cannot name a tool: the others are not offered
        assert request.choice is not None
        assert request.choice.mode == "required"
        assert [tool.name for tool in request.tools] == ["get_weather"]
    else:
        assert request.choice is not None
        assert (request.choice.mode, request.choice.names) == ("tool", ("get_weather",))


@pytest.mark.one_in(5)
def test_tool_choice_none_is_translated(cell):
    answer = cell.ask(cell.client.user_message(QUESTION), ModelAnswer("I cannot know."), choice="none")
    assert (answer.text, answer.calls, answer.stop) == ("I cannot know.", [], cell.client.stops[1])
    [request] = cell.asked
    if cell.emulated:
        assert "get_weather" not in text_of(request)
    elif cell.upstream == "ollama":
        assert not request.tools
    else:
        assert request.choice == ToolChoice("none")


@pytest.mark.one_in(5)
def test_request_without_tools_is_translated(cell):
    answer = cell.ask(cell.client.user_message(QUESTION), ModelAnswer("It is sunny."), tools=())
    assert (answer.text, answer.calls, answer.stop) == ("It is sunny.", [], cell.client.stops[1])
    [request] = cell.asked
    assert (request.tools, request.choice, text_of(request)) == ((), None, QUESTION)


@pytest.mark.one_in(5)
def test_text_answer_without_calls_is_returned(cell):
    answer = cell.ask(cell.client.user_message(QUESTION), ModelAnswer("Why do you ask?"))
    assert (answer.text, answer.calls, answer.stop) == ("Why do you ask?", [], cell.client.stops[1])
    check_offered(cell)
    assert cell.asked[0].choice in (None, ToolChoice("auto"))
