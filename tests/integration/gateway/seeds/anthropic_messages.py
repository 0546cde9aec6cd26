"""Anthropic's SDK as a tutorial uses it. ANTHROPIC_BASE_URL says where the gateway is."""

import anthropic

client = anthropic.Anthropic()
tools = [
    {
        "name": "get_weather",
        "description": "Get the current weather for a location",
        "input_schema": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "City and state, e.g. San Francisco, CA"},
                "unit": {
                    "type": "string",
                    "enum": ["celsius", "fahrenheit"],
                    "description": "Temperature unit (default: celsius)",
                },
            },
            "required": ["location"],
        },
    }
]
messages = [{"role": "user", "content": "What is the weather in Paris?"}]
asked = {"model": "claude-sonnet-4-20250514", "max_tokens": 1024, "tools": tools}
response = client.messages.create(messages=messages, **asked)
calls = [block for block in response.content if block.type == "tool_use"]
for block in calls:
    print(f"call: {block.name} {block.input['location']}")

results = [{"type": "tool_result", "tool_use_id": block.id, "content": "22C, sunny in Paris"} for block in calls]
messages += [{"role": "assistant", "content": response.content}, {"role": "user", "content": results}]
response = client.messages.create(messages=messages, **asked)
print(f"answer: {''.join(block.text for block in response.content if block.type == 'text')}")
