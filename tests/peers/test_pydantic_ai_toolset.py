"""A toolbox in PydanticAI's agent loop, and toolsets of PydanticAI in toolwire."""

import asyncio
import json

import pytest

import toolwire
from framework_contract import Driver, FrameworkContract, Ledger, Outcome
from toolwire import Agent, Runner, ToolCall
from toolwire.adapters import from_pydantic_ai, to_pydantic_ai
from toolwire.ir import ConfigError, Media
from toolwire.testing import ScriptedModel, says


@pytest.fixture(scope="module", autouse=True)
def peer():
    """Import PydanticAI where its tests run: it takes seconds, which every worker would spend on collecting them."""
    global pydantic_ai, BinaryContent, CombinedToolset, DeferredToolRequests, DeferredToolResults, FunctionModel
    global FunctionToolset, ModelRequest, ModelResponse, ModelRetry, RunContext, TextPart, ToolCallPart, ToolDenied
    global ToolFailed, ToolReturnPart, UserPromptPart
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from pydantic_ai import DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext, ToolDenied, ToolFailed
    from pydantic_ai.messages import (
        BinaryContent,
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.toolsets import CombinedToolset, FunctionToolset


class PydanticAI(Driver):
    def convert(self, tools, **options):
        return to_pydantic_ai(tools, **options)

    def convert_back(self, converted, **options):
        return from_pydantic_ai(converted, **options)

    async def run(self, converted, script, *, deps=None, decide=None):
        outcome, turns = Outcome(), iter(script)

        def answer(messages, info):
            outcome.schemas = {tool.name: tool.parameters_json_schema for tool in info.function_tools}
            turn = next(turns)
            if isinstance(turn, str):
                return ModelResponse(parts=[TextPart(turn)])
            return ModelResponse(parts=[ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in turn])

        agent = pydantic_ai.Agent(
            FunctionModel(answer), toolsets=[converted], deps_type=object, output_type=[str, DeferredToolRequests]
        )
        done = await agent.run("Go.", deps=deps)
        while isinstance(done.output, DeferredToolRequests):
            outcome.asked += [part.tool_call_id for part in done.output.approvals]
            replies = {part.tool_call_id: decide(part.tool_call_id) or ToolDenied() for part in done.output.approvals}
            done = await agent.run(
                message_history=done.all_messages(),
                deferred_tool_results=DeferredToolResults(approvals=replies),
                deps=deps,
            )
        outcome.text = done.output
        for message in done.all_messages():
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    outcome.results[part.tool_call_id] = part.model_response_str()
        return outcome

    async def call_twice(self, converted, call):
        """Run an agent twice from a history whose last message has the call."""
        agent = pydantic_ai.Agent(
            FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("Done.")])), toolsets=[converted]
        )
        parts = [ToolCallPart(call.name, call.arguments, tool_call_id=call.id)]
        history = [ModelRequest(parts=[UserPromptPart("Go.")]), ModelResponse(parts=parts)]
        for _ in range(2):
            await agent.run(message_history=history, conversation_id="one conversation")


class TestToolboxInPydanticAI(FrameworkContract):
    driver = PydanticAI()

    def test_definition_has_the_effect_the_output_schema_and_the_reason_for_approval(self):
        toolset = to_pydantic_ai(Ledger().box)
        context = RunContext(deps=None, model=FunctionModel(lambda *_: None), usage=None)
        tools = asyncio.run(toolset.get_tools(context))
        transfer, weather = tools["transfer"].tool_def, tools["get_weather"].tool_def
        assert transfer.metadata["toolwire"] == {"effect": "write", "approve": True}
        assert transfer.sequential
        assert weather.metadata["annotations"] == {"readOnlyHint": True, "idempotentHint": True}
        assert tools["pay"].tool_def.return_schema == Ledger().box.find("pay").tool.output_schema

    def test_media_of_a_result_are_content_of_the_message(self):
        @toolwire.tool(effect="read")
        def draw() -> Media:
            """Draw."""
            return Media("image", "image/png", "aGk=")

        toolset = to_pydantic_ai(draw)
        seen = []

        def answer(messages, info):
            seen.extend(part for message in messages for part in message.parts)
            return ModelResponse(parts=[TextPart("Done.")] if len(messages) > 1 else [ToolCallPart("draw", {})])

        asyncio.run(pydantic_ai.Agent(FunctionModel(answer), toolsets=[toolset]).run("Go."))
        content = [item for part in seen if isinstance(part, UserPromptPart) for item in part.content]
        assert [item.data for item in content if isinstance(item, BinaryContent)] == [b"hi"]

    def test_tools_read_a_shortened_result(self):
        """PydanticAI lists tools before every step, so `read_output` is offered when it is needed."""
        offered = []

        def answer(messages, info):
            offered.append([tool.name for tool in info.function_tools])
            return ModelResponse(parts=[TextPart("Done.")] if len(messages) > 1 else [ToolCallPart("read_log", {})])

        asyncio.run(pydantic_ai.Agent(FunctionModel(answer), toolsets=[to_pydantic_ai(Ledger().box)]).run("Go."))
        assert "read_output" not in offered[0]
        assert "read_output" in offered[1]


def run_call(box, name, arguments, *, deps=None, approve=None):
    return Runner(box, approve=approve).run_sync([ToolCall("c1", name, arguments)], deps=deps)[0]


