"""Count the modules of toolwire that run for four tasks: a reader who follows such a task has to open that many files.

    python bench/walks.py            a line per task
    python bench/walks.py --modules  and the names of the modules

Each task runs in a process of its own, on two conversations; the second counts, because the first also imports.
Packages' `__init__` modules and test utilities do not count.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import threading

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Return the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
CHAT = {
    "model": "fast",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Is it cold in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "-3 degrees"},
        {"role": "user", "content": "And tomorrow?"},
    ],
    "tools": [TOOL],
    "tool_choice": "auto",
}
CHAT_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
}
MESSAGES_ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 20, "output_tokens": 5},
}
CITIES = ("Bergen", "Oslo")


def conversation(city):
    """Return the body of a chat request that no cache knows from another city."""
    return json.dumps(CHAT).replace("Oslo", city).replace("Be brief", f"Answer for {city}").encode()


class Walk:
    """The modules whose functions run between `start` and `stop`, in all threads that begin meanwhile."""

    def __init__(self):
        self.modules = set()

    def __enter__(self):
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame, event, _argument):
        if event == "call":
            self.modules.add(frame.f_globals.get("__name__", ""))

    def names(self):
        packages = {name for name in sys.modules if getattr(sys.modules[name], "__path__", None) is not None}
        own = {
            name for name in self.modules if name.startswith("toolwire.") and not name.startswith("toolwire.testing")
        }
        return sorted(own - packages)


def walk_translate():
    import toolwire

    for city in CITIES:
        with Walk() as walk:
            toolwire.translate(conversation(city), source="openai_chat", target="anthropic", kind="request")
        yield walk


async def serve_answers(answers):
    """Serve the answers in turn over HTTP/1.1, as plain bytes, so that nothing of toolwire runs for it."""
    remaining = iter(answers)

    async def handle(reader, writer):
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length:" in line
            )
            await reader.readexactly(length)
            body = json.dumps(next(remaining)).encode()
            headers = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            writer.write(headers % len(body) + body)

    async def handle_quietly(reader, writer):
        try:
            await handle(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(handle_quietly, "127.0.0.1", 0)
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def walk_agent():
    from toolwire import Agent, Toolbox, ToolCall, tool
    from toolwire.testing import ScriptedModel, says

    @tool
    def weather(city: str, days: int = 1) -> str:
        """Return the weather in a city."""
        return f"{city}: -3 degrees for {days} days"

    async def run():
        walks = []
        for city in CITIES:
            model = ScriptedModel([says(ToolCall("call_1", "weather", {"city": city})), says("Cold.")])
            agent = Agent(model, Toolbox([weather]))
            with Walk() as walk:
                answer = await agent.run(f"Is it cold in {city}?")
            assert answer.text == "Cold.", answer
            walks.append(walk)
        return walks

    return asyncio.run(run())


def walk_gateway(wire, path, answer):
    async def run():
        from toolwire.gateway import Gateway, parse_settings

        url = await serve_answers([answer] * 2)
        settings = {
            "upstreams": {"main": {"wire": wire, "base_url": url}},
            "models": {"fast": {"upstream": "main", "model": "m"}},
        }
        gateway = Gateway(parse_settings(settings))
        walks = []
        for city in CITIES:
            sent = []

            pieces = [conversation(city)]

            async def receive(pieces=pieces):
                if not pieces:
                    await asyncio.Event().wait()  # the client stays connected
                return {"type": "http.request", "body": pieces.pop(), "more_body": False}

            async def send(message, sent=sent):
                sent.append(message)

            scope = {
                "type": "http",
                "method": "POST",
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
                "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
                "client": ("127.0.0.1", 1),
                "server": ("127.0.0.1", 2),
                "scheme": "http",
                "http_version": "1.1",
            }
            with Walk() as walk:
                await gateway(scope, receive, send)
            assert sent[0]["status"] == 200, sent
            assert b"weather" in b"".join(message.get("body", b"") for message in sent)
            walks.append(walk)
        return walks

    return asyncio.run(run())


TASKS = {
    "translate a request": walk_translate,
    "Agent.run with a call": walk_agent,
    "gateway, whole answer": lambda: walk_gateway("anthropic", "/v1/chat/completions", MESSAGES_ANSWER),
    "gateway, pass-through": lambda: walk_gateway("openai_chat", "/v1/chat/completions", CHAT_ANSWER),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", action="store_true", help="print the names of the modules, too")
    parser.add_argument("task", nargs="?", choices=TASKS, help=argparse.SUPPRESS)  # in a process of its own
    arguments = parser.parse_args()
    if arguments.task:
        *_, last = TASKS[arguments.task]()
        print(json.dumps(last.names()))
        return
    for task in TASKS:
        done = subprocess.run([sys.executable, __file__, task], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{task}: {done.stderr.strip().splitlines()[-1]} (pip install -e '.[gateway]')")
        names = json.loads(done.stdout)
        print(f"{task:24}{len(names):4} modules")
        if arguments.modules:
            print("\n".join(f"    {name}" for name in names))


if __name__ == "__main__":
    main()
