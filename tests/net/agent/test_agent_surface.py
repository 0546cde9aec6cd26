"""The everyday surface of an agent: history, conversations, settings, dependencies, prompts with files, sync calls."""

import asyncio
from dataclasses import dataclass

import pytest

import toolwire
from tables import every_case
from toolwire import Agent, Media, ModelClient, ProtocolError, Request, Runner, Text, ToolCall, open_store
from toolwire.ir.errors import ConfigError
from toolwire.ir.events import ArgumentEnd, TextDelta
from toolwire.ir.request import Message
from toolwire.ir.response import Fault, Response, Stop, Usage
from toolwire.net import Answer, NoAnswer, approve_call
from toolwire.run import Budget, Entry, Options, Toolbox, UnfinishedCall, dump_messages, load_messages
from toolwire.stream import ArgumentWatch
from toolwire.testing import ScriptedModel, Upstream, says


@toolwire.tool(effect="read")
async def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"sun in {city}"


def answer_with(text: str, tokens: int = 0) -> Response:
    return Response(parts=(Text(text),), stop=Stop("stop"), usage=Usage(input=tokens, output=1))


def test_history_is_sent_before_the_prompt_and_the_system_prompt_is_replaced():
    model = ScriptedModel([says("Hello Ann."), says("Your name is Ann.")])
    agent = Agent(model, system="Be brief.")
    first = agent.run_sync("I am Ann.")
    second = Agent(model, system="Be kind.").run_sync("Who am I?", history=first)
    roles = [(message.role, message.parts[0].text) for message in model.requests[1].messages]
    assert roles == [("system", "Be kind."), ("user", "I am Ann."), ("assistant", "Hello Ann."), ("user", "Who am I?")]
    assert [message.role for message in second.new_messages] == ["user", "assistant"]


def test_history_keeps_its_system_prompt_if_the_agent_has_none():
    model = ScriptedModel([says("Yes.")])
    Agent(model).run_sync("Still?", history=[Message("system", (Text("Be brief."),))])
    assert [message.role for message in model.requests[0].messages] == ["system", "user"]


def test_conversation_remembers_answers_and_drops_prompts_without_one():
    failed = Response(stop=Stop("error"), fault=Fault("server", "the server is down"))
    conversation = Agent(ScriptedModel([says("One."), failed, says("Two.")])).conversation()
    assert conversation.run_sync("First?").output == "One."
    assert not conversation.run_sync("Second?").finished
    assert next(item for item in conversation.stream_sync("Third?") if isinstance(item, Answer)).output == "Two."
    texts = [message.parts[0].text for message in conversation.messages]
    assert texts == ["First?", "One.", "Third?", "Two."]


def test_conversation_keeps_calls_that_ran_without_an_answer():
    paid = []

    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    model = ScriptedModel([says(ToolCall("p", "pay", {"amount": 1})), says("Yes, I paid 1.")])
    conversation = Agent(model, [pay], budget=Budget(iterations=1)).conversation()
    assert not conversation.run_sync("Pay 1.").finished
    assert paid == [1]
    answer = conversation.run_sync("Did you pay?")
    assert [part.text for message in model.requests[-1].messages for part in message.parts] == [
        "Pay 1.",
        '{"amount":1}',
        "paid",
        "Did you pay?",
    ]
    assert [message.parts[0].text for message in answer.new_messages] == ["Did you pay?", "Yes, I paid 1."]