class TestPydanticAIToolset:
    def make(self):
        toolset = FunctionToolset()

        @toolset.tool
        def greet(ctx: RunContext[dict], name: str, times: int = 1) -> str:
            """Greet a person."""
            return f"{ctx.deps['word']} {name}" * times + f" ({ctx.tool_call_id})"

        @toolset.tool_plain(requires_approval=True)
        async def wipe(disk: str) -> dict:
            """Wipe a disk."""
            return {"wiped": disk}

        @toolset.tool_plain
        def stock(product: str) -> int:
            """Count items."""
            if product == "umbrela":
                raise ModelRetry("did you mean umbrella?")
            raise ToolFailed("the warehouse burned down")

        return toolset

    def test_declarations_are_kept_and_the_default_effect_is_write(self):
        box = from_pydantic_ai(self.make(), effects={"greet": "pure"})
        greet, wipe = box.find("greet"), box.find("wipe")
        assert (greet.tool.effect, wipe.tool.effect) == ("pure", "write")
        assert greet.tool.description == "Greet a person."
        assert greet.tool.input_schema["required"] == ["name"]
        assert wipe.options.approve is True
        assert greet.options.approve is False

    def test_dependencies_and_call_id_reach_the_run_context(self):
        box = from_pydantic_ai(self.make())
        assert run_call(box, "greet", {"name": "Ann"}, deps={"word": "Hi"}).text == "Hi Ann (c1)"

    def test_tool_that_requires_approval_runs_only_with_it(self):
        box = from_pydantic_ai(self.make())
        assert "needs approval" in run_call(box, "wipe", {"disk": "a"}).text
        assert run_call(box, "wipe", {"disk": "a"}, approve=lambda _: True).structured == {"wiped": "a"}

    def test_approval_of_a_wrapped_toolset_is_kept(self):
        toolset = self.make().approval_required(lambda ctx, definition, arguments: arguments.get("name") == "Eve")
        box = from_pydantic_ai(toolset)
        assert "needs approval" in run_call(box, "greet", {"name": "Eve"}, deps={"word": "Hi"}).text
        assert run_call(box, "greet", {"name": "Ann"}, deps={"word": "Hi"}).text == "Hi Ann (c1)"
        approved = run_call(box, "greet", {"name": "Eve"}, deps={"word": "Hi"}, approve=lambda _: True)
        assert approved.text == "Hi Eve (c1)"

    @pytest.mark.parametrize(
        ("wrap", "name"),
        [
            (lambda toolset: toolset.prefixed("p"), "p_greet"),
            (lambda toolset: toolset.renamed({"hail": "greet"}), "hail"),
            (lambda toolset: toolset.filtered(lambda ctx, definition: True), "greet"),
            (lambda toolset: CombinedToolset([toolset]).prefixed("p").prefixed("q"), "q_p_greet"),
            (lambda toolset: toolset.approval_required(lambda ctx, definition, arguments: False), "greet"),
        ],
        ids=["prefixed", "renamed", "filtered", "combined", "twice"],
    )
    def test_approval_inside_of_another_wrapper_is_kept(self, wrap, name):
        seen = []

        def is_needed(ctx, definition, arguments):
            seen.append(definition.name)
            return arguments.get("name") == "Eve"

        box = from_pydantic_ai(wrap(self.make().approval_required(is_needed)))
        assert "needs approval" in run_call(box, name, {"name": "Eve"}, deps={"word": "Hi"}).text
        assert run_call(box, name, {"name": "Ann"}, deps={"word": "Hi"}).text == "Hi Ann (c1)"
        approved = run_call(box, name, {"name": "Eve"}, deps={"word": "Hi"}, approve=lambda _: True)
        assert approved.text == "Hi Eve (c1)"
        assert set(seen) == {"greet"}

    def test_list_of_toolsets_is_accepted(self):
        box = Ledger().box
        both = from_pydantic_ai([to_pydantic_ai(box), self.make()], effects={"greet": "read"})
        assert both.find("pay") is box.find("pay")
        assert both.find("greet").tool.effect == "read"
        with pytest.raises(ConfigError, match="is not a toolset"):
            from_pydantic_ai([print])

    @pytest.mark.parametrize(
        ("product", "text"), [("umbrela", "did you mean umbrella?"), ("hat", "the warehouse burned down")]
    )
    def test_errors_for_the_model_keep_their_message(self, product, text):
        result = run_call(from_pydantic_ai(self.make()), "stock", {"product": product})
        assert (result.is_error, result.text) == (True, text)

    def test_combined_toolset_gives_its_own_entries_back(self):
        box = Ledger().box
        combined = from_pydantic_ai(CombinedToolset([to_pydantic_ai(box), self.make()]))
        assert combined.find("pay") is box.find("pay")
        assert combined.find("greet") is not None

    def test_same_toolbox_comes_back(self):
        box = Ledger().box
        assert from_pydantic_ai(to_pydantic_ai(box)) is box

    def test_annotations_of_mcp_give_the_effect(self):
        toolset = FunctionToolset()
        toolset.add_function(
            lambda: "x", takes_ctx=False, name="look", metadata={"annotations": {"readOnlyHint": True}}
        )
        toolset.add_function(
            lambda: "x", takes_ctx=False, name="put", metadata={"annotations": {"idempotentHint": True}}
        )
        effects = {tool.name: tool.effect for tool in from_pydantic_ai(toolset).tools}
        assert effects == {"look": "read", "put": "idempotent"}

    def test_unknown_effect_is_an_error(self):
        with pytest.raises(ConfigError, match="unknown effect"):
            from_pydantic_ai(self.make(), effects={"greet": "harmless"})

    def test_tools_run_in_the_agent_loop_of_toolwire(self):
        model = ScriptedModel([says(ToolCall("c1", "greet", {"name": "Ann"})), says("Done.")])
        answer = Agent(model, from_pydantic_ai(self.make()), deps_type=dict).run_sync("Go.", deps={"word": "Hi"})
        assert answer.text == "Done."
        assert "Hi Ann (c1)" in json.dumps([str(message) for message in answer.messages])
