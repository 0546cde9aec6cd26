"""OpenAI's SDK as a tutorial uses it. OPENAI_BASE_URL says where the gateway is."""

import json

from openai import OpenAI

client = OpenAI()
tools = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather for a location",
            "parameters": {
                "type": "object",
                "properties": {
                    "location": {"type": "string", "description": "City and state, e.g. San Francisco, CA"},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Temperature unit"},
                },
                "required": ["location"],
            },
        },
    }
]
messages = [{"role": "user", "content": "What is the weather in Paris?"}]
response = client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools, tool_choice="auto")
message = response.choices[0].message
tool_call = message.tool_calls[0]
print(f"call: {tool_call.function.name} {json.loads(tool_call.function.arguments)['location']}")

result = {"role": "tool", "tool_call_id": tool_call.id, "content": "22C, sunny in Paris"}
messages += [message.model_dump(exclude_none=True), result]
response = client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools)
print(f"answer: {response.choices[0].message.content}")