def test_conversation_waits_for_its_suspended_run():
    @toolwire.tool(effect="write", approve=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    store = open_store("memory:")
    model = ScriptedModel([says(ToolCall("p", "pay", {"amount": 1})), says("Paid."), says("Yes.")])
    agent = Agent(model, [pay], approve="suspend", store=store)
    conversation = agent.conversation()
    waiting = conversation.run_sync("Pay.")
    with pytest.raises(ConfigError, match="waiting for pay"):
        conversation.run_sync("Did you pay?")
    approve_call(store, waiting.run_id, "p")
    assert conversation.resume_sync(waiting.run_id).output == "Paid."
    assert conversation.run_sync("Did you pay?").output == "Yes."
    assert len(model.requests[-1].messages) == 5


def test_conversation_may_repeat_a_call_in_every_run():
    lines = [line for _ in range(6) for line in (says(ToolCall("a", "get_weather", {"city": "Oslo"})), says("Sun."))]
    conversation = Agent(ScriptedModel(lines), [get_weather]).conversation()
    assert all(conversation.run_sync("And now?").finished for _ in range(6))


def test_call_without_a_result_in_the_history_gets_an_error_result():
    calls = [ToolCall(number, "get_weather", {"city": number}) for number in "ab"]
    model = ScriptedModel([says(*calls), says("Ready.")])
    agent = Agent(model, [get_weather], budget=Budget(calls=1))
    first = agent.run_sync("Weather?")
    assert first.reason == "max calls reached (1)"
    second = agent.run_sync("Never mind.", history=first)
    roles = [message.role for message in model.requests[-1].messages]
    assert roles == ["user", "assistant", "user", "user"]
    results = model.requests[-1].messages[2].parts
    assert [(result.call_id, result.is_error) for result in results] == [("a", True), ("b", True)]
    assert [message.parts[0].text for message in second.new_messages] == ["Never mind.", "Ready."]


def test_run_that_waits_is_not_a_history():
    @toolwire.tool(effect="write", approve=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([says(ToolCall("p", "pay", {"amount": 1})), says("Fine.")])
    agent = Agent(model, [pay], approve="suspend")
    waiting = agent.run_sync("Pay.")
    for use in (lambda: agent.run_sync("Well?", history=waiting), lambda: agent.conversation(waiting)):
        with pytest.raises(ConfigError, match=r"waiting for pay .*resume\(run_id, prompt\)"):
            use()
    session = waiting.session()
    session.deny("p", "no")
    assert agent.run_sync(session).output == "Fine."


def test_answer_reports_calls_results_usage_and_cost_of_its_run_only():
    call = ToolCall("a", "get_weather", {"city": "Oslo"})
    lines = [Response(parts=(call,), stop=Stop("tool_calls"), usage=Usage(input=10, output=5)), answer_with("Sun.", 20)]
    agent = Agent(ScriptedModel([*lines, answer_with("Bye.", 7)]), [get_weather], price=lambda response: 0.5)
    first = agent.run_sync("Weather?")
    assert first.calls == (call,)
    assert [result.text for result in first.results] == ["sun in Oslo"]
    assert (first.usage.input, first.usage.output, first.cost) == (30, 6, 1.0)
    second = agent.run_sync("Bye.", history=first)
    assert (second.calls, second.usage.input, second.cost) == ((), 7, 0.5)


def test_output_of_an_unfinished_run_raises():
    model = ScriptedModel([says(ToolCall("a", "get_weather", {"city": "Oslo"}))])
    answer = Agent(model, [get_weather], budget=Budget(iterations=1)).run_sync("Weather?")
    assert answer.text == ""
    with pytest.raises(NoAnswer, match="max iterations"):
        answer.output


def test_settings_of_a_run_override_those_of_the_agent():
    model = ScriptedModel([says("Yes.")])
    agent = Agent(model, settings={"temperature": 0.2, "max_tokens": 10, "reasoning": "low"})
    agent.run_sync("Go.", settings={"max_tokens": 99, "stop": ["END"], "parallel_tool_calls": False})
    request = model.requests[0]
    assert (request.params.temperature, request.params.max_tokens, request.params.stop) == (0.2, 99, ("END",))
    assert (request.reasoning.effort, request.parallel) == ("low", False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"reasoning": {"effort": "low"}}, "reasoning must be a text or a ReasoningConfig, got dict"),
    ],
)
def test_wrong_setting_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Agent(ScriptedModel([says("Yes.")]), settings=settings).run_sync("Go.")


def test_forced_tool_choice_applies_to_the_first_request_only():
    model = ScriptedModel([says(ToolCall("a", "get_weather", {"city": "Oslo"})), says("Sun.")])
    agent = Agent(model, [get_weather], settings={"tool_choice": "get_weather"})
    assert agent.run_sync("Weather?").output == "Sun."
    assert (model.requests[0].choice.mode, model.requests[0].choice.names) == ("tool", ("get_weather",))
    assert model.requests[1].choice is None


@dataclass
class Database:
    user: str


def test_system_prompt_is_made_from_the_dependencies():
    async def instructions(database: Database) -> str:
        return f"You help {database.user}."

    model = ScriptedModel([says("Yes.")])
    Agent(model, system=instructions, deps_type=Database).run_sync("Go.", deps=Database("Ann"))
    assert model.requests[0].messages[0].parts[0].text == "You help Ann."


