"""Structured output of agents: native or by a final-answer tool, whole and streamed, against real HTTP servers."""

import asyncio
import threading
from functools import wraps
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel

from toolwire import Agent, ModelClient, Response, StructuredOutput, Text, ToolCall, ToolResult, tool
from toolwire.ir import ConfigError, Stop
from toolwire.net import Answer, NoAnswer
from toolwire.run import Budget, PartialOutput
from toolwire.testing import ScriptedModel, Upstream, says


class City(BaseModel):
    """A city."""

    name: str
    population: int


class Unknown(BaseModel):
    reason: str


@tool(effect="read")
def search(query: str) -> str:
    """Search."""
    return f"found {query}"


OSLO = City(name="Oslo", population=700_000)
JSON = '{"name": "Oslo", "population": 700000}'
ARGUMENTS = {"name": "Oslo", "population": 700_000}


def in_a_loop(test):
    @wraps(test)
    def run(**arguments):
        asyncio.run(test(**arguments))

    return run


def final(arguments, call_id="f1"):
    return says(ToolCall(call_id, "final_answer", arguments))


async def collect(agent, prompt="Which city?"):
    return [item async for item in agent.stream(prompt)]


@in_a_loop
async def test_model_object_gets_a_final_answer_tool():
    model = ScriptedModel([says(ToolCall("1", "search", {"query": "city"})), final(ARGUMENTS)])
    answer = await Agent(model, [search], output_type=City).run("Which city?")
    assert answer.output == OSLO
    assert [tool.name for tool in model.requests[0].tools] == ["search", "final_answer"]
    assert model.requests[0].choice.mode == "required"
    assert [call.name for call in answer.calls] == ["search"]
    assert [result.text for result in answer.results] == ["found city"]


@in_a_loop
async def test_output_of_another_mode_needs_no_tool():
    native = ScriptedModel([says(JSON)])
    assert (await Agent(native, output_type=StructuredOutput(City, mode="native")).run("?")).output == OSLO
    assert native.requests[0].output.name == "City" and not native.requests[0].tools
    prompt = ScriptedModel([says("no"), says("no"), says(JSON)])
    assert (await Agent(prompt, output_type=StructuredOutput(City, mode="prompt")).run("?")).output == OSLO
    assert prompt.requests[0].output is None
    assert prompt.requests[0] == prompt.requests[1] == prompt.requests[2]  # sampled again: nothing masks the text


@pytest.mark.parametrize("streamed", [False, True])
@in_a_loop
async def test_invalid_output_is_asked_for_again_and_then_refused(streamed):
    model = ScriptedModel([final({"name": "Oslo"}, "1"), final(ARGUMENTS, "2"), *[final({}, str(n)) for n in range(3)]])
    agent = Agent(model, output_type=City)
    answer = (await collect(agent))[-1] if streamed else await agent.run("?")
    assert answer.output == OSLO
    assert "'population' is missing" in model.requests[1].messages[-1].parts[0].text
    answer = (await collect(agent))[-1] if streamed else await agent.run("?")
    assert answer.reason.startswith("no valid output after 3 attempts: /: the property")
    with pytest.raises(NoAnswer):
        _ = answer.output


@pytest.mark.parametrize("streamed", [False, True])
@in_a_loop
async def test_final_answer_beside_other_calls_is_not_run_and_not_accepted(streamed):
    both = says(ToolCall("f", "final_answer", ARGUMENTS), ToolCall("s", "search", {"query": "x"}))
    model = ScriptedModel([both, final(ARGUMENTS, "2")])
    agent = Agent(model, [search], output_type=City)
    items = await collect(agent) if streamed else [await agent.run("?")]
    assert items[-1].output == OSLO
    results = model.requests[1].messages[-1].parts
    assert [(part.call_id, part.is_error) for part in results] == [("f", True), ("s", False)]
    assert [item.call_id for item in items if isinstance(item, ToolResult)] == (["s"] if streamed else [])


@in_a_loop
async def test_partial_outputs_grow_while_the_model_generates():
    async with Upstream(final(ARGUMENTS), delta=3) as upstream:
        client = ModelClient("anthropic/claude-3-5-haiku-latest", base_url=upstream.url, key="k")
        items = await collect(Agent(client, output_type=City))
        await client.aclose()
    partial = [item.value for item in items if isinstance(item, PartialOutput)]
    assert partial[-1] == ARGUMENTS
    assert len(partial) > 2 and {} in partial
    assert isinstance(items[-1], Answer) and items[-1].output == OSLO


