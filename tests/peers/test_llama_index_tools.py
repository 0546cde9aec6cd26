"""A toolbox in LlamaIndex's `FunctionAgent`, and tools of LlamaIndex in toolwire."""

import asyncio

import pytest

import toolwire
from framework_contract import Call, Driver, FrameworkContract, Ledger, Outcome
from toolwire import Runner, ToolCall
from toolwire.adapters import from_llama_index, to_llama_index
from toolwire.ir import ConfigError, Media

pytest.importorskip("llama_index.core")
pytestmark = pytest.mark.filterwarnings("default")

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ImageBlock,
    LLMMetadata,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.llms import MockLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.tools.types import BaseTool
from llama_index.core.workflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)


class FakeModel(MockLLM, FunctionCallingLLM):
    """A model with tool calls that follows a script."""

    turns: list = []
    offered: dict = {}

    def __init__(self, turns):
        super().__init__()
        self.turns, self.offered = list(turns), {}

    @property
    def metadata(self):
        return LLMMetadata(is_function_calling_model=True)

    def _prepare_chat_with_tools(self, tools, chat_history=None, **_):
        self.offered.update({tool.metadata.name: tool.metadata.get_parameters_dict() for tool in tools})
        return {"messages": list(chat_history or [])}

    async def astream_chat(self, messages, **_):
        turn = self.turns.pop(0)
        calls = [] if isinstance(turn, str) else turn
        blocks = [ToolCallBlock(tool_call_id=one.id, tool_name=one.name, tool_kwargs=one.arguments) for one in calls]
        text = turn if isinstance(turn, str) else ""
        message = ChatMessage(role="assistant", blocks=[TextBlock(text=text), *blocks])
        selections = [ToolSelection(tool_id=one.id, tool_name=one.name, tool_kwargs=one.arguments) for one in calls]

        async def stream():
            yield ChatResponse(message=message, delta=text, raw={"selections": selections})

        return stream()

    def get_tool_calls_from_response(self, response, **_):
        return response.raw["selections"]


class LlamaIndex(Driver):
    def convert(self, tools, **options):
        return to_llama_index(tools, **options)

    def convert_back(self, converted, **options):
        return from_llama_index(converted, **options)

    async def run(self, converted, script, *, deps=None, decide=None, context=None):
        outcome, model = Outcome(), FakeModel(turns=script)
        handler = FunctionAgent(tools=converted, llm=model).run("Go.", ctx=context)
        try:
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    outcome.asked.append(event.tool_call_id)
                    response = "yes" if decide(event.tool_call_id) else "no"
                    handler.ctx.send_event(HumanResponseEvent(response=response, tool_call_id=event.tool_call_id))
                if isinstance(event, ToolCallResult):
                    outcome.results[event.tool_id] = event.tool_output.content
            outcome.text = str(await handler)
        except asyncio.CancelledError:
            await handler.cancel_run()
            raise
        outcome.schemas = model.offered
        return outcome

    async def call_twice(self, converted, call):
        agent = FunctionAgent(tools=converted, llm=FakeModel(turns=[[call], "Done.", [call], "Done."]))
        context = Context(agent)
        for _ in range(2):
            await agent.run("Go.", ctx=context)


