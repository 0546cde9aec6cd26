"""A toolbox in LangGraph's agent and `ToolNode`, and tools of LangChain in toolwire."""

import asyncio
from dataclasses import dataclass
from secrets import token_hex
from typing import Annotated

import pytest

import toolwire
from framework_contract import Call, Driver, FrameworkContract, Ledger, Outcome
from toolwire import Runner, ToolCall
from toolwire.adapters import from_langchain, to_langchain
from toolwire.ir import ConfigError, Media

pytest.importorskip("langgraph.prebuilt")
pytest.importorskip("langchain.agents")
pytestmark = pytest.mark.filterwarnings("default")

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, ToolRuntime
from langgraph.types import Command, RetryPolicy, Send, interrupt


class FakeModel(GenericFakeChatModel):
    def bind_tools(self, tools, **_):
        return self


def to_message(turn):
    if isinstance(turn, str):
        return AIMessage(turn)
    calls = [{"name": call.name, "args": call.arguments, "id": call.id, "type": "tool_call"} for call in turn]
    return AIMessage("", tool_calls=calls)


def read_messages(outcome, messages):
    outcome.results = {one.tool_call_id: one.content for one in messages if isinstance(one, ToolMessage)}
    outcome.text = messages[-1].content


class LangGraphAgent(Driver):
    """The agent of LangChain, which runs each call in a task of its own."""

    names_the_call = False

    def convert(self, tools, **options):
        return to_langchain(tools, **options)

    def convert_back(self, converted, **options):
        return from_langchain(converted, **options)

    def make_graph(self, converted, script):
        model = FakeModel(messages=iter(map(to_message, script)))
        return create_agent(model, tools=converted, checkpointer=InMemorySaver(), context_schema=dict)

    async def run(self, converted, script, *, deps=None, decide=None):
        outcome = Outcome(schemas={one.name: one.args_schema for one in converted})
        graph = self.make_graph(converted, script)
        config = {"configurable": {"thread_id": token_hex(4)}}
        state = await graph.ainvoke({"messages": [("user", "Go.")]}, config, context=deps)
        while "__interrupt__" in state:
            [question] = state["__interrupt__"]
            call_id = question.value["tool_call_id"]
            outcome.asked.append(call_id)
            decision = {"type": "approve"} if decide(call_id) else {"type": "reject", "message": "too much"}
            if self.names_the_call:
                decision["tool_call_id"] = call_id
            state = await graph.ainvoke(Command(resume={"decisions": [decision]}), config, context=deps)
        read_messages(outcome, state["messages"])
        return outcome

    async def call_twice(self, converted, call):
        node = StateGraph(MessagesState).add_node("tools", ToolNode(converted))
        graph = node.add_edge(START, "tools").add_edge("tools", END).compile()
        for _ in range(2):
            config = {"configurable": {"thread_id": "t1"}}
            await graph.ainvoke({"messages": [to_message([call])]}, config)


class LangGraphToolNode(LangGraphAgent):
    """A graph of its own, with `ToolNode`."""

    names_the_call = True

    def make_graph(self, converted, script):
        model = FakeModel(messages=iter(map(to_message, script)))

        def ask(state: MessagesState):
            return {"messages": [model.invoke(state["messages"])]}

        def route(state: MessagesState):
            return "tools" if state["messages"][-1].tool_calls else END

        graph = StateGraph(MessagesState, context_schema=dict)
        graph.add_node("ask", ask).add_node("tools", ToolNode(converted))
        graph.add_edge(START, "ask").add_conditional_edges("ask", route).add_edge("tools", "ask")
        return graph.compile(checkpointer=InMemorySaver())


class TestToolboxInLangGraphAgent(FrameworkContract):
    driver = LangGraphAgent()


class TestToolboxInToolNode(FrameworkContract):
    driver = LangGraphToolNode()


THREAD = {"configurable": {"thread_id": "t1"}}


def invoke(graph, step, is_async=False):
    return asyncio.run(graph.ainvoke(step, THREAD)) if is_async else graph.invoke(step, THREAD)