@in_a_loop
async def test_conversation_continues_after_a_final_answer():
    model = ScriptedModel([final(ARGUMENTS, "1"), final({"name": "Rome", "population": 3}, "2")])
    chat = Agent(model, output_type=City).conversation()
    await chat.run("Which city?")
    assert (await chat.run("Another one?")).output.name == "Rome"
    roles = [message.role for message in model.requests[1].messages]
    assert roles == ["user", "assistant", "user", "user"]
    assert isinstance(model.requests[1].messages[2].parts[0], ToolResult)


@in_a_loop
async def test_retriever_cannot_remove_the_final_answer_tool():
    class Nothing:
        def choose(self, request, tools, offered):
            return ()

    model = ScriptedModel([final(ARGUMENTS)])
    assert (await Agent(model, [search], output_type=City, retriever=Nothing()).run("?")).output == OSLO
    assert [tool.name for tool in model.requests[0].tools] == ["final_answer"]


@in_a_loop
async def test_session_of_another_process_continues_with_its_output():
    agent = Agent(ScriptedModel([final(ARGUMENTS)]), [search], output_type=City)
    session = await agent.session("Which city?")
    session.add_response(final({}))
    loaded = type(session).load(session.dump(), now=lambda: 0.0)
    assert (await agent.run(loaded)).output == OSLO


@in_a_loop
async def test_union_scalar_and_schema_outputs():
    union = Agent(ScriptedModel([final({"result": {"reason": "fog"}})]), output_type=StructuredOutput[City | Unknown]())
    assert (await union.run("?")).output == Unknown(reason="fog")
    number = Agent(ScriptedModel([final({"result": 5})]), output_type=int)
    assert (await number.run("?")).output == 5
    schema = StructuredOutput({"type": "array", "items": {"type": "string"}})
    assert (await Agent(ScriptedModel([final({"result": ["a"]})]), output_type=schema).run("?")).output == ["a"]


MODELS = {
    "openai/gpt-5.6": ("native", "native"),
    "anthropic/claude-sonnet-5": ("native", "native"),
    "anthropic/claude-3-5-haiku-latest": ("tool", "tool"),
    "gemini/gemini-2.5-pro": ("native", "tool"),  # refuses a schema beside tools
    "gemini/gemini-3-pro": ("native", "native"),
    "ollama/qwen3": ("native", "tool"),  # a grammar would forbid calls
    "deepseek/deepseek-chat": ("tool", "tool"),
    "groq/llama-3.3-70b": ("native", "tool"),
}


@pytest.mark.parametrize("tools", [(), (search,)])
@pytest.mark.parametrize("model", MODELS)
@in_a_loop
async def test_capabilities_of_the_model_decide_between_native_and_tool(model, tools):
    client = ModelClient(model, key="k", base_url="http://127.0.0.1:9/v1")
    session = await Agent(client, [*tools], output_type=City).session("?")
    assert session.output.mode == MODELS[model][bool(tools)]
    await client.aclose()


@in_a_loop
async def test_server_that_ignores_the_schema_is_sampled_again_before_it_is_asked_again():
    async with Upstream(says("Oslo"), says("Oslo"), says("Oslo"), says(JSON)) as upstream:
        client = ModelClient("any", base_url=upstream.url)
        answer = await Agent(client, output_type=City, budget=Budget(iterations=6)).run("Which city?")
        await client.aclose()
    assert answer.output == OSLO
    assert [len(heard.request.messages) for heard in upstream.requests] == [1, 1, 1, 3]
    assert [heard.request.output.schema["required"] for heard in upstream.requests] == [["name", "population"]] * 4


@pytest.mark.parametrize("streamed", [False, True])
@in_a_loop
async def test_model_with_calls_in_text_gives_its_output_by_the_final_answer_tool(streamed):
    call = '<tool_call>\n{"name": "final_answer", "arguments": ' + JSON + "}\n</tool_call>"
    async with Upstream(Response(parts=(Text(call),), stop=Stop("stop"))) as upstream:
        client = ModelClient("any", base_url=upstream.url, text="hermes")
        agent = Agent(client, [search], output_type=City)
        items = await collect(agent) if streamed else [await agent.run("Which city?")]
        await client.aclose()
    assert items[-1].output == OSLO
    assert any(isinstance(item, PartialOutput) for item in items) == streamed
    assert "final_answer" in upstream.requests[0].body.decode() and not upstream.requests[0].request.tools


