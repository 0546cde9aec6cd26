"""A Chat client that keeps what the Chat protocol of old has, and strips the rest."""

import json

from plain_http import Http

TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
]


class ChatClient:
    def __init__(self, urls, key=None, *, stream=False):
        self._urls = urls
        self._turn = 0
        self._stream = stream
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.http = Http(headers)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.http.__aexit__()

    async def post(self, model, messages):
        """Each request goes to the next machine."""
        body = {"model": model, "messages": messages, "tools": TOOLS, "stream": self._stream}
        url = self._urls[self._turn % len(self._urls)]
        self._turn += 1
        return await self.http.post(f"{url}/v1/chat/completions", body)

    async def ask(self, model, messages):
        """The assistant's message, as this client remembers it."""
        reply = await self.post(model, messages)
        assert reply.status == 200, reply.text
        calls = _streamed(reply.text) if self._stream else _calls(reply.json()["choices"][0]["message"])
        assert calls
        return {"role": "assistant", "content": None, "tool_calls": calls}

    async def send_tool_results(self, model, messages, message):
        """The next turn: the result of every call."""
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "21 °C"} for call in message["tool_calls"]]
        return await self.post(model, [*messages, message, *results])


def _calls(message):
    return [_call(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in message["tool_calls"]]


def _call(call_id, name, arguments):
    spelled = json.dumps(json.loads(arguments), indent=1)  # not as it came
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": spelled}}


def _streamed(text):
    found = {}
    for line in text.split("\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            for delta in choice["delta"].get("tool_calls", ()):
                call = found.setdefault(delta["index"], ["", "", ""])
                call[0] = call[0] or delta.get("id", "")
                call[1] += delta["function"].get("name") or ""
                call[2] += delta["function"].get("arguments") or ""
    return [_call(*call) for call in found.values()]
