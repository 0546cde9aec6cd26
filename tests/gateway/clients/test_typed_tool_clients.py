"""Clients that run tools of their provider (bash, an editor, a shell, patches, a computer) over other providers."""

from __future__ import annotations

import json

import anthropic
import pytest

from hostile import run
from responses_sdk import create, text_answer, world
from serving import serving, upstream_rows
from toolwire import Response, ToolCall
from toolwire.ir.parts import Artefact, Media, Text, ToolResult
from toolwire.ir.response import Stop, Usage
from toolwire.testing import Upstream

MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
BASH = {"type": "bash_20250124", "name": "bash"}
EDITOR = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
IMAGE = "data:image/png;base64,iVBORw0KGgo="
CLICK = {"type": "click", "button": "left", "x": 3, "y": 4}


def calls(*named):
    parts = tuple(ToolCall(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(named))
    return Response("r", "m", parts, Stop("tool_calls"), Usage(5, 5))


def sent_parts(upstream, kind):
    """Return the parts of a kind in the last request that the upstream got."""
    request = upstream.requests[-1].request
    assert request is not None
    return [part for message in request.messages for part in message.parts if isinstance(part, kind)]


async def ask_anthropic(client, stream, **fields):
    if not stream:
        return await client.messages.create(**fields)
    async with client.messages.stream(**fields) as events:
        return await events.get_final_message()


@MODES
@pytest.mark.parametrize("wire", ["openai_chat", "gemini", "openai_responses", "ollama"])
@run
async def test_anthropic_client_runs_bash_and_the_editor(wire, stream):
    view = {"command": "view", "path": "/a.py"}
    script = [calls(("bash", {"command": "ls"}), ("str_replace_based_edit_tool", view)), text_answer("Done.")]
    async with Upstream(*script) as upstream, serving({"upstreams": upstream_rows(upstream.url)}) as gateway:
        client = anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0)
        fields = {"model": f"{wire}/m", "max_tokens": 100, "tools": [BASH, EDITOR]}
        history = [{"role": "user", "content": "Look around."}]
        first = await ask_anthropic(client, stream, messages=history, **fields)
        assert first.stop_reason == "tool_use"
        assert [(block.name, block.input) for block in first.content] == [
            ("bash", {"command": "ls"}),
            ("str_replace_based_edit_tool", view),
        ]
        declared = upstream.requests[0].request.tools
        assert [(tool.kind, tool.name) for tool in declared] == [
            ("function", "bash"),
            ("function", "str_replace_based_edit_tool"),
        ]
        assert all(tool.description and tool.input_schema for tool in declared)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"output of {block.name}"}
            for block in first.content
        ]
        history += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        second = await ask_anthropic(client, stream, messages=history, **fields)
        assert second.content[0].text == "Done."
        assert [part.text for part in sent_parts(upstream, ToolResult)] == [
            "output of bash",
            "output of str_replace_based_edit_tool",
        ]
        await client.close()


TOOLS = [{"type": "shell", "environment": {"type": "local"}}, {"type": "apply_patch"}, {"type": "computer"}]
PATCH = {"type": "create_file", "path": "a.txt", "diff": "+a"}
ANSWER = calls(("shell", {"commands": ["ls"]}), ("apply_patch", PATCH), ("computer", {"actions": [CLICK]}))


def outputs_for(items):
    """Return the items with which a client answers the calls."""
    shell, patch, computer = (item.call_id for item in items)
    exit_code = {"type": "exit", "exit_code": 0}
    return [
        {
            "type": "shell_call_output",
            "call_id": shell,
            "output": [{"stdout": "a.txt\n", "stderr": "", "outcome": exit_code}],
        },
        {"type": "apply_patch_call_output", "call_id": patch, "status": "completed", "output": "Created a.txt"},
        {
            "type": "computer_call_output",
            "call_id": computer,
            "output": {"type": "computer_screenshot", "image_url": IMAGE},
        },
    ]


@MODES
@pytest.mark.parametrize("stored", [False, True], ids=["whole history", "previous response"])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic", "gemini", "ollama"])
@run
async def test_responses_client_runs_a_shell_patches_and_a_computer(wire, stored, stream, tmp_path):
    store = str(tmp_path / "responses.db") if stored else None
    async with world(ANSWER, text_answer("Done."), store=store) as at:
        fields = {"model": f"{wire}/m", "tools": TOOLS, "stream": stream}
        opening = [{"role": "user", "content": "Go."}]
        first = await create(at.client, input=opening, **fields)
        assert [item.type for item in first.output] == ["shell_call", "apply_patch_call", "computer_call"]
        shell, patch, computer = first.output
        assert (shell.action.commands, shell.status) == (["ls"], "completed")
        assert patch.operation.model_dump() == PATCH
        assert computer.actions[0].x == 3
        declared = at.upstream.requests[0].request.tools
        assert [(tool.kind, tool.name) for tool in declared] == [
            ("function", "shell"),
            ("function", "apply_patch"),
            ("function", "computer"),
        ]
        outputs = outputs_for(first.output)
        if stored:
            second = await create(at.client, input=outputs, previous_response_id=first.id, **fields)
        else:
            items = [item.model_dump(exclude_none=True) for item in first.output]
            second = await create(at.client, input=[*opening, *items, *outputs], **fields)
        assert second.output_text == "Done."
        sent = sent_parts(at.upstream, ToolCall)
        assert [(call.name, call.arguments) for call in sent] == [(call.name, call.arguments) for call in ANSWER.calls]
        results = sent_parts(at.upstream, ToolResult)
        assert [result.call_id for result in results] == [call.id for call in sent]
        assert [result.text for result in results][:2] == ["a.txt", "Created a.txt"]
        images = [*sent_parts(at.upstream, Media), *(part for part in results[2].parts if isinstance(part, Media))]
        assert [image.data for image in images] == ["iVBORw0KGgo="]


