"""A stdio server that announces changes of its lists at chosen moments.

The first argument is a comma-separated list of moments:

    before_greeting   before the answer to `initialize`
    after_greeting    right after it
    during            after a request for the first page, before its answer
    between_pages     after a request for the second page, before its answer
    after             right after the answer to the last page
    always            at all of these moments, for every listing, and 2,000 times in a burst after each one

Other words: `invalid_cursor` refuses the first request for a second page, `fails` refuses every listing but the first,
`grows` adds a tool before each announcement during a listing. Every first page that is requested is a line in the file
that EFFECTS names.
"""

import json
import os
import sys
from pathlib import Path

MOMENTS = set(sys.argv[1].split(","))
EMPTY = {"type": "object", "properties": {}}
TOOLS = [{"name": name, "description": name, "inputSchema": EMPTY} for name in ("echo", "add", "sort")]
LISTS = {
    "tools": TOOLS,
    "prompts": [{"name": name} for name in ("greet", "part", "thank")],
    "resources": [{"name": name, "uri": f"notes://{name}"} for name in ("monday", "tuesday", "friday")],
}
PAGE = 2
listings = dict.fromkeys(LISTS, 0)
refused = set()


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def announce(moment, times=1):
    always = "always" in MOMENTS
    if moment not in MOMENTS and not always:
        return
    if "grows" in MOMENTS:
        TOOLS.append({"name": f"new_{len(TOOLS)}", "inputSchema": EMPTY})
    for _ in range(times if always else 1):
        for area in LISTS:
            send(method=f"notifications/{area}/list_changed")


def refuse(number, code, text):
    send(id=number, error={"code": code, "message": text})


def page(number, area, cursor):
    start = int(cursor or 0)
    if start == 0:
        listings[area] += 1
        with Path(os.environ["EFFECTS"]).open("a", encoding="utf-8") as file:
            file.write(f"{area}\n")
    announcing = listings[area] == 1 or "always" in MOMENTS
    if announcing:
        announce("during" if start == 0 else "between_pages")
    if "fails" in MOMENTS and listings[area] > 1:
        refuse(number, -32603, "the index is being rebuilt")
    elif "invalid_cursor" in MOMENTS and start and area not in refused:
        refused.add(area)
        refuse(number, -32602, "invalid cursor")
    else:
        last = start + PAGE >= len(LISTS[area])
        cursor = {} if last else {"nextCursor": str(start + PAGE)}
        send(id=number, result={area: LISTS[area][start : start + PAGE], **cursor})
        if last and announcing:
            announce("after", 2000)


def serve(message):
    method, number, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "server/discover":
        refuse(number, -32601, "Method not found")
    elif method == "initialize":
        announce("before_greeting")
        capabilities = {area: {"listChanged": True} for area in LISTS}
        info = {"name": "announcing", "version": "1"}
        version = params["protocolVersion"]
        send(id=number, result={"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
        announce("after_greeting")
    elif method == "resources/templates/list":
        send(id=number, result={"resourceTemplates": []})
    elif method in {f"{area}/list" for area in LISTS}:
        page(number, method.partition("/")[0], params.get("cursor"))
    elif method == "tools/call":
        send(id=number, result={"content": [{"type": "text", "text": params["name"]}]})


for line in sys.stdin:
    serve(json.loads(line))
    sys.stdout.flush()
