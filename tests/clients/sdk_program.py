"""A program with an official SDK and no settings of its own: it reads files for the model, and prints its answer.

python tests/clients/sdk_program.py openai|openai-responses|anthropic|google PROMPT
"""

import json
import sys
from pathlib import Path

MAX_TURNS = 5
ABOUT = "Read a file of this folder."
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def read_file(path: str) -> str:
    return Path(path).read_text("utf-8")


def ask_openai(prompt: str) -> str:
    from openai import OpenAI

    client = OpenAI()
    messages: list = [{"role": "user", "content": prompt}]
    tool = {"type": "function", "function": {"name": "read_file", "description": ABOUT, "parameters": SCHEMA}}
    for _ in range(MAX_TURNS):
        message = client.chat.completions.create(model="gpt-5.6", messages=messages, tools=[tool]).choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message)
        for call in message.tool_calls:
            result = read_file(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise SystemExit("too many turns")


def ask_openai_responses(prompt: str) -> str:
    from openai import OpenAI

    client, previous = OpenAI(), None
    items: list = [{"role": "user", "content": prompt}]
    tool = {"type": "function", "name": "read_file", "description": ABOUT, "parameters": SCHEMA}
    for _ in range(MAX_TURNS):
        # the stored form: the program sends only what is new
        answer = client.responses.create(model="gpt-5.6", input=items, tools=[tool], previous_response_id=previous)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer.output_text
        previous, items = answer.id, []
        for call in calls:
            result = read_file(**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    raise SystemExit("too many turns")


def ask_anthropic(prompt: str) -> str:
    from anthropic import Anthropic

    client = Anthropic()
    messages: list = [{"role": "user", "content": prompt}]
    tool = {"name": "read_file", "description": ABOUT, "input_schema": SCHEMA}
    for _ in range(MAX_TURNS):
        with client.messages.stream(model="claude-sonnet-5", max_tokens=500, messages=messages, tools=[tool]) as stream:
            answer = stream.get_final_message()
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in answer.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": read_file(**call.input)} for call in calls
        ]
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    raise SystemExit("too many turns")


def ask_google(prompt: str) -> str:
    from google import genai
    from google.genai import types

    client = genai.Client()
    contents: list = [types.Content(role="user", parts=[types.Part(text=prompt)])]
    declaration = types.FunctionDeclaration(name="read_file", description=ABOUT, parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declaration])])
    for _ in range(MAX_TURNS):
        answer = client.models.generate_content(model="gemini-3-pro", contents=contents, config=config)
        if not answer.function_calls:
            return answer.text or ""
        contents.append(answer.candidates[0].content)
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"result": read_file(**call.args)}
                )
            )
            for call in answer.function_calls
        ]
        contents.append(types.Content(role="user", parts=results))
    raise SystemExit("too many turns")


PROGRAMS = {
    "openai": ask_openai,
    "openai-responses": ask_openai_responses,
    "anthropic": ask_anthropic,
    "google": ask_google,
}

if __name__ == "__main__":
    print(PROGRAMS[sys.argv[1]](sys.argv[2]))
