"""The official SDKs as clients of the gateway, behind one face: ask, read the calls, send their results back.

Every client keeps what its SDK gave it and sends that back, as its users do.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import anthropic
import cohere
import openai
from google import genai
from google.genai import types

from shapes import Call

KEY = "not-a-key"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
IMAGE = base64.b64encode(PNG).decode()


class Function(NamedTuple):
    name: str
    description: str
    parameters: dict[str, Any]


class Result(NamedTuple):
    call: Call
    text: str
    is_error: bool = False
    image: bool = False


class Answer(NamedTuple):
    """`said` is the turn of the model as it goes back."""

    text: str
    calls: list[Call]
    stop: str
    said: list[Any]


class Client(Protocol):
    flags_errors: bool  # whether its protocol says that a tool failed
    stops: tuple[str, str]  # its words for: there are calls, there are none

    async def ask(
        self, model: str, history: list[Any], tools: Sequence[Function], choice: str | None, *, stream: bool
    ) -> Answer:
        """`choice` is None, "none", or the name of the tool that must be called."""
        ...

    def user_message(self, text: str) -> list[Any]: ...

    def results(self, results: Sequence[Result]) -> list[Any]: ...

    async def close(self) -> None: ...


class Chat:
    flags_errors = False
    stops = ("tool_calls", "stop")

    def __init__(self, url: str) -> None:
        self._client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)

    async def ask(self, model, history, tools, choice, *, stream):
        asked: dict[str, Any] = {"model": model, "messages": history}
        if tools:
            asked["tools"] = [{"type": "function", "function": tool._asdict()} for tool in tools]
        if choice is not None:
            asked["tool_choice"] = _openai_choice(choice, {"function": {"name": choice}})
        if stream:
            async with self._client.chat.completions.stream(**asked) as answer:
                completion = await answer.get_final_completion()
        else:
            completion = await self._client.chat.completions.create(**asked)
        only = completion.choices[0]
        message = only.message
        calls = [
            Call(one.id, one.function.name, json.loads(one.function.arguments)) for one in message.tool_calls or ()
        ]
        said = [message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"})]
        return Answer(message.content or "", calls, only.finish_reason, said)

    def user_message(self, text):
        return [{"role": "user", "content": text}]

    def results(self, results):
        told = [{"role": "tool", "tool_call_id": one.call.id, "content": one.text} for one in results]
        # a tool message is words alone: a picture follows as the user's
        url = {"url": f"data:image/png;base64,{IMAGE}"}
        seen = [{"role": "user", "content": [{"type": "image_url", "image_url": url}]} for one in results if one.image]
        return told + seen

    async def close(self):
        await self._client.close()


class Responses:
    flags_errors = False
    stops = ("completed", "completed")

    def __init__(self, url: str) -> None:
        self._client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)

    async def ask(self, model, history, tools, choice, *, stream):
        asked: dict[str, Any] = {"model": model, "input": history, "store": False}
        if tools:
            asked["tools"] = [{"type": "function", "strict": False, **tool._asdict()} for tool in tools]
        if choice is not None:
            asked["tool_choice"] = _openai_choice(choice, {"name": choice})
        if stream:
            async with self._client.responses.stream(**asked) as answer:
                response = await answer.get_final_response()
        else:
            response = await self._client.responses.create(**asked)
        made = [item for item in response.output if item.type == "function_call"]
        calls = [Call(item.call_id, item.name, json.loads(item.arguments)) for item in made]
        said = [item.to_dict() for item in response.output]
        for item in said:
            item.pop("parsed_arguments", None)  # the SDK's own, not the protocol's
        return Answer(response.output_text, calls, response.status, said)

    def user_message(self, text):
        return [{"role": "user", "content": text}]

    def results(self, results):
        return [
            {"type": "function_call_output", "call_id": one.call.id, "output": self._output(one)} for one in results
        ]

    def _output(self, result):
        if not result.image:
            return result.text
        picture = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{IMAGE}"}
        return [{"type": "input_text", "text": result.text}, picture]

    async def close(self):
        await self._client.close()


def _openai_choice(choice: str, one: dict) -> str | dict:
    return "none" if choice == "none" else {"type": "function", **one}


class Messages:
    flags_errors = True
    stops = ("tool_use", "end_turn")

    def __init__(self, url: str) -> None:
        self._client = anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0)

    async def ask(self, model, history, tools, choice, *, stream):
        asked: dict[str, Any] = {"model": model, "max_tokens": 100, "messages": history}
        if tools:
            asked["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools
            ]
        if choice is not None:
            asked["tool_choice"] = {"type": "none"} if choice == "none" else {"type": "tool", "name": choice}
        if stream:
            async with self._client.messages.stream(**asked) as answer:
                message = await answer.get_final_message()
        else:
            message = await self._client.messages.create(**asked)
        calls = [Call(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
        text = "".join(block.text for block in message.content if block.type == "text")
        return Answer(text, calls, message.stop_reason, [{"role": "assistant", "content": message.content}])

    def user_message(self, text):
        return [{"role": "user", "content": text}]

    def results(self, results):
        return [{"role": "user", "content": [self._result(one) for one in results]}]

    def _result(self, result):
        source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
        content = [{"type": "text", "text": result.text}, *[{"type": "image", "source": source}] * result.image]
        told: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call.id, "content": content}
        return {**told, "is_error": True} if result.is_error else told

    async def close(self):
        await self._client.close()


class Gemini:
    flags_errors = True
    stops = ("STOP", "STOP")

    def __init__(self, url: str) -> None:
        self._client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=url)).aio

    async def ask(self, model, history, tools, choice, *, stream):
        asked: dict[str, Any] = {"model": model, "contents": history, "config": self._config(tools, choice)}
        if stream:
            answers = [one async for one in await self._client.models.generate_content_stream(**asked)]
        else:
            answers = [await self._client.models.generate_content(**asked)]
        candidates = [one.candidates[0] for one in answers if one.candidates]
        parts = [part for one in candidates if one.content for part in one.content.parts or ()]
        made = [part.function_call for part in parts if part.function_call]
        calls = [Call(one.id, one.name, one.args) for one in made]
        text = "".join(part.text for part in parts if part.text and not part.thought)
        stop = [one.finish_reason.value for one in candidates if one.finish_reason][-1]
        return Answer(text, calls, stop, [types.Content(role="model", parts=parts)])

    def _config(self, tools, choice):
        config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
        if tools:
            declared = [
                types.FunctionDeclaration(
                    name=tool.name, description=tool.description, parameters_json_schema=tool.parameters
                )
                for tool in tools
            ]
            config["tools"] = [types.Tool(function_declarations=declared)]
        if choice is not None:
            forced = {"mode": "ANY", "allowed_function_names": [choice]}
            config["tool_config"] = {"function_calling_config": {"mode": "NONE"} if choice == "none" else forced}
        return types.GenerateContentConfig.model_validate(config)

    def user_message(self, text):
        return [types.Content(role="user", parts=[types.Part(text=text)])]

    def results(self, results):
        return [types.Content(role="user", parts=[self._result(one) for one in results])]

    def _result(self, result):
        blob = types.FunctionResponseBlob(mime_type="image/png", data=PNG)
        return types.Part(
            function_response=types.FunctionResponse(
                id=result.call.id,
                name=result.call.name,
                response={"error" if result.is_error else "output": result.text},
                parts=[types.FunctionResponsePart(inline_data=blob)] if result.image else None,
            )
        )

    async def close(self):
        await self._client.aclose()


class Cohere:
    flags_errors = False
    stops = ("TOOL_CALL", "COMPLETE")

    def __init__(self, url: str) -> None:
        self._client = cohere.AsyncClientV2(KEY, base_url=url, max_retries=0, log_warning_experimental_features=False)

    async def ask(self, model, history, tools, choice, *, stream):
        """A choice that names a tool is the same as a required call of the only tool."""
        asked: dict[str, Any] = {"model": model, "messages": history}
        if tools:
            offered = [tool for tool in tools if choice in (None, "none", tool.name)]
            asked["tools"] = [{"type": "function", "function": tool._asdict()} for tool in offered]
        if choice is not None:
            asked["tool_choice"] = "NONE" if choice == "none" else "REQUIRED"
        if stream:
            return _join_cohere([event async for event in self._client.chat_stream(**asked)])
        answer = await self._client.chat(**asked)
        message = answer.message
        calls = [Call(c.id, c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or ()]
        text = "".join([item.text for item in message.content or () if item.type == "text"])
        said = message.model_dump(exclude_none=True)
        return Answer(text + (message.tool_plan or ""), calls, answer.finish_reason, [said])

    def user_message(self, text):
        return [{"role": "user", "content": text}]

    def results(self, results):
        told = [{"role": "tool", "tool_call_id": one.call.id, "content": one.text} for one in results]
        url = {"url": f"data:image/png;base64,{IMAGE}"}
        seen = [{"role": "user", "content": [{"type": "image_url", "image_url": url}]} for one in results if one.image]
        return told + seen

    async def close(self):
        await self._client._client_wrapper.httpx_client.httpx_client.aclose()


def _join_cohere(events: list[Any]) -> Answer:
    """Join the events of a stream as the users of the SDK do, which has no function for it."""
    assert [events[0].type, events[-1].type] == ["message-start", "message-end"]
    content: dict[int, dict] = {}
    calls: dict[int, dict] = {}
    message: dict[str, Any] = {"role": "assistant"}
    for event in events[1:-1]:
        part = None if event.type in ("content-end", "tool-call-end", "citation-end") else event.delta.message
        if event.type == "content-start":
            content[event.index] = {"type": part.content.type, part.content.type: ""}
        elif event.type == "content-delta":
            kind = content[event.index]["type"]
            content[event.index][kind] += getattr(part.content, kind)
        elif event.type == "tool-plan-delta":
            message["tool_plan"] = message.get("tool_plan", "") + part.tool_plan
        elif event.type == "tool-call-start":
            calls[event.index] = part.tool_calls.model_dump(exclude_none=True)
        elif event.type == "tool-call-delta":
            calls[event.index]["function"]["arguments"] += part.tool_calls.function.arguments
        elif event.type == "citation-start":
            message.setdefault("citations", []).append(part.citations.model_dump(exclude_none=True))
    if content:
        message["content"] = [content[index] for index in sorted(content)]
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    made = [
        Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls", ())
    ]
    text = "".join([item["text"] for item in message.get("content", ()) if item["type"] == "text"])
    return Answer(text + message.get("tool_plan", ""), made, events[-1].delta.finish_reason, [message])


class Interactions:
    flags_errors = True
    stops = ("requires_action", "completed")

    def __init__(self, url: str) -> None:
        options = types.HttpOptions(base_url=url, retry_options=types.HttpRetryOptions(attempts=1))
        self._client = genai.Client(api_key=KEY, http_options=options).aio

    async def ask(self, model, history, tools, choice, *, stream):
        asked: dict[str, Any] = {"model": model, "input": history, "store": False, "stream": stream}
        if tools:
            asked["tools"] = [{"type": "function", **tool._asdict()} for tool in tools]
        if choice is not None:
            forced = {"allowed_tools": {"mode": "any", "tools": [choice]}}
            asked["generation_config"] = {"tool_choice": "none" if choice == "none" else forced}
        answer = await self._client.interactions.create(**asked)
        if stream:
            status, steps = await _read_steps(answer)
        else:
            status, steps = answer.status, [step.model_dump(exclude_none=True) for step in answer.steps or ()]
        made = [step for step in steps if step["type"] == "function_call"]
        calls = [Call(step["id"], step["name"], step["arguments"]) for step in made]
        said = [content for step in steps if step["type"] == "model_output" for content in step["content"]]
        text = "".join(content["text"] for content in said if content["type"] == "text")
        return Answer(text, calls, status, steps)

    def user_message(self, text):
        return [{"type": "user_input", "content": [{"type": "text", "text": text}]}]

    def results(self, results):
        return [self._result(one) for one in results]

    def _result(self, result):
        picture = {"type": "image", "mime_type": "image/png", "data": IMAGE}
        content = [{"type": "text", "text": result.text}, *[picture] * result.image]
        told = {"type": "function_result", "call_id": result.call.id, "name": result.call.name}
        told["result"] = content if result.image else result.text
        return {**told, "is_error": True} if result.is_error else told

    async def close(self):
        await self._client.aclose()


async def _read_steps(stream: Any) -> tuple[str, list[dict]]:
    """The SDK has no accumulator: its users join the deltas by the index of their step."""
    status, steps = "", {}
    async for event in stream:
        if event.event_type == "step.start":
            steps[event.index] = (event.step.model_dump(exclude_none=True), [])
        elif event.event_type == "step.delta":
            steps[event.index][1].append(event.delta)
        elif event.event_type == "interaction.completed":
            status = event.interaction.status
        assert event.event_type != "error", event
    return status, [_join_step(*steps[index]) for index in sorted(steps)]


def _join_step(step: dict, deltas: list[Any]) -> dict:
    kinds = {delta.type for delta in deltas}
    if step["type"] == "model_output":
        step["content"] = [{"type": "text", "text": "".join(one.text for one in deltas if one.type == "text")}]
    elif step["type"] == "function_call" and "arguments_delta" in kinds:
        step["arguments"] = json.loads("".join(one.arguments or "" for one in deltas if one.type == "arguments_delta"))
    elif step["type"] == "thought":
        summary = "".join(one.content.text for one in deltas if one.type == "thought_summary")
        step |= {"summary": [{"type": "text", "text": summary}]} if summary else {}
        step |= {"signature": one.signature for one in deltas if one.type == "thought_signature"}
    return step


CLIENTS: dict[str, type] = {
    "openai chat": Chat,
    "openai responses": Responses,
    "anthropic": Messages,
    "gemini": Gemini,
    "cohere": Cohere,
    "gemini interactions": Interactions,
}