def test_dependencies_of_the_wrong_type_are_refused():
    agent = Agent(ScriptedModel([says("Yes.")]), deps_type=Database)
    with pytest.raises(ConfigError, match="type Database, got none"):
        agent.run_sync("Go.")
    with pytest.raises(ConfigError, match="got a value of type str"):
        Agent(ScriptedModel([says("Yes.")])).run_sync("Go.", deps="x")


def test_prompt_may_contain_files_and_media(tmp_path):
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    (tmp_path / "notes.md").write_text("# Cats", encoding="utf-8")
    model = ScriptedModel([says("A cat.")])
    link = Media("image", url="https://example.com/cat.png")
    Agent(model).run_sync(["What is this?", tmp_path / "cat.png", tmp_path / "notes.md", link])
    picture = Media("image", "image/png", "iVBORw==", name="cat.png")
    assert model.requests[0].messages[0].parts == (Text("What is this?"), picture, Text("notes.md:\n# Cats"), link)


@pytest.mark.parametrize("prompt", [[], [3], 3.5])
def test_unusable_prompt_is_refused(prompt):
    with pytest.raises(ConfigError, match="prompt"):
        Agent(ScriptedModel([says("Yes.")])).run_sync(prompt)


def test_missing_file_in_a_prompt_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        Agent(ScriptedModel([says("Yes.")])).run_sync(tmp_path / "no.png")


def test_override_replaces_the_model_inside_the_block_only():
    agent = Agent(ScriptedModel([says("real")]))
    with agent.override(model=ScriptedModel([says("scripted")])):
        assert agent.run_sync("Go.").output == "scripted"
    assert agent.run_sync("Go.").output == "real"


def test_agent_takes_a_runner_with_its_own_options():
    runner = Runner(get_weather, caller="ann")
    assert Agent(ScriptedModel([]), runner).runner is runner
    with pytest.raises(ConfigError, match="Runner"):
        Agent(ScriptedModel([]), runner, approve=lambda step: True)


@pytest.mark.finding("X6")
def test_tools_that_appear_during_a_run_are_offered_from_the_next_turn_and_last():
    withdrawn: dict[str, str | None] = {"late": "not connected", "early": None}

    def make(name):
        declared = toolwire.Tool(name, effect="read")
        return Entry(declared, lambda: "done", Options(withdrawn=lambda: withdrawn[name]))

    def connect() -> str:
        withdrawn.update(late=None, early="disconnected")
        return "connected"

    connecting = Entry(toolwire.Tool("connect", effect="read"), connect)
    model = ScriptedModel([says(ToolCall("a", "connect", {})), says("Done.")])
    Agent(model, Toolbox(make("late"), make("early"), connecting)).run_sync("Go.")
    offered = [[tool.name for tool in request.tools] for request in model.requests]
    assert offered == [["early", "connect"], ["connect", "late"]]


def test_tools_of_a_request_are_not_extended():
    model = ScriptedModel([says("Done.")])
    request = Request(messages=(Message("user", (Text("Go."),)),), tools=(toolwire.Tool("own"),))
    Agent(model, [get_weather]).run_sync(request)
    assert [tool.name for tool in model.requests[0].tools] == ["own"]


def test_sync_methods_work_inside_a_running_loop():
    async def notebook_cell() -> list[object]:
        agent = Agent(
            ScriptedModel([says(ToolCall("a", "get_weather", {"city": "Oslo"})), says("Sun.")]), [get_weather]
        )
        whole = agent.run_sync("Weather?").output
        deltas = [
            item.text for item in Agent(ScriptedModel([says("Hi.")])).stream_sync("Go.") if isinstance(item, TextDelta)
        ]
        results = Runner(get_weather).run_sync([ToolCall("1", "get_weather", {"city": "Rome"})])
        return [whole, "".join(deltas), results[0].text]

    assert asyncio.run(notebook_cell()) == ["Sun.", "Hi.", "sun in Rome"]


@pytest.mark.finding("LE8")
@pytest.mark.parametrize(
    "question", [Request(messages=(Message("user", (Text("Hi."),)),)), "Hi."], ids=["request", "text"]
)
def test_client_has_sync_methods(question):

    async def run() -> list[object]:
        async with Upstream(answer_with("One."), answer_with("Two.")) as upstream:

            def ask() -> list[object]:
                with ModelClient("openai/gpt-5.6", base_url=upstream.url, key="a-key") as client:
                    whole = client.ask_sync(question).parts[0].text
                    deltas = [event.text for event in client.stream_sync(question) if isinstance(event, TextDelta)]
                    return [whole, "".join(deltas)]

            answers = await asyncio.to_thread(ask)
            assert [asked.request.messages[0].parts[0].text for asked in upstream.requests] == ["Hi.", "Hi."]
            return answers

    assert asyncio.run(run()) == ["One.", "Two."]


