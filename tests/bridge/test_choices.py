"""Tool choice and parallel calls: every mode on every wire, and between all of them."""

import toolwire
from recordings import WIRES
from tables import every_case
from toolwire.ir import Message, Params
from toolwire.wire import get

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = (toolwire.Tool("f", input_schema=SCHEMA), toolwire.Tool("g", input_schema=SCHEMA))


def choice(mode, *names, required=False):
    return toolwire.ToolChoice(mode, names, required)


CHOICES = {
    "unset": None,
    "auto": choice("auto"),
    "required": choice("required"),
    "none": choice("none"),
    "tool": choice("tool", "f"),
    "allowed": choice("allowed", "f"),
    "allowed, required": choice("allowed", "f", required=True),
    "validated": choice("validated"),
}


def mode(word, *names):
    return {"functionCallingConfig": {"mode": word, **({"allowedFunctionNames": list(names)} if names else {})}}


def nested(word):
    tools = [{"type": "function", "function": {"name": "f"}}]
    return {"type": "allowed_tools", "allowed_tools": {"mode": word, "tools": tools}}


def flat(word):
    return {"type": "allowed_tools", "mode": word, "tools": [{"type": "function", "name": "f"}]}


CHOOSING = ("anthropic", "bedrock", "gemini", "openai_chat", "openai_responses")
TABLE = {
    "unset": (None, None, None, None, None),
    "auto": ({"type": "auto"}, {"auto": {}}, mode("AUTO"), "auto", "auto"),
    "required": ({"type": "any"}, {"any": {}}, mode("ANY"), "required", "required"),
    "none": ({"type": "none"}, None, mode("NONE"), "none", "none"),
    "tool": (
        {"type": "tool", "name": "f"},
        {"tool": {"name": "f"}},
        mode("ANY", "f"),
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "name": "f"},
    ),
    "allowed": ({"type": "auto"}, {"auto": {}}, mode("VALIDATED", "f"), nested("auto"), flat("auto")),
    "allowed, required": ({"type": "any"}, {"any": {}}, mode("ANY", "f"), nested("required"), flat("required")),
    "validated": ({"type": "auto"}, {"auto": {}}, mode("VALIDATED"), "auto", "auto"),
}
PARALLEL = (None, True, False)
# what a choice is to who reads it from a wire that has no word for it
READ_AS = {
    ("allowed", "anthropic"): "auto",
    ("allowed, required", "anthropic"): "required",
    ("none", "bedrock"): "unset",  # no tools are declared
    ("allowed", "bedrock"): "auto",
    ("allowed, required", "bedrock"): "required",
    ("validated", "bedrock"): "auto",
    ("allowed, required", "gemini"): "tool",  # one name that must be called is that tool
    ("validated", "anthropic"): "auto",
    ("validated", "openai_chat"): "auto",
    ("validated", "openai_responses"): "auto",
}


def request(name, parallel):
    user = Message("user", (toolwire.Text("hi"),))
    return toolwire.Request("m", (user,), TOOLS, CHOICES[name], parallel, Params(max_tokens=9))


def expected(name, parallel, wire):
    """The fields that say it."""
    if wire == "ollama":
        return {}  # it has no word for any of it
    cell = TABLE[name][CHOOSING.index(wire)]
    if wire == "gemini":
        return {} if cell is None else {"toolConfig": cell}
    if wire == "bedrock":
        return {} if cell is None else {"toolChoice": cell}  # and no switch for parallel calls
    if wire == "anthropic":
        if parallel is not None and name != "none":
            cell = {**(cell or {"type": "auto"}), "disable_parallel_tool_use": not parallel}
        return {} if cell is None else {"tool_choice": cell}
    said = {} if cell is None else {"tool_choice": cell}
    return said if parallel is None else {**said, "parallel_tool_calls": parallel}


def choice_fields(body):
    if "tools" in body.get("toolConfig", {}):  # on Bedrock
        return {"toolChoice": body["toolConfig"]["toolChoice"]} if "toolChoice" in body["toolConfig"] else {}
    return {key: body[key] for key in ("tool_choice", "parallel_tool_calls", "toolConfig") if key in body}


def names_in(body):
    if "tools" in body.get("toolConfig", {}):
        return [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]]
    if "tools" not in body:
        return []
    tools = body["tools"][0].get("functionDeclarations", body["tools"])
    return [tool.get("function", tool)["name"] for tool in tools]


def written(name, parallel, wire):
    prepared = toolwire.prepare(request(name, parallel), wire)
    body, more = get(wire).encode_request(prepared.request)
    return body, [*prepared.losses, *more]


@every_case("parallel", PARALLEL)
@every_case("name", CHOICES)
@every_case("wire", WIRES)
def test_every_tool_choice_is_encoded_on_every_wire(wire, name, parallel):
    body, losses = written(name, parallel, wire)
    assert choice_fields(body) == expected(name, parallel, wire)
    restricted = name.startswith("allowed") and wire in ("anthropic", "bedrock", "ollama")
    undeclared = name == "none" and wire in ("bedrock", "ollama")
    assert names_in(body) == ([] if undeclared else ["f"] if restricted else ["f", "g"])
    weakened = {loss.path for loss in losses if loss.severity != "info"}
    no_word = {"/choice"} if name == "validated" and wire != "gemini" else set()
    by_schema = wire == "ollama" and name in ("required", "tool", "allowed, required")
    assert ("format" in body) is by_schema
    one_call = (
        {"/parallel"} if parallel is False and wire in ("bedrock", "gemini", "ollama") and not by_schema else set()
    )
    assert weakened == no_word | one_call


@every_case("target", WIRES)
@every_case("source", WIRES)
def test_every_tool_choice_translates_between_all_wires(source, target):
    for name in CHOICES:
        for parallel in PARALLEL:
            check_translation(source, target, name, parallel)


def check_translation(source, target, name, parallel):
    body, _ = written(name, parallel, source)
    meant = READ_AS.get((name, source), name)
    if source == target:
        assert toolwire.translate(body, source=source, target=target).body is body
        return
    if source == "ollama":
        meant, parallel = "unset", None  # nothing there says any of it
    if source in ("bedrock", "gemini") or (source == "anthropic" and name == "none"):
        parallel = None  # nothing there said it
    if source == "anthropic" and name == "unset" and parallel is not None:
        meant = "auto"
    there = toolwire.translate(body, source=source, target=target, model="m").body
    assert choice_fields(there) == expected(meant, parallel, target), (name, parallel)


@every_case("wire", WIRES)
@every_case("name", ["required", "tool", "allowed", "validated"])
def test_tool_choice_without_tools_is_not_sent(wire, name):
    user = Message("user", (toolwire.Text("hi"),))
    alone = toolwire.Request("m", (user,), (), CHOICES[name], False, Params(max_tokens=9))
    prepared = toolwire.prepare(alone, wire)
    assert choice_fields(get(wire).encode_request(prepared.request).body) == {}
    assert [loss.path for loss in prepared.losses if loss.concept == "tool choice"] == ["/choice"]