def name_the_call(question):
    return {"type": "approve", "tool_call_id": question.value["tool_call_id"]}


def two_transfers(ledger):
    turn = [Call("c1", "transfer", {"amount": 1}), Call("c2", "transfer", {"amount": 5})]
    return LangGraphToolNode().make_graph(to_langchain(ledger.box), [turn, "Done."])


class TestLangChainToolOfToolbox:
    def test_sync_and_async_calls_outside_of_a_graph(self):
        weather = to_langchain(Ledger().box)[0]
        assert weather.invoke({"city": "Rome"}) == "sun in Rome for 1 days"
        assert asyncio.run(weather.ainvoke({"city": "Rome"})) == "sun in Rome for 1 days"

    def test_call_that_needs_approval_outside_of_a_graph_has_a_readable_result(self):
        ledger = Ledger()
        transfer = to_langchain(ledger.box)[2]
        message = transfer.invoke({"type": "tool_call", "id": "c1", "name": "transfer", "args": {"amount": 5}})
        assert message.status == "error"
        assert "needs approval and was not approved: money leaves the account" in message.content
        assert ledger.paid == []

    def test_structured_result_is_the_artifact(self):
        pay = to_langchain(Ledger().box)[1]
        message = pay.invoke({"type": "tool_call", "id": "c1", "name": "pay", "args": {"amount": 5}})
        assert (message.content, message.artifact) == ('{"paid":5}', {"paid": 5})

    def test_media_are_content_blocks(self):
        @toolwire.tool(effect="read")
        def draw() -> Media:
            """Draw."""
            return Media("image", "image/png", "aGk=")

        [drawing] = to_langchain(draw)
        assert drawing.invoke({}) == [{"type": "image", "base64": "aGk=", "mime_type": "image/png"}]

    def test_declaration_for_chat_models_has_the_schema(self):
        for one, declared in zip(to_langchain(Ledger().box), Ledger().box.tools, strict=True):
            assert convert_to_openai_tool(one)["function"] == {
                "name": declared.name,
                "description": declared.description,
                "parameters": declared.input_schema,
            }

    def test_edited_arguments_of_a_decision_are_used(self):
        ledger = Ledger()
        graph = LangGraphAgent().make_graph(
            to_langchain(ledger.box), [[Call("c1", "transfer", {"amount": 5})], "Done."]
        )
        config = {"configurable": {"thread_id": "t1"}}
        graph.invoke({"messages": [("user", "Go.")]}, config)
        edit = {"type": "edit", "edited_action": {"name": "transfer", "args": {"amount": 2}}}
        state = graph.invoke(Command(resume={"decisions": [edit]}), config)
        assert ledger.paid == [2]
        assert "A person changed the arguments" in state["messages"][2].content

    @pytest.mark.parametrize(
        "decision", [{"type": "approve", "tool_call_id": "c9"}, "yes", {"type": "respond"}, None, 1]
    )
    def test_anything_but_an_approval_of_this_call_denies_it(self, decision):
        ledger = Ledger()
        graph = LangGraphAgent().make_graph(
            to_langchain(ledger.box), [[Call("c1", "transfer", {"amount": 5})], "Done."]
        )
        config = {"configurable": {"thread_id": "t1"}}
        graph.invoke({"messages": [("user", "Go.")]}, config)
        graph.invoke(Command(resume={"decisions": [decision]}), config)
        assert ledger.paid == []

    def test_write_before_an_interrupt_runs_once_although_the_node_is_repeated(self):
        """LangGraph executes the whole node again after an interrupt."""
        ledger = Ledger()
        turn = [Call("c1", "pay", {"amount": 1}), Call("c2", "transfer", {"amount": 5})]
        graph = LangGraphToolNode().make_graph(to_langchain(ledger.box), [turn, "Done."])
        config = {"configurable": {"thread_id": "t1"}}

        async def main():
            await graph.ainvoke({"messages": [("user", "Go.")]}, config)
            await graph.ainvoke(Command(resume={"type": "approve", "tool_call_id": "c2"}), config)

        asyncio.run(main())
        assert ledger.paid == [1, 5]

    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize("make_decision", [name_the_call, lambda question: True], ids=["named", "plain"])
    def test_every_call_of_a_tool_node_can_be_approved(self, make_decision, is_async):
        """A call that has its result does not ask again, so the decisions change their positions."""
        ledger = Ledger()
        graph = two_transfers(ledger)
        asked = []
        state = invoke(graph, {"messages": [("user", "Go.")]}, is_async)
        while "__interrupt__" in state:
            [question] = state["__interrupt__"]
            asked.append((question.value["tool_call_id"], list(ledger.paid)))
            state = invoke(graph, Command(resume={question.id: make_decision(question)}), is_async)
        assert sorted(asked) == [("c1", []), ("c2", [1])]
        assert ledger.paid == [1, 5]

    @pytest.mark.parametrize("is_async", [False, True])
    def test_decision_is_not_used_for_another_call(self, is_async):
        """Nothing is decided about the second call, also if the node is executed once more."""
        ledger = Ledger()
        graph = two_transfers(ledger)
        for step in ({"messages": [("user", "Go.")]}, Command(resume=True), None):
            state = invoke(graph, step, is_async)
        [question] = state["__interrupt__"]
        assert (question.value["tool_call_id"], question.value["needs_id"]) == ("c2", True)
        assert ledger.paid == [1]
        [question] = invoke(graph, Command(resume=True), is_async)["__interrupt__"]
        assert ledger.paid == [1]
        invoke(graph, Command(resume={question.id: True}), is_async)
        assert ledger.paid == [1, 5]

    def test_rejected_call_of_a_tool_node_does_not_run(self):
        ledger = Ledger()
        graph = two_transfers(ledger)
        state = invoke(graph, {"messages": [("user", "Go.")]})
        while "__interrupt__" in state:
            [question] = state["__interrupt__"]
            kind = "approve" if question.value["tool_call_id"] == "c2" else "reject"
            state = invoke(graph, Command(resume={**name_the_call(question), "type": kind}))
        assert ledger.paid == [5]

    @pytest.mark.parametrize("driver", [LangGraphAgent(), LangGraphToolNode()], ids=["agent", "node"])
    def test_decision_for_an_unknown_call_asks_again(self, driver):
        ledger = Ledger()
        graph = driver.make_graph(to_langchain(ledger.box), [[Call("c1", "transfer", {"amount": 5})], "Done."])
        invoke(graph, {"messages": [("user", "Go.")]})
        state = invoke(graph, Command(resume={"type": "approve", "tool_call_id": "c9"}))
        [question] = state["__interrupt__"]
        assert (question.value["tool_call_id"], ledger.paid) == ("c1", [])
        invoke(graph, Command(resume=name_the_call(question)))
        assert ledger.paid == [5]

    def test_answer_to_the_question_of_another_tool_approves_nothing(self):
        @tool
        def ask_color() -> str:
            """Ask for a color."""
            return str(interrupt("Which color?"))

        ledger = Ledger()
        turn = [Call("c1", "ask_color", {}), Call("c2", "transfer", {"amount": 5})]
        graph = LangGraphToolNode().make_graph([ask_color, *to_langchain(ledger.box)], [turn, "Done."])
        state = invoke(graph, {"messages": [("user", "Go.")]})
        assert state["__interrupt__"][0].value == "Which color?"
        state = invoke(graph, Command(resume=True))
        assert (state["__interrupt__"][0].value["tool_call_id"], ledger.paid) == ("c2", [])

    def test_calls_that_are_sent_to_a_node_together_do_not_share_a_decision(self):
        ledger = Ledger()
        turn = to_message([Call("c1", "transfer", {"amount": 1}), Call("c2", "transfer", {"amount": 5})])
        builder = StateGraph(MessagesState).add_node("tools", ToolNode(to_langchain(ledger.box)))
        builder.add_conditional_edges(START, lambda state: [Send("tools", {"messages": [turn]})], ["tools"])
        graph = builder.add_edge("tools", END).compile(checkpointer=InMemorySaver())
        for step in ({"messages": []}, Command(resume=True), None):
            invoke(graph, step)
        assert ledger.paid == [1]

    @pytest.mark.parametrize("is_async", [False, True])
    def test_runs_without_a_thread_are_conversations_of_their_own(self, is_async):
        ledger = Ledger()
        tools, script = to_langchain(ledger.box), [[Call("call_0", "pay", {"amount": 5})], "Done."]
        for _ in range(2):
            agent = create_agent(FakeModel(messages=iter(map(to_message, script))), tools=tools)
            step = {"messages": [("user", "Go.")]}
            asyncio.run(agent.ainvoke(step)) if is_async else agent.invoke(step)
        assert ledger.paid == [5, 5]
        assert len({context.run_id for context in ledger.contexts}) == 2

    def test_run_without_a_thread_has_one_id_and_an_order(self):
        ledger = Ledger()
        writes = [Call(f"c{n}", "write_first", {"text": str(n)}) for n in range(3)]
        looks = [[Call(f"d{n}", "get_weather", {"city": "Rome"})] for n in range(2)]
        model = FakeModel(messages=iter(map(to_message, [writes, *looks, "Done."])))
        asyncio.run(create_agent(model, tools=to_langchain(ledger.box)).ainvoke({"messages": [("user", "Go.")]}))
        assert ledger.events == [f"{step} {n}" for n in range(3) for step in ("begin", "end")]
        [run_id] = {context.run_id for context in ledger.contexts}
        assert run_id

    def test_write_of_a_repeated_task_without_a_thread_runs_once(self):
        ledger = Ledger()
        attempts = []

        @tool
        def fail_once() -> str:
            """Fail at the first attempt."""
            attempts.append(1)
            if len(attempts) == 1:
                raise ConnectionError("lost")
            return "ok"

        node = ToolNode([*to_langchain(ledger.box), fail_once], handle_tool_errors=False)
        policy = RetryPolicy(max_attempts=2, initial_interval=0.001, retry_on=ConnectionError)
        graph = StateGraph(MessagesState).add_node("tools", node, retry_policy=policy)
        turn = to_message([Call("c1", "pay", {"amount": 5}), Call("c2", "fail_once", {})])
        graph.add_edge(START, "tools").add_edge("tools", END).compile().invoke({"messages": [turn]})
        assert (ledger.paid, len(attempts)) == ([5], 2)

    def test_runs_of_a_nested_agent_are_conversations_of_their_own(self):
        ledger = Ledger()
        tools, pay = to_langchain(ledger.box), [Call("call_0", "pay", {"amount": 5})]

        @tool
        def ask_clerk() -> str:
            """Ask the clerk to pay."""
            clerk = create_agent(FakeModel(messages=iter(map(to_message, [pay, "Paid."]))), tools=tools)
            return clerk.invoke({"messages": [("user", "Pay.")]})["messages"][-1].content

        script = [pay, *([Call(f"c{n}", "ask_clerk", {})] for n in range(2)), "Done."]
        invoke(LangGraphAgent().make_graph([*tools, ask_clerk], script), {"messages": [("user", "Go.")]})
        assert ledger.paid == [5, 5, 5]

    def test_call_outside_of_a_graph_is_a_repeated_one_only_in_a_thread(self):
        ledger = Ledger()
        pay = to_langchain(ledger.box)[1]
        call = {"type": "tool_call", "id": "call_0", "name": "pay", "args": {"amount": 5}}
        for _ in range(2):
            pay.invoke(call)
        assert ledger.paid == [5, 5]
        for _ in range(2):
            pay.invoke(call, THREAD)
        assert ledger.paid == [5, 5, 5]

    def test_several_questions_of_an_agent_are_answered_by_their_ids(self):
        ledger = Ledger()
        turn = [Call("c1", "transfer", {"amount": 1}), Call("c2", "transfer", {"amount": 5})]
        graph = LangGraphAgent().make_graph(to_langchain(ledger.box), [turn, "Done."])
        config = {"configurable": {"thread_id": "t1"}}
        questions = graph.invoke({"messages": [("user", "Go.")]}, config)["__interrupt__"]
        replies = {one.id: {"type": "approve" if one.value["tool_call_id"] == "c2" else "reject"} for one in questions}
        graph.invoke(Command(resume=replies), config)
        assert ledger.paid == [5]