@pytest.mark.finding("LE8")
@pytest.mark.parametrize("question", [["Hi."], {"messages": []}, None, b"Hi.", Message("user", ())])
def test_client_refuses_other_values_as_a_request(question):
    async def run() -> None:
        async with ModelClient("openai/gpt-5.6", base_url="http://127.0.0.1:9", key="a-key") as client:
            with pytest.raises(ConfigError, match=r"cannot be a value of type .*pass a text, or toolwire\.Request"):
                await client.ask(question)
            with pytest.raises(ConfigError, match="cannot be a value of type"):
                async for _ in client.stream(question):
                    pass

    asyncio.run(run())


def test_blocking_call_on_the_loop_of_a_blocking_call_is_refused():
    @toolwire.tool(effect="read")
    async def nested() -> str:
        return Agent(ScriptedModel([says("inner")])).run_sync("Go.").output

    answer = Agent(ScriptedModel([says(ToolCall("a", "nested", {})), says("Done.")]), [nested]).run_sync("Go.")
    assert "await the async method instead" in answer.results[0].text


def test_leaving_a_sync_stream_closes_it():
    closed = []

    class Endless(ScriptedModel):
        async def stream(self, request):
            try:
                async for event in super().stream(request):
                    yield event
                    await asyncio.sleep(0)
            finally:
                closed.append(True)

    items = Agent(Endless([says("a long text")])).stream_sync("Go.")
    next(items)
    items.close()
    assert closed == [True]


@pytest.mark.finding("NU6")
@every_case("delta", [1, 3, 10, 1000])
@every_case("model", ["openai/gpt-5.6", "anthropic/claude-sonnet-5", "openai-chat/m", "gemini/m", "ollama/m"])
def test_stream_has_the_partial_arguments_of_each_call(model, delta):
    calls = [ToolCall("a", "get_weather", {"city": "Oslo or Bergen"}), ToolCall("a", "get_weather", {"city": "Rome"})]

    async def run():
        async with (
            Upstream(says(*calls), says("Sun."), delta=delta) as upstream,
            ModelClient(model, base_url=upstream.url, key="k") as client,
        ):
            return [item async for item in Agent(client, [get_weather]).stream("Weather?")]

    items = asyncio.run(run())
    made = [item for item in items if isinstance(item, ToolCall)]
    assert [call.arguments for call in made] == [call.arguments for call in calls]
    for call in made:
        before = items[: items.index(call)]
        partial = [item.arguments for item in before if isinstance(item, UnfinishedCall) and item.id == call.id]
        assert partial[-1] == call.arguments
        assert all(call.arguments["city"].startswith(value.get("city", "")) for value in partial)
        assert len(partial) > 2 or delta > 3 or model.startswith(("gemini", "ollama"))
    watch = ArgumentWatch()
    ends = [seen for item in items for seen in watch.feed(item) if isinstance(seen, ArgumentEnd)]
    assert [(end.name, end.value) for end in ends] == [("city", call.arguments["city"]) for call in calls]


def test_stream_text_yields_the_text_only():
    agent = Agent(ScriptedModel([says(ToolCall("a", "get_weather", {"city": "Oslo"})), says("Sun.")]), [get_weather])

    async def run() -> str:
        return "".join([text async for text in agent.stream_text("Weather?")])

    assert asyncio.run(run()) == "Sun."


def test_stream_yields_each_call_before_its_result():
    call = ToolCall("a", "get_weather", {"city": "Oslo"})
    agent = Agent(ScriptedModel([says(call), says("Sun.")]), [get_weather])
    kinds = [type(item).__name__ for item in agent.stream_sync("Weather?")]
    assert kinds.index("CallEnd") < kinds.index("ToolCall") < kinds.index("ToolResult") < kinds.index("Answer")


