"""A toolbox in the loop of the OpenAI Agents SDK, and its function tools in toolwire."""

import asyncio
import copy
import json

import pytest

import toolwire
from framework_contract import Call, Driver, FrameworkContract, Ledger, Outcome
from toolwire import Runner, ToolCall
from toolwire.adapters import from_openai_agents, to_openai_agents
from toolwire.ir import ConfigError, Media

agents = pytest.importorskip("agents")
pytestmark = pytest.mark.filterwarnings("default")

from agents import ModelResponse, RunConfig, RunContextWrapper, RunState, Usage, function_tool, trace
from agents.models.interface import Model
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


@pytest.fixture(autouse=True)
def no_trace_export(monkeypatch):
    """Traces exist, but are not sent."""
    processor = agents.tracing.provider.SynchronousMultiTracingProcessor()
    monkeypatch.setattr(agents.tracing.get_trace_provider(), "_multi_processor", processor)


def to_items(turn):
    if isinstance(turn, str):
        content = [ResponseOutputText(type="output_text", text=turn, annotations=[])]
        return [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=content)]
    return [
        ResponseFunctionToolCall(
            type="function_call",
            name=call.name,
            call_id=call.id,
            arguments=call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments),
        )
        for call in turn
    ]


class FakeModel(Model):
    def __init__(self, script, outcome):
        self.turns = iter(script)
        self.outcome = outcome

    async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):  # noqa: A002
        self.outcome.schemas = {tool.name: tool.params_json_schema for tool in tools}
        return ModelResponse(output=to_items(next(self.turns)), usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


class OpenAIAgents(Driver):
    def convert(self, tools, **options):
        return to_openai_agents(tools, **options)

    def convert_back(self, converted, **options):
        return from_openai_agents(converted, **options)

    async def run(self, converted, script, *, deps=None, decide=None):
        outcome = Outcome()
        agent = agents.Agent("Clerk", model=FakeModel(script, outcome), tools=converted)
        done = await agents.Runner.run(agent, "Go.", context=deps)
        while done.interruptions:
            state = done.to_state()
            for question in done.interruptions:
                call_id = question.raw_item.call_id
                outcome.asked.append(call_id)
                (state.approve if decide(call_id) else state.reject)(question)
            done = await agents.Runner.run(agent, state)
        outcome.text = done.final_output
        for item in done.to_input_list():
            if item.get("type") == "function_call_output":
                outcome.results[item["call_id"]] = item["output"]
        return outcome

    async def call_twice(self, converted, call):
        """Resume one saved state twice, with the same answers of the model."""

        @function_tool(needs_approval=True)
        def begin() -> str:
            """Begin."""
            return "begun"

        script = [[Call("c0", "begin", {})], [call], "Done.", [call], "Done."]
        agent = agents.Agent("Clerk", model=FakeModel(script, Outcome()), tools=[*converted, begin])
        waiting = await agents.Runner.run(agent, "Go.", run_config=RunConfig(tracing_disabled=True))
        saved = waiting.to_state().to_string()
        for _ in range(2):
            state = await RunState.from_string(agent, saved)
            state.approve(state.get_interruptions()[0])
            done = await agents.Runner.run(agent, state, run_config=RunConfig(tracing_disabled=True))
            assert done.final_output == "Done."


class TestToolboxInOpenAIAgents(FrameworkContract):
    driver = OpenAIAgents()

    def test_truncated_arguments_are_refused_by_the_runner(self):
        ledger = Ledger()
        turn = [type("Raw", (), {"id": "c1", "name": "pay", "arguments": '{"amount": 5'})]
        outcome = asyncio.run(self.driver.run(to_openai_agents(ledger.box), [turn, "Done."]))
        assert outcome.text == "Done."
        assert ledger.paid == []
        assert "not" in outcome.results["c1"]

    def test_approval_rule_of_the_arguments_decides(self):
        paid = []

        @toolwire.tool(approve=lambda arguments: arguments["amount"] > 10)
        def spend(amount: int) -> str:
            """Spend an amount."""
            paid.append(amount)
            return "spent"

        turn = [Call("c1", "spend", {"amount": 5}), Call("c2", "spend", {"amount": 50})]
        outcome = self.run(spend, [turn, "Done."], decide=lambda _: True)
        assert outcome.asked == ["c2"]
        assert sorted(paid) == [5, 50]

    def test_run_without_traces_works(self):
        outcome = Outcome()
        agent = agents.Agent("Clerk", model=FakeModel(["Done."], outcome), tools=to_openai_agents(Ledger().box))
        done = asyncio.run(agents.Runner.run(agent, "Go.", run_config=RunConfig(tracing_disabled=True)))
        assert done.final_output == "Done."

    def test_writes_of_a_turn_keep_their_order_without_traces(self):
        ledger = Ledger()
        turn = [Call(f"c{n}", "write_first", {"text": str(n)}) for n in range(3)]
        agent = agents.Agent("Clerk", model=FakeModel([turn, "Done."], Outcome()), tools=to_openai_agents(ledger.box))
        asyncio.run(agents.Runner.run(agent, "Go.", run_config=RunConfig(tracing_disabled=True)))
        assert ledger.events == [f"{step} {n}" for n in range(3) for step in ("begin", "end")]

    @pytest.mark.parametrize("is_traced", [True, False])
    def test_approved_call_of_a_saved_state_runs_once(self, is_traced):
        """A state that is saved before the call and resumed twice is one run."""
        ledger = Ledger()
        script = [[Call("c1", "transfer", {"amount": 5})], "Done.", "Done."]
        agent = agents.Agent("Clerk", model=FakeModel(script, Outcome()), tools=to_openai_agents(ledger.box))
        config = RunConfig(tracing_disabled=not is_traced)

        async def main():
            saved = (await agents.Runner.run(agent, "Go.", run_config=config)).to_state().to_string()
            for _ in range(2):
                state = await RunState.from_string(agent, saved)
                state.approve(state.get_interruptions()[0])
                await agents.Runner.run(agent, state, run_config=config)

        asyncio.run(main())
        assert ledger.paid == [5]

    def test_runs_of_a_nested_agent_are_conversations_of_their_own(self):
        ledger = Ledger()
        tools, pay = to_openai_agents(ledger.box), [Call("call_0", "pay", {"amount": 5})]
        clerk = agents.Agent("Clerk", model=FakeModel([pay, "Paid."] * 2, Outcome()), tools=tools)
        ask = [[Call(f"c{n}", "ask_clerk", {"input": "Pay."})] for n in range(2)]
        boss = agents.Agent(
            "Boss",
            model=FakeModel([pay, *ask, "Done."], Outcome()),
            tools=[*tools, clerk.as_tool("ask_clerk", "Ask the clerk.")],
        )
        asyncio.run(agents.Runner.run(boss, "Go.", run_config=RunConfig(tracing_disabled=True)))
        assert ledger.paid == [5, 5, 5]

    def test_group_of_traces_does_not_join_the_calls_of_two_runs(self):
        ledger = Ledger()
        tools = to_openai_agents(ledger.box)

        async def main():
            for _ in range(2):
                with trace("Work", group_id="user 7"):
                    await self.driver.run(tools, [[Call("call_0", "pay", {"amount": 5})], "Done."])

        asyncio.run(main())
        assert ledger.paid == [5, 5]

    def test_run_id_is_the_group_of_the_trace(self):
        ledger = Ledger()

        async def main():
            with trace("Work", group_id="conversation 7"):
                await self.driver.run(
                    to_openai_agents(ledger.box), [[Call("c1", "get_weather", {"city": "Rome"})], "Done."]
                )

        asyncio.run(main())
        assert ledger.contexts[0].run_id == "conversation 7"

    def test_withdrawn_tool_is_not_offered(self):
        reasons = [None]
        box = Ledger().box.filter("pay").with_options(withdrawn=lambda: reasons[0])
        tools = to_openai_agents(box)
        assert asyncio.run(self.driver.run(tools, ["Done."])).schemas.keys() == {"pay"}
        reasons[0] = "the bank is closed"
        assert asyncio.run(self.driver.run(tools, ["Done."])).schemas == {}

    def test_copied_tool_gives_its_entry_back(self):
        box = Ledger().box
        copied = [copy.copy(tool) for tool in to_openai_agents(box)]
        assert from_openai_agents(copied).find("pay") is box.find("pay")

    def test_media_are_images_of_the_output(self):
        @toolwire.tool(effect="read")
        def draw() -> Media:
            """Draw."""
            return Media("image", "image/png", "aGk=")

        [drawing] = to_openai_agents(draw)
        context = ToolContext(context=None, tool_name="draw", tool_call_id="c1", tool_arguments="{}")
        [image] = asyncio.run(drawing.on_invoke_tool(context, "{}"))
        assert image.image_url == "data:image/png;base64,aGk="


def run_call(box, name, arguments, *, deps=None, approve=None):
    return Runner(box, approve=approve).run_sync([ToolCall("c1", name, arguments)], deps=deps)[0]


class TestOpenAIAgentsTool:
    def make(self):
        @function_tool
        def greet(ctx: RunContextWrapper[dict], name: str) -> str:
            """Greet a person."""
            return f"{ctx.context['word']} {name}"

        @function_tool(needs_approval=True, timeout=5)
        async def wipe(disk: str) -> dict:
            """Wipe a disk."""
            return {"wiped": disk}

        @function_tool(failure_error_function=None)
        def spend(amount: int) -> str:
            """Spend an amount."""
            if amount < 0:
                raise ValueError("negative")
            return "spent"

        return [greet, wipe, spend]

    def test_declarations_are_kept_and_the_default_effect_is_write(self):
        box = from_openai_agents(self.make(), effects={"greet": "pure"})
        greet, wipe = box.find("greet"), box.find("wipe")
        assert (greet.tool.effect, wipe.tool.effect, greet.tool.strict) == ("pure", "write", True)
        assert greet.tool.description == "Greet a person."
        assert greet.tool.input_schema["required"] == ["name"]
        assert (wipe.options.approve, wipe.options.timeout) == (True, 5)

    def test_dependencies_are_the_context(self):
        assert run_call(from_openai_agents(self.make()), "greet", {"name": "Ann"}, deps={"word": "Hi"}).text == "Hi Ann"

    def test_tool_that_needs_approval_runs_only_with_it(self):
        box = from_openai_agents(self.make())
        assert "needs approval" in run_call(box, "wipe", {"disk": "a"}).text
        assert "wiped" in run_call(box, "wipe", {"disk": "a"}, approve=lambda _: True).text

    def test_approval_function_decides_per_call(self):
        async def is_large(context, arguments, call_id):
            return arguments["amount"] > 10

        @function_tool(needs_approval=is_large)
        def give(amount: int) -> str:
            """Give an amount."""
            return "given"

        box = from_openai_agents(give)
        assert run_call(box, "give", {"amount": 5}).text == "given"
        assert "needs approval" in run_call(box, "give", {"amount": 50}).text
        assert run_call(box, "give", {"amount": 50}, approve=lambda _: True).text == "given"

    def test_exception_of_a_tool_without_error_function_is_an_error(self):
        result = run_call(from_openai_agents(self.make()), "spend", {"amount": -1})
        assert result.is_error
        assert "negative" in result.text

    def test_annotations_of_mcp_give_the_effect(self):
        from mcp.types import ToolAnnotations

        tool = self.make()[0]
        tool._mcp_annotations = ToolAnnotations.model_validate({"readOnlyHint": True})
        assert from_openai_agents(tool).tools[0].effect == "read"

    def test_guardrails_and_hosted_tools_are_refused(self):
        tool = self.make()[0]
        tool.tool_input_guardrails = [object()]
        with pytest.raises(ConfigError, match="guardrails"):
            from_openai_agents(tool)
        with pytest.raises(ConfigError, match="not a function tool"):
            from_openai_agents(agents.WebSearchTool())
