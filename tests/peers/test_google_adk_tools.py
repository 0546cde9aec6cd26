"""A toolbox in the runner of Google's ADK, and tools of ADK in toolwire."""

import asyncio
import json

import pytest

import toolwire
from framework_contract import Call, Driver, FrameworkContract, Ledger, Outcome
from toolwire import Runner, ToolCall
from toolwire.adapters import from_google_adk, to_google_adk
from toolwire.ir import ConfigError, Media

pytest.importorskip("google.adk")
pytestmark = pytest.mark.filterwarnings("default")

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import google_search
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types


class FakeModel(BaseLlm):
    model: str = "fake"
    turns: list
    offered: dict = {}

    async def generate_content_async(self, llm_request, stream=False):
        declared = [one for tool in llm_request.config.tools or [] for one in tool.function_declarations or []]
        self.offered.update({one.name: one.parameters_json_schema for one in declared})
        turn = self.turns.pop(0)
        if isinstance(turn, str):
            parts = [types.Part(text=turn)]
        else:
            parts = [
                types.Part(function_call=types.FunctionCall(id=one.id, name=one.name, args=one.arguments))
                for one in turn
            ]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def read_response(response):
    """Return the text of a response: that of `result` or `error`, else JSON."""
    if response.keys() <= {"result", "error"}:
        return next(iter(response.values()))
    return json.dumps(response)


class GoogleADK(Driver):
    def convert(self, tools, **options):
        return to_google_adk(tools, **options)

    def convert_back(self, converted, **options):
        return from_google_adk(converted, **options)

    async def run(self, converted, script, *, deps=None, decide=None):
        outcome, model = Outcome(), FakeModel(turns=list(script), offered={})
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=converted), app_name="app")
        session = await runner.session_service.create_session(app_name="app", user_id="ann")
        parts = [types.Part(text="Go.")]
        while parts:
            message, parts = types.Content(role="user", parts=parts), []
            async for event in runner.run_async(user_id="ann", session_id=session.id, new_message=message):
                for call in event.get_function_calls():
                    if call.name == "adk_request_confirmation":
                        call_id = call.args["originalFunctionCall"]["id"]
                        outcome.asked.append(call_id)
                        response = {"confirmed": decide(call_id)}
                        reply = types.FunctionResponse(id=call.id, name=call.name, response=response)
                        parts.append(types.Part(function_response=reply))
                for response in event.get_function_responses():
                    outcome.results[response.id] = read_response(response.response)
                if event.is_final_response() and event.content and event.content.parts and event.content.parts[0].text:
                    outcome.text = event.content.parts[0].text
        outcome.schemas = model.offered
        return outcome

    async def call_twice(self, converted, call):
        model = FakeModel(turns=[[call], "Done.", [call], "Done."])
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=converted), app_name="app")
        session = await runner.session_service.create_session(app_name="app", user_id="ann")
        for _ in range(2):
            message = types.Content(role="user", parts=[types.Part(text="Go.")])
            async for _event in runner.run_async(user_id="ann", session_id=session.id, new_message=message):
                pass


class TestToolboxInGoogleADK(FrameworkContract):
    driver = GoogleADK()
    context_is_deps = False  # the ToolContext

    def test_dependency_is_the_tool_context(self):
        ledger = Ledger()
        self.run(ledger.box, [[Call("c1", "get_weather", {"city": "Rome"})], "Done."])
        assert isinstance(ledger.contexts[0].deps, ToolContext)
        assert ledger.contexts[0].run_id == f"app/ann/{ledger.contexts[0].deps.session.id}"

    def test_same_session_id_of_another_user_is_another_conversation(self):
        ledger = Ledger()
        model = FakeModel(turns=[[Call("c1", "pay", {"amount": 5})], "Done."] * 2)
        runner = InMemoryRunner(agent=LlmAgent(name="clerk", model=model, tools=to_google_adk(ledger.box)))

        async def main():
            for user in ("ann", "bob"):
                await runner.session_service.create_session(app_name=runner.app_name, user_id=user, session_id="1")
                message = types.Content(role="user", parts=[types.Part(text="Go.")])
                async for _ in runner.run_async(user_id=user, session_id="1", new_message=message):
                    pass

        asyncio.run(main())
        assert ledger.paid == [5, 5]

    def test_declaration_has_the_effect_and_the_output_schema(self):
        pay = to_google_adk(Ledger().box)[1]
        assert pay.custom_metadata["toolwire"] == {"effect": "write", "approve": False}
        assert pay._get_declaration().response_json_schema == Ledger().box.find("pay").tool.output_schema

    def test_media_are_part_of_the_response(self):
        @toolwire.tool(effect="read")
        def draw() -> Media:
            """Draw."""
            return Media("image", "image/png", "aGk=")

        outcome = self.run(draw, [[Call("c1", "draw", {})], "Done."])
        assert json.loads(outcome.results["c1"])["media"] == [{"mime_type": "image/png", "data": "aGk="}]