def test_unused_lines_of_a_script_are_reported():
    model = ScriptedModel([says("One."), says("Two.")])
    Agent(model).run_sync("Go.")
    with pytest.raises(AssertionError, match="unused lines in the script: 1"):
        model.assert_complete()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"approve": "later"}, 'approve must be a function or "suspend"'),
        ({"store": "x.db"}, r"open_store\('x.db'\)"),
        ({"budget": 3}, "budget must be a Budget"),
        ({"policy": "x"}, "policy must be a Policy"),
        ({"compaction": 1000}, "compaction must be a Compaction"),
        ({"retriever": 3}, "retriever needs a method choose"),
        ({"price": 3}, "price must be a function"),
        ({"cache": "yes"}, 'cache must be "auto"'),
        ({"observers": [print]}, "an observer needs a method start"),
    ],
)
def test_argument_of_the_wrong_type_is_refused_when_the_agent_is_made(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Agent(ScriptedModel([]), **arguments)


def test_model_without_ask_is_refused():
    with pytest.raises(ConfigError, match="model needs a method ask"):
        Agent(3)


@pytest.mark.parametrize("limits", [{"seconds": -1}, {"iterations": 0}, {"iterations": "x"}, {"calls": True}])
def test_limit_of_a_budget_must_be_positive(limits):
    with pytest.raises(ConfigError, match="must be a positive number"):
        Budget(**limits)


def test_forced_tool_must_be_offered():
    agent = Agent(ScriptedModel(["Sun."]), [get_weather], settings={"tool_choice": "get_wether"})
    with pytest.raises(ConfigError, match="did you mean 'get_weather'"):
        agent.run_sync("Weather?")


@pytest.mark.parametrize("history", ["hello", ["hello"], [{"role": "user", "content": "hello"}], 3])
def test_history_must_be_messages(history):
    with pytest.raises(ConfigError, match="history"):
        Agent(ScriptedModel(["Yes."])).run_sync("Go.", history=history)


def test_system_prompt_may_be_a_function_without_parameters():
    model = ScriptedModel(["Yes."])
    Agent(model, system=lambda: "Be brief.").run_sync("Go.")
    assert model.requests[0].messages[0].text == "Be brief."


def test_messages_are_dumped_and_loaded():
    call = ToolCall("a", "get_weather", {"city": "Oslo"})
    answer = Agent(ScriptedModel([says(call), says("Sun.")]), [get_weather]).run_sync("Weather?")
    assert load_messages(dump_messages(answer.messages)) == answer.messages
    with pytest.raises(ProtocolError, match="dump_messages"):
        load_messages("{}")


@pytest.mark.parametrize("lines", ["hello", [3]])
def test_unusable_script_is_refused(lines):
    with pytest.raises(ConfigError, match="script"):
        ScriptedModel(lines)


def test_conversation_keeps_the_results_of_tools_that_ran_without_an_answer():
    paid = []

    @toolwire.tool
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    model = ScriptedModel([says(ToolCall("c", "pay", {"amount": 1})), says("Yes, I have paid.")])
    conversation = Agent(model, [pay], budget=Budget(iterations=1)).conversation()
    assert not conversation.run_sync("Pay 1.").finished
    conversation.run_sync("Did you pay?")
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "user", "user"]
    assert paid == [1]


def test_conversation_continues_after_a_run_that_waited():
    @toolwire.tool(approve=True)
    def pay(amount: int) -> str:
        return "paid"

    store = open_store("memory:")
    model = ScriptedModel([says(ToolCall("c", "pay", {"amount": 1})), says("Paid."), says("Yes.")])
    conversation = Agent(model, [pay], approve="suspend", store=store).conversation()
    waiting = conversation.run_sync("Pay 1.")
    approve_call(store, waiting.run_id, "c")
    assert conversation.resume_sync(waiting.run_id).output == "Paid."
    conversation.run_sync("Did you pay?")
    assert len(model.requests[2].messages) == 5


def test_conversation_streams_text():
    conversation = Agent(ScriptedModel(["Sun."])).conversation()

    async def run() -> str:
        return "".join([text async for text in conversation.stream_text("Weather?")])

    assert asyncio.run(run()) == "Sun."


def test_agent_among_the_tools_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match=r"pass agent\.as_tool\(\)"):
        Agent(ScriptedModel([]), [Agent(ScriptedModel([]), name="other")])


@pytest.mark.finding("NU7")
@pytest.mark.parametrize(
    ("name", "right"),
    [("instructions", "system"), ("handoffs", "transfers"), ("max_turns", "budget"), ("polcy", "policy")],
)
def test_parameter_of_another_library_names_the_right_one(name, right):
    with pytest.raises(ConfigError, match=rf"Agent has no parameter '{name}' \(use {right}=…\)"):
        Agent("openai/gpt-5.6", **{name: "x"})
