"""The measured requests: a Chat request of six messages with two tools and two parallel calls.

Every request is another conversation: the first message of its user has a number that `closed_loop.py` replaces. A gateway
that remembers conversations gains nothing here; `bench/conversation.py` measures that.
"""

import json
from dataclasses import dataclass
from itertools import count

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": description, "parameters": CITY}}
    for name, description in (("get_weather", "The weather in a city"), ("get_time", "The time in a city"))
]
CALLS = [
    {"id": f"call_{city}", "type": "function", "function": {"name": "get_weather", "arguments": f'{{"city":"{city}"}}'}}
    for city in ("Paris", "Rome")
]
NUMBER = b"#0000000000"
_numbers = count(1)


@dataclass(frozen=True)
class Job:
    """Requests to the `target` of a candidate; `slow_requests`: the number of them for a slow candidate."""

    target: str
    requests: int
    slow_requests: int
    connections: int = 20
    stream: bool = False


JOBS = {
    "pass": Job("same", 2000, 100),
    "cross": Job("cross", 2000, 100),
    "alone_pass": Job("same", 200, 30, connections=1),
    "alone": Job("cross", 200, 30, connections=1),
    "burst": Job("cross", 200, 10, stream=True),
    "paced": Job("paced", 60, 20, stream=True),
    "first": Job("paced", 20, 4, connections=1, stream=True),
}


def body_of(model: str, *, stream: bool = False, pad: int = 0) -> bytes:
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": f"{NUMBER.decode()}: the weather in Paris and Rome?"},
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "call_Paris", "content": "12 degrees"},
        {"role": "tool", "tool_call_id": "call_Rome", "content": "20 degrees"},
        {"role": "user", "content": "And tomorrow?" + "x" * pad},
    ]
    body = {"model": model, "messages": messages, "tools": TOOLS, "max_tokens": 500}
    return json.dumps({**body, "stream": True} if stream else body).encode()


def numbered(body: bytes) -> bytes:
    """Return a body of the same length that begins another conversation."""
    return body.replace(NUMBER, b"#%010d" % next(_numbers), 1)