def run_call(box, name, arguments, *, deps=None, approve=None):
    return Runner(box, approve=approve).run_sync([ToolCall("c1", name, arguments)], deps=deps)[0]


def greet(name: str, tool_context: ToolContext, times: int = 1) -> str:
    """Greet a person."""
    return f"{tool_context.state['temp:deps']['word']} {name} ({tool_context.function_call_id})" * times


async def wipe(disk: str) -> dict:
    """Wipe a disk."""
    return {"wiped": disk} if disk else {"error": "there is no such disk"}


class TestGoogleADKTool:
    def test_declarations_are_kept_and_the_default_effect_is_write(self):
        box = from_google_adk([greet, FunctionTool(wipe, require_confirmation=True)], effects={"greet": "pure"})
        declared, wiping = box.find("greet"), box.find("wipe")
        assert (declared.tool.effect, wiping.tool.effect) == ("pure", "write")
        assert declared.tool.description == "Greet a person."
        assert declared.tool.input_schema["required"] == ["name"]
        assert declared.tool.input_schema["properties"]["times"]["type"] == "integer"
        assert "tool_context" not in declared.tool.input_schema["properties"]
        assert wiping.options.approve is True

    def test_dependencies_and_call_id_reach_the_tool_context(self):
        assert run_call(from_google_adk(greet), "greet", {"name": "Ann"}, deps={"word": "Hi"}).text == "Hi Ann (c1)"

    def test_tool_that_requires_confirmation_runs_only_with_approval(self):
        box = from_google_adk(FunctionTool(wipe, require_confirmation=True))
        assert "needs approval" in run_call(box, "wipe", {"disk": "a"}).text
        assert run_call(box, "wipe", {"disk": "a"}, approve=lambda _: True).structured == {"wiped": "a"}

    def test_confirmation_function_decides_per_call(self):
        box = from_google_adk(FunctionTool(wipe, require_confirmation=lambda disk: disk == "system"))
        assert run_call(box, "wipe", {"disk": "a"}).structured == {"wiped": "a"}
        assert "needs approval" in run_call(box, "wipe", {"disk": "system"}).text
        assert run_call(box, "wipe", {"disk": "system"}, approve=lambda _: True).structured == {"wiped": "system"}

    def test_error_response_is_an_error(self):
        result = run_call(from_google_adk(wipe), "wipe", {"disk": ""})
        assert (result.is_error, result.text) == (True, "there is no such disk")

    def test_metadata_give_the_effect(self):
        tool = FunctionTool(wipe)
        tool.custom_metadata = {"annotations": {"idempotentHint": True}}
        assert from_google_adk(tool).tools[0].effect == "idempotent"

    def test_schema_of_gemini_becomes_json_schema(self):
        class Old(BaseTool):
            def _get_declaration(self):
                text = types.Schema(type=types.Type.STRING, nullable=True, max_length=5)
                schema = types.Schema(type=types.Type.OBJECT, properties={"q": text}, required=["q"])
                return types.FunctionDeclaration(name="old", description="Old.", parameters=schema)

        declared = from_google_adk(Old(name="old", description="Old.")).tools[0]
        assert declared.input_schema["properties"]["q"] == {"type": ["string", "null"], "maxLength": 5}

    def test_tool_of_the_provider_is_refused(self):
        with pytest.raises(ConfigError, match="Gemini runs it"):
            from_google_adk(google_search)