class TestToolboxInLlamaIndex(FrameworkContract):
    driver = LlamaIndex()
    context_is_deps = False  # the context of the workflow

    def test_dependency_is_the_context_of_the_workflow(self):
        ledger = Ledger()
        self.run(ledger.box, [[Call("c1", "get_weather", {"city": "Rome"})], "Done."])
        assert isinstance(ledger.contexts[0].deps, Context)

    def test_answer_with_another_call_id_is_ignored(self):
        ledger = Ledger()

        async def main():
            model = FakeModel(turns=[[Call("c1", "transfer", {"amount": 5})], "Done."])
            handler = FunctionAgent(tools=to_llama_index(ledger.box), llm=model).run("Go.")
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    assert (event.tool, event.arguments, event.reason) == (
                        "transfer",
                        {"amount": 5},
                        "money leaves the account",
                    )
                    handler.ctx.send_event(HumanResponseEvent(response="yes", tool_call_id="c9"))
                    handler.ctx.send_event(HumanResponseEvent(response="no", tool_call_id="c1"))
            await handler

        asyncio.run(main())
        assert ledger.paid == []

    def test_sync_and_async_calls_outside_of_a_workflow(self):
        weather, _, transfer, *_ = to_llama_index(Ledger().box)
        assert weather.call(city="Rome").content == "sun in Rome for 1 days"
        assert weather(city="Rome").raw_output == "sun in Rome for 1 days"
        assert asyncio.run(weather.acall(city="Rome")).content == "sun in Rome for 1 days"
        for output in (transfer.call(amount=5), asyncio.run(transfer.acall(amount=5))):
            assert output.is_error
            assert "needs approval and was not approved: money leaves the account" in output.content

    def test_step_without_a_tool_call_is_not_asked_forever(self):
        """In a workflow of its own, the step has no call id by which a repeated call could be recognised."""
        ledger = Ledger()
        transfer = to_llama_index(ledger.box)[2]

        class OwnWorkflow(Workflow):
            @step
            async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
                return StopEvent(result=await transfer.acall(**{transfer.ctx_param_name: ctx, "amount": 5}))

        async def main():
            return await OwnWorkflow().run()

        output = asyncio.run(main())
        assert output.is_error
        assert "needs approval" in output.content
        assert ledger.paid == []

    def test_structured_result_is_the_raw_output(self):
        output = to_llama_index(Ledger().box)[1].call(amount=5)
        assert (output.content, output.raw_output, output.is_error) == ('{"paid":5}', {"paid": 5}, False)

    def test_positional_argument_is_an_error(self):
        with pytest.raises(ConfigError, match="named arguments"):
            to_llama_index(Ledger().box)[0].call("Rome")

    def test_media_are_blocks(self):
        @toolwire.tool(effect="read")
        def draw() -> Media:
            """Draw."""
            return Media("image", "image/png", "aGk=")

        [drawing] = to_llama_index(draw)
        [image] = [block for block in drawing.call().blocks if isinstance(block, ImageBlock)]
        assert image.resolve_image().read() == b"hi"


def run_call(box, name, arguments, *, deps=None):
    return Runner(box).run_sync([ToolCall("c1", name, arguments)], deps=deps)[0]


class TestLlamaIndexTool:
    def test_declaration_is_kept_and_the_default_effect_is_write(self):
        def add(a: int, b: int = 2) -> int:
            """Add numbers."""
            return a + b

        tool = FunctionTool.from_defaults(add, description="Add numbers.")
        declared = from_llama_index(tool).tools[0]
        assert (declared.name, declared.description, declared.effect) == ("add", "Add numbers.", "write")
        assert declared.input_schema["required"] == ["a"]
        assert from_llama_index(tool, effects={"add": "pure"}).tools[0].effect == "pure"
        assert run_call(from_llama_index(tool), "add", {"a": 1}).structured == 3

    def test_context_of_the_workflow_is_the_dependency(self):
        async def whoami(ctx: Context, greeting: str) -> dict:
            """Return the user."""
            return {"greeting": greeting, "user": ctx["user"]}

        box = from_llama_index(FunctionTool.from_defaults(async_fn=whoami))
        assert "ctx" not in box.tools[0].input_schema["properties"]
        assert run_call(box, "whoami", {"greeting": "Hi"}, deps={"user": "ann"}).structured == {
            "greeting": "Hi",
            "user": "ann",
        }

    def test_error_output_and_exception_are_errors(self):
        class Broken(BaseTool):
            metadata = ToolMetadata(description="Break.", name="broken")

            def __call__(self, input):  # noqa: A002
                text = f"cannot read {input}"
                return ToolOutput(tool_name="broken", content=text, raw_input={"input": input}, is_error=True)

        result = run_call(from_llama_index(Broken()), "broken", {"input": "x"})
        assert (result.is_error, result.text) == (True, "cannot read x")

        def fail() -> str:
            """Fail."""
            raise ValueError("no such file")

        result = run_call(from_llama_index(FunctionTool.from_defaults(fail)), "fail", {})
        assert result.is_error
        assert "no such file" in result.text