@dataclass
class User:
    name: str


def run_call(box, name, arguments, *, deps=None, approve=None):
    return Runner(box, approve=approve).run_sync([ToolCall("c1", name, arguments)], deps=deps)[0]


class TestLangChainTool:
    def test_declaration_is_kept_and_the_default_effect_is_write(self):
        @tool
        def search(query: str, limit: int = 3) -> str:
            """Search the web."""
            return f"{query}: {limit}"

        declared = from_langchain(search).tools[0]
        assert (declared.name, declared.description, declared.effect) == ("search", "Search the web.", "write")
        assert declared.input_schema["required"] == ["query"]
        assert declared.input_schema["properties"]["limit"]["default"] == 3
        assert from_langchain([search], effects={"search": "read"}).tools[0].effect == "read"
        assert run_call(from_langchain(search), "search", {"query": "x"}).text == "x: 3"

    def test_metadata_give_effect_and_approval(self):
        metadata = {"toolwire": {"effect": "idempotent", "approve": True}}
        put = StructuredTool.from_function(lambda: "x", name="put", description="Put.", metadata=metadata)
        look = StructuredTool.from_function(
            lambda: "x", name="look", description="Look.", metadata={"readOnlyHint": True}
        )
        box = from_langchain([put, look])
        assert [tool.effect for tool in box.tools] == ["idempotent", "read"]
        assert box.find("put").options.approve is True

    @pytest.mark.parametrize("is_handled", [False, True])
    def test_tool_exception_is_an_error_with_its_message(self, is_handled):
        def fail() -> str:
            """Fail."""
            raise ToolException("no such file")

        box = from_langchain(StructuredTool.from_function(fail, handle_tool_error=is_handled))
        result = run_call(box, "fail", {})
        assert (result.is_error, result.text) == (True, "no such file")

    def test_sync_tool_runs_in_a_thread_and_async_tool_on_the_loop(self):
        async def look(name: str) -> str:
            """Look."""
            asyncio.get_running_loop()
            return name

        box = from_langchain([StructuredTool.from_function(coroutine=look), tool(lambda_tool)])
        assert run_call(box, "look", {"name": "a"}).text == "a"
        assert run_call(box, "lambda_tool", {"n": 2}).text == "4"

    def test_dependencies_are_the_context_of_the_tool_runtime(self):
        @tool
        def whoami(runtime: ToolRuntime[User]) -> str:
            """Return the user."""
            return f"{runtime.context.name} {runtime.tool_call_id}"

        box = from_langchain(whoami)
        assert "runtime" not in box.tools[0].input_schema.get("properties", {})
        assert run_call(box, "whoami", {}, deps=User("ann")).text == "ann c1"

    def test_injected_call_id_is_that_of_the_call(self):
        @tool
        def get_id(call_id: Annotated[str, InjectedToolCallId]) -> str:
            """Return the id."""
            return call_id

        assert run_call(from_langchain(get_id), "get_id", {}).text == "c1"

    def test_tool_with_the_state_of_a_graph_is_refused(self):
        @tool
        def count(state: Annotated[dict, InjectedState]) -> str:
            """Count messages."""
            return str(len(state))

        with pytest.raises(ConfigError, match="InjectedState"):
            from_langchain(count)

    def test_tool_goes_to_toolwire_and_back(self):
        @tool
        def search(query: str) -> str:
            """Search the web."""
            return f"found {query}"

        box = from_langchain(search)
        back = to_langchain(box)
        assert back[0].invoke({"query": "x"}) == "found x"
        assert from_langchain(back).find("search") is box.find("search")

    def test_command_of_a_graph_is_an_error(self):
        @tool
        def jump() -> Command:
            """Jump."""
            return Command(goto="end")

        result = run_call(from_langchain(jump), "jump", {})
        assert result.is_error
        assert "only its graph understands" in result.text


def lambda_tool(n: int) -> int:
    """Double a number."""
    return 2 * n