@MODES
@run
async def test_signature_of_a_call_returns_to_its_model(stream):
    """The item of a shell has no field for the signature, so the gateway stores it."""
    signature = Artefact("google", "thought_signature", "c2lnbmF0dXJl", "m")
    call = ToolCall("call_0", "shell", {"commands": ["ls"]}, artefacts=(signature,))
    answer = Response("r", "m", (call,), Stop("tool_calls"), Usage(5, 5))
    async with world(answer, text_answer("Done."), store=None) as at:
        fields = {"model": "gemini/m", "tools": TOOLS[:1], "stream": stream}
        opening = [{"role": "user", "content": "Go."}]
        first = await create(at.client, input=opening, **fields)
        [shell] = first.output
        output = {
            "type": "shell_call_output",
            "call_id": shell.call_id,
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        }
        item = shell.model_dump(exclude_none=True)
        second = await create(at.client, input=[*opening, item, output], **fields)
        assert second.output_text == "Done."
        [sent] = sent_parts(at.upstream, ToolCall)
        assert [artefact.data for artefact in sent.artefacts] == ["c2lnbmF0dXJl"]


@MODES
@run
async def test_model_without_tool_calls_runs_a_shell(stream):
    text = '<tool_call>\n{"name": "shell", "arguments": {"commands": ["ls"]}}\n</tool_call>'
    plain = {"plain": {"upstream": "openai_chat", "model": "m", "emulate": "hermes"}}
    async with world(text_answer(text), text_answer("Done."), store=None, models=plain) as at:
        fields = {"model": "plain", "tools": TOOLS[:1], "stream": stream}
        opening = [{"role": "user", "content": "Go."}]
        first = await create(at.client, input=opening, **fields)
        [shell] = first.output
        assert (shell.type, shell.action.commands) == ("shell_call", ["ls"])
        output = {
            "type": "shell_call_output",
            "call_id": shell.call_id,
            "output": [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        }
        item = shell.model_dump(exclude_none=True)
        second = await create(at.client, input=[*opening, item, output], **fields)
        assert second.output_text == "Done."
        prompt = json.dumps([part.text for part in sent_parts(at.upstream, Text)])
        assert "commands" in prompt
        assert "a.txt" in prompt


@run
async def test_conversation_moves_to_the_provider_of_the_tools(tmp_path):
    """A call of another provider and the client's result have one form, also where the items are known."""
    store = str(tmp_path / "responses.db")
    async with world(calls(("shell", {"commands": ["ls"]})), text_answer("Done."), store=store) as at:
        first = await create(at.client, stream=False, model="openai_chat/m", tools=TOOLS[:1], input="Go.")
        [shell] = first.output
        output = {
            "type": "shell_call_output",
            "call_id": shell.call_id,
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        }
        second = await create(
            at.client,
            stream=False,
            model="openai_responses/m",
            tools=TOOLS[:1],
            input=[output],
            previous_response_id=first.id,
        )
        assert second.output_text == "Done."
        items = json.loads(at.upstream.requests[-1].body)["input"]
        kinds = [item.get("type") for item in items if "call_id" in item]
        assert kinds in (["function_call", "function_call_output"], ["shell_call", "shell_call_output"])


@pytest.mark.parametrize("wire", ["anthropic", "openai_chat"])
@run
async def test_selection_of_tools_always_offers_them(wire):
    """The models of Anthropic know `bash`, so its declaration is sent as it is, and nothing can search for it."""
    functions = [
        {"name": f"tool_{number}", "description": f"Does {number}.", "input_schema": {"type": "object"}}
        for number in range(60)
    ]
    async with Upstream(text_answer("Done.")) as upstream:
        models = {"m": {"upstream": wire, "retrieve": True}}
        async with serving({"upstreams": upstream_rows(upstream.url), "models": models}) as gateway:
            client = anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0)
            question = [{"role": "user", "content": "Go."}]
            await client.messages.create(model="m", max_tokens=9, messages=question, tools=[*functions, BASH])
            await client.close()
        sent = upstream.requests[0].request
        kind = "typed" if wire == "anthropic" else "function"
        assert [tool.kind for tool in sent.tools if tool.name == "bash"] == [kind]
        assert len(sent.tools) < 60
