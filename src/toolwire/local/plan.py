"""Plan a request with tools for a very small model: either a call or text.

    plan = plan_call(request)   # tools as text in the prompt, with a grammar that allows only a call
    plan = plan_text(request)   # … without tools
    mentions_tool(request)      # does the prompt mention a tool?
    make_probe(request)         # a request that asks the model whether it wants a call

Measurements (bench/local.py) show the abilities of a model of 135 million parameters: it fills in arguments after
examples. Without a grammar it makes no calls at all, so it cannot choose while it generates. A call is made if the last
prompt mentions a tool (`relevance`). A prompt that mentions none, but has a name or a number, is put to the model, which
classifies it with one token.
"""

from __future__ import annotations

from math import exp, log

from msgspec.structs import replace

from ..bridge.emulation import Emulation, emulate
from ..ir.errors import ConfigError
from ..ir.losses import Loss, Losses
from ..ir.parts import Text, ToolResult
from ..ir.pointer import Object, join
from ..ir.request import Message, Request, Role
from ..ir.tools import Tool, ToolChoice
from ..ir.value import Value
from ..text import get
from ..text.engine.prompt import ResultTemplate, ToolPrompt
from ..wire import get as get_wire
from ..wire.protocol import Encoded
from .grammar import build_grammar, unenforced_keywords
from .history import rewrite_history
from .relevance import has_value_for, mentioned_properties
from .relevance import mentions_tool as names_tool

__all__ = [
    "Plan",
    "ends_with_result",
    "forbids_calls",
    "make_probe",
    "may_need_call",
    "mentions_tool",
    "plan_call",
    "plan_text",
    "requires_call",
    "wants_call",
]

_FUNCTIONS = "You have these functions:\n"
_FORM = replace(
    get("generic_json"),
    declare=ToolPrompt(
        _FUNCTIONS,
        "\nAnswer with the call that does what the user asks for, as JSON, with values from the user's words.",
        entry="signature",
        explain=False,
    ),
    results=ResultTemplate("The result of {name} is: {content}"),
)
# A model of this size copies its examples. Placeholders would come back as arguments; these show the source of values.
_EXAMPLES = (
    ("What does the word gentle mean?", '{"name": "look_up", "arguments": {"word": "gentle"}}'),
    (
        "Remind Ann to call Tom at 5 pm.",
        '{"name": "remind", "arguments": {"who": "Ann", "what": "call Tom", "when": "5 pm"}}',
    ),
)
_PROBE_PROMPT = "\nSay Yes if the user asks for what a function does. Say No if not."
_CALL_THRESHOLD = -0.6  # threshold for the log-odds of yes that separates the prompts of bench/local.py best
_REPORT_TOKENS = 96  # for the answer after a result, which is one sentence

_GREEDY: Object = {"temperature": 0}  # default: values have to come from the prompt, not from sampling


class Plan(Value, frozen=True):
    """A request for the bare model. `emulation` restores the call in its response; None if the response is text."""

    body: Object
    emulation: Emulation | None = None
    losses: tuple[Loss, ...] = ()
    """Parts of the request that the model does not see or that are not enforced."""


def forbids_calls(request: Request) -> bool:
    return all(tool.kind == "builtin" for tool in request.tools) or (
        request.choice is not None and request.choice.mode == "none"
    )


def requires_call(request: Request) -> bool:
    return request.choice is not None and request.choice.forces_call


def ends_with_result(request: Request) -> bool:
    """Return True if the conversation ends with a tool result: the next answer is text."""
    last = request.messages[-1:]
    return any(isinstance(part, ToolResult) for message in last for part in message.parts)


def mentions_tool(request: Request) -> bool:
    """Return True if the last prompt mentions one of the tools: a call is made."""
    prompt = _last_prompt(request)
    return any(names_tool(prompt, tool) for tool in request.tools if tool.kind != "builtin")


def may_need_call(request: Request) -> bool:
    """Return True if the last prompt has values for a tool, so that it is worth asking the model."""
    prompt = _last_prompt(request)
    return any(has_value_for(prompt, tool) for tool in request.tools if tool.kind != "builtin")


