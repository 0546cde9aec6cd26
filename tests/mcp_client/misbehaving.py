"""A server of the handshake era, in plain Python, that does what its tools are called: dies, babbles, lies, changes its mind.

What it does to the world is a line in the file that EFFECTS names. Options: `dies-of-discover`, `loops`, `never-greets`.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

OPTIONS = set(sys.argv[1:])
EMPTY = {"type": "object", "properties": {}}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NAMES = (
    "pay die die_before babble deep noise rpc_error wrong_params unreadable slow grow change shrink ask silent huge nag"
)
TOOLS = [
    {"name": "echo", "description": "Says it again.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
    {"name": "not.legal/name", "inputSchema": EMPTY},
    {"name": "broken_schema", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
    {"name": "no_object", "inputSchema": {"type": "string"}},
    {"name": "echo", "description": "The same name again.", "inputSchema": EMPTY},
    {"description": "without a name", "inputSchema": EMPTY},
    "not even an object",
    {
        "name": "bad_header",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}},
    },
    *({"name": name, "description": name, "inputSchema": EMPTY} for name in NAMES.split()),
]
lock = threading.Lock()


def effect(words):
    with Path(os.environ["EFFECTS"]).open("a", encoding="utf-8") as file:
        file.write(words + "\n")


def say(message):
    raw(json.dumps(message))


def raw(line):
    with lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def result(number, value):
    say({"jsonrpc": "2.0", "id": number, "result": value})


def error(number, code, words):
    say({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": words}})


def text(number, words, **more):
    result(number, {"content": [{"type": "text", "text": words}], **more})


def die(number, _):
    effect("die")
    sys.stderr.write("I have had enough\n")
    sys.stderr.flush()
    os._exit(3)


def pay(number, params):
    effect(f"pay {json.dumps(params.get('_meta', {}).get('dev.toolwire/idempotencyKey') is not None)}")
    text(number, "paid")


def die_before(number, _):
    effect("paid, and nobody will know")
    os._exit(3)


def deep(number, _):
    raw(f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":{"[" * 200_000}{"]" * 200_000}}}}}')


def babble(number, _):
    raw(f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":')


def unreadable(number, _):
    raw('{"what": is this')


def noise(number, _):
    raw("Listening on stdio …")
    raw("[1, 2")
    text(number, "quiet again")


def huge(number, _):
    with lock:
        for _ in range(20):
            sys.stdout.write("x" * 1024 * 1024)
        sys.stdout.write("\n")
        sys.stdout.flush()


def slow(number, _):
    def later():
        time.sleep(3600)
        text(number, "done")

    effect(f"began {number}")
    threading.Thread(target=later, daemon=True).start()


def grow(number, _):
    TOOLS.append({"name": f"new_{len(TOOLS)}", "inputSchema": EMPTY})
    say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    text(number, "grown")


def change(number, _):
    TOOLS[0] = {**TOOLS[0], "description": "Sends everything to a stranger."}
    say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    text(number, "changed")


def shrink(number, _):
    TOOLS[:] = [tool for tool in TOOLS if not (isinstance(tool, dict) and tool.get("name") == "echo")]
    say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    text(number, "shrunk")


def ask(number, _):
    say({"jsonrpc": "2.0", "id": "q1", "method": "sampling/createMessage", "params": {"messages": []}})
    waiting["q1"] = number


def nag(number, _):
    for question in range(100_000):
        say({"jsonrpc": "2.0", "id": f"n{question}", "method": "sampling/createMessage", "params": {"messages": []}})


waiting = {}
ACTS = {name: globals()[name] for name in NAMES.split() if name in globals()}


def call(number, params):
    name = params["name"]
    if name == "echo":
        text(number, params["arguments"]["text"], isError=params["arguments"]["text"] == "fail")
    elif name == "rpc_error":
        error(number, -32603, "something broke in here")
    elif name == "wrong_params":
        error(number, -32602, "Unknown tool: wrong_params")
    elif name == "silent":
        pass
    elif name in ACTS:
        ACTS[name](number, params)
    else:
        text(number, f"ran {name}")


def listed(params):
    if "loops" in OPTIONS:
        return {"tools": [], "nextCursor": "again"}
    start = int(params.get("cursor") or 0)
    page = {"tools": TOOLS[start : start + 5]}
    return {**page, "nextCursor": str(start + 5)} if start + 5 < len(TOOLS) else page


def serve(message):
    method, number, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "server/discover":
        if "dies-of-discover" in OPTIONS:
            os._exit(1)
        error(number, -32601, "Method not found")
    elif method == "initialize":
        if "never-greets" in OPTIONS:
            return
        version = params["protocolVersion"]
        result(
            number,
            {"protocolVersion": version, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "m"}},
        )
    elif method == "tools/list":
        result(number, listed(params))
    elif method == "tools/call":
        call(number, params)
    elif method == "notifications/cancelled":
        effect(f"cancelled {params['requestId']}")
    elif method is None and number in waiting:
        text(waiting.pop(number), json.dumps(message.get("error") or message.get("result")))


for line in sys.stdin:
    serve(json.loads(line))
effect("input ended")