@in_a_loop
async def test_refused_answer_ends_the_run():
    model = ScriptedModel([Response(parts=(Text("I cannot help."),), stop=Stop("refusal"))])
    assert (await Agent(model, output_type=City).run("?")).reason == "the model refused (refusal): I cannot help."


@in_a_loop
async def test_subagent_returns_its_output_as_a_value():
    worker = Agent(ScriptedModel([final(ARGUMENTS)]), output_type=City, name="find_city")
    manager = ScriptedModel([says(ToolCall("1", "find_city", {"prompt": "Which?"})), says("Oslo.")])
    answer = await Agent(manager, [worker.as_tool(description="Find a city.")]).run("?")
    assert answer.results[0].structured == ARGUMENTS


@pytest.mark.parametrize("streamed", [False, True])
@in_a_loop
async def test_agent_that_takes_over_gives_the_output_of_the_first_agent(streamed):
    second = Agent(ScriptedModel([says("Hm."), final(ARGUMENTS, "2")]), [search], output_type=int)

    @tool(effect="read")
    def transfer() -> object:
        """Transfer the conversation."""
        return second

    first = Agent(ScriptedModel([says(ToolCall("1", "transfer", {}))]), [transfer], output_type=City)
    answer = (await collect(first))[-1] if streamed else await first.run("?")
    assert answer.output == OSLO
    assert [tool.name for tool in second.model.requests[0].tools] == ["search", "final_answer"]


@in_a_loop
async def test_final_answer_is_not_a_call_of_the_stream():
    model = ScriptedModel([says(ToolCall("1", "search", {"query": "x"})), final(ARGUMENTS)])
    items = await collect(Agent(model, [search], output_type=City))
    assert [item.name for item in items if isinstance(item, ToolCall)] == ["search"]
    assert [item.attempt for item in items if isinstance(item, PartialOutput)] == [2]


@in_a_loop
async def test_output_type_that_has_no_schema_is_refused_when_the_agent_is_made():
    with pytest.raises(ConfigError, match="no JSON Schema"):
        Agent(ScriptedModel([]), output_type=type("Custom", (), {}))


@pytest.mark.parametrize(("model", "choice"), [("ollama/qwen3", None), ("deepseek/deepseek-chat", "required")])
@in_a_loop
async def test_call_is_required_only_where_the_wire_can_force_one(model, choice):
    """A client with `strict=True` refuses requests that lose something, so the plan must not cause a loss."""
    async with Upstream(final(ARGUMENTS)) as upstream:
        client = ModelClient(model, base_url=upstream.url, key="k", strict=True)
        assert (await Agent(client, [search], output_type=City).run("?")).output == OSLO
        await client.aclose()
    sent = upstream.requests[0].request.choice
    assert (sent and sent.mode) == choice


@pytest.mark.parametrize("streamed", [False, True])
@in_a_loop
async def test_large_output_is_read_outside_the_event_loop(streamed):
    threads = set()

    def note_thread(value: list[str]) -> list[str]:
        threads.add(threading.current_thread())
        return value

    class Names(BaseModel):
        names: Annotated[list[str], AfterValidator(note_thread)]

    for size in (2, 2000):
        arguments = {"names": ["a" * 20] * size}
        agent = Agent(ScriptedModel([final(arguments)]), output_type=Names)
        answer = (await collect(agent))[-1] if streamed else await agent.run("?")
        assert answer.output.names == arguments["names"]
        assert (threads == {threading.main_thread()}) == (size == 2) and len(threads) == 1
        threads.clear()


@pytest.mark.parametrize("output_type", [City | Unknown, {"type": "array"}])
@in_a_loop
async def test_union_and_schema_may_be_passed_without_options(output_type):
    model = ScriptedModel([final({"result": [] if isinstance(output_type, dict) else {"reason": "fog"}})])
    assert (await Agent(model, output_type=output_type).run("?")).output in ([], Unknown(reason="fog"))


@pytest.mark.parametrize(("support", "mode"), [("enforced", "native"), ("accepted", "native"), ("stated", "tool")])
@in_a_loop
async def test_model_class_may_declare_its_support(support, mode):
    class OwnModel(ScriptedModel):
        def output_support(self, request):
            return support if request.output.kind == "json_schema" else "stated"

    model = OwnModel([says("no"), says(JSON), says(JSON)])
    agent = Agent(model, output_type=City)
    assert (await agent.session("?")).output.mode == mode
    assert (await agent.run("?")).output == OSLO
    assert len(model.requests[1].messages) == (1 if support == "accepted" else 3)  # sampled again, or asked again