def plan_call(request: Request) -> Plan:
    """Plan an answer that is a call. Examples follow the system prompt, and a grammar enforces the format."""
    choice = request.choice if requires_call(request) else _require_call(request.choice)
    withheld = Losses()
    offered = request.tools
    if not requires_call(request):
        offered = tuple(_withhold_options(tool, request, index, withheld) for index, tool in enumerate(offered))
    asked = replace(request, tools=offered, choice=choice, output=None, parallel=False)
    emulation = emulate(asked, _FORM, constrain=True)
    said = emulation.request
    shown = [
        one for asked, made in _EXAMPLES for one in (_make_message("user", asked), _make_message("assistant", made))
    ]
    body, losses = _encode_request(replace(said, messages=(said.messages[0], *shown, *said.messages[1:]), output=None))
    if said.output is None or not isinstance(said.output.schema, dict):
        raise ConfigError("a call is required, but no function is declared")
    losses.extend(emulation.losses)
    losses.extend(withheld)
    _report_call(request, losses)
    grammar = build_grammar(said.output.schema["properties"]["tool_call"])
    return Plan({**_GREEDY, **body, "grammar": grammar}, emulation, tuple(losses))


def _withhold_options(tool: Tool, request: Request, index: int, losses: Losses) -> Tool:
    """Remove the optional arguments that the prompt does not mention: this model invents a value for each of them."""
    schema = tool.input_schema
    if tool.kind not in ("function", "search") or schema is None or not isinstance(schema.get("properties"), dict):
        return tool
    offered = mentioned_properties(_last_prompt(request), tool)
    kept = {name: one for name, one in schema["properties"].items() if name in offered}
    for name in schema["properties"].keys() - offered:
        path = join("tools", index, "input_schema", "properties", name)
        losses.add(path, "optional argument", "dropped", "the prompt does not mention it", "info")
    return replace(tool, input_schema={**schema, "properties": kept})


def _report_call(request: Request, losses: Losses) -> None:
    """Report the parts of a request that a planned call drops or does not enforce."""
    if request.output is not None and request.output.kind != "text":
        losses.add("/output", "output format", "dropped", "the answer is a call")
    if request.parallel:
        losses.add("/parallel", "parallel calls", "dropped", "this model makes one call per turn", "info")
    for index, tool in enumerate(request.tools):
        if tool.kind in ("function", "search") and tool.input_schema is not None:
            for left in unenforced_keywords(tool.input_schema):
                path = f"/tools/{index}/input_schema{left.pointer}/{left.keyword}"
                losses.add(path, left.keyword, "weakened", "the grammar for this model does not enforce it")


def _make_message(role: Role, text: str) -> Message:
    return Message(role, (Text(text),))


def plan_text(request: Request) -> Plan:
    """Plan an answer that is text: without tools, with earlier calls and results rewritten as sentences."""
    told = Losses()
    spoken = replace(request, messages=rewrite_history(request.messages, told), tools=(), choice=None, parallel=None)
    cool: Object = _GREEDY if ends_with_result(request) else {}
    if cool and request.params.max_tokens is None:
        cool = {**cool, "max_tokens": _REPORT_TOKENS}
    body, losses = _encode_request(spoken)
    told.extend(losses)
    for index, tool in enumerate(request.tools):
        if tool.kind == "builtin":
            told.add(f"/tools/{index}", tool.name, "dropped", "only its provider can run it", "error")
    return Plan({**cool, **body}, losses=tuple(told))


def make_probe(request: Request) -> Object:
    """Build a request that the model answers with one token: yes or no."""
    listed = _FORM.render_tools(request.tools).removesuffix(_FORM.declare.after)
    return {
        "messages": [
            {"role": "system", "content": listed + _PROBE_PROMPT},
            {"role": "user", "content": _last_prompt(request)},
        ],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 100,
    }


def _last_prompt(request: Request) -> str:
    """Return the last text of the last message of the user."""
    texts = [
        part.text
        for message in request.messages
        if message.role == "user"
        for part in message.parts[-1:]
        if isinstance(part, Text)
    ]
    return "".join(texts[-1:])


def wants_call(top: list[Object]) -> bool:
    """Return True if the log-odds of yes, for the first token of the answer to `make_probe`, exceed the threshold."""
    return _token_weight(top, "yes") - _token_weight(top, "no") > _CALL_THRESHOLD


def _token_weight(top: list[Object], word: str) -> float:
    found = sum(exp(one["logprob"]) for one in top if one["token"].strip().lower() == word)
    return log(found) if found else -20.0


def _require_call(choice: ToolChoice | None) -> ToolChoice:
    return ToolChoice("required") if choice is None or not choice.names else replace(choice, required=True)


def _encode_request(request: Request) -> Encoded:
    return get_wire("openai_chat").encode_request(request)
