"""Plan a request with tools for a very small model: either a call or text.

Calls and results of the conversation are rewritten as plain text, because a small model copies calls that it sees. The
schemas of the possible calls become a grammar for llama.cpp's constrained decoding.

    plan = plan_call(request)   # tools as text in the prompt, with a grammar that allows only a call
    plan = plan_text(request)   # … without tools
    mentions_tool(request)      # does the prompt mention a tool?
    make_probe(request)         # a request that asks the model whether it wants a call

Measurements (bench/local.py) show the abilities of a model of 135 million parameters: it fills in arguments after
examples. Without a grammar it makes no calls at all, so it cannot choose while it generates. A call is made if the last
prompt mentions a tool (`relevance`). A prompt that mentions none, but has a name or a number, is put to the model,
which classifies it with one token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log

from msgspec.structs import replace

from ..bridge.emulation.requests import Emulation, emulate
from ..ir.errors import ConfigError
from ..ir.losses import Loss, Losses
from ..ir.parts import Part, Text, ToolCall, ToolResult
from ..ir.pointer import JSON, Object, join
from ..ir.request import Message, Request, Role
from ..ir.text import dumps
from ..ir.tools import Tool, ToolChoice
from ..ir.value import Value
from ..schema.composition import relocate_refs
from ..schema.decoding.converter import decoding_schema
from ..schema.decoding.limits import DecodingLimits, Residual
from ..text import get
from ..text.engine.prompt import ResultTemplate, ToolPrompt
from ..wire import get as get_wire
from ..wire.protocol import Encoded
from .relevance import has_value_for, mentioned_properties
from .relevance import mentions_tool as names_tool

# Convert the schemas of calls to a grammar for llama.cpp's constrained decoding.
#
# llama.cpp is built with llguidance, whose grammar produces the call on one line. `response_format` lets the model
# write spaces and line breaks, and takes two thirds more tokens (bench/local.py measures both). A schema that
# llguidance does not fully support would silently give no grammar at all, so the schema is converted cautiously first
# (`schema.decoding`). The code that runs the tool checks the keywords that the grammar does not enforce.


LIMITS = DecodingLimits(max_length=200, max_items=8, max_properties=1, max_integer=2**53 - 1, close_objects=True)
"""Limits for a small model, which may repeat a value, an item or a key forever."""
_COMPACT_JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def build_grammar(calls: JSON) -> str:
    """Build a grammar of exactly one call; `calls` is its schema, an `anyOf` if there are several tools."""
    shapes = [_forbid_additional(shape, number) for number, shape in enumerate(calls.get("anyOf", [calls]))]
    schema = decoding_schema({"anyOf": shapes}, limits=LIMITS, cautious=True).schema
    return f"%llguidance {{}}\nstart: %json {dumps({**schema, 'x-guidance': _COMPACT_JSON})}"


def unenforced_keywords(schema: Object) -> tuple[Residual, ...]:
    """Return the keywords of the arguments that the grammar does not enforce."""
    return decoding_schema(schema, limits=LIMITS, cautious=True).residual


def _forbid_additional(shape: Object, number: int) -> Object:
    """Forbid undeclared arguments, so that a tool without parameters accepts none."""
    arguments = {"additionalProperties": False, **shape["properties"]["arguments"]}
    moved = relocate_refs(arguments, f"/anyOf/{number}/properties/arguments")
    return {**shape, "properties": {**shape["properties"], "arguments": moved}}


_SYSTEM = "Tell the user the result in one sentence."
_LAST = "\nTell me the result."
_MAX_RESULT = 2000  # characters; the context has 4,096 tokens, and a token can be one character


def rewrite_history(messages: Sequence[Message], losses: Losses) -> tuple[Message, ...]:
    """Rewrite calls and results as plain text; if the last message is a result, ask the model to report it.

    The question of that result moves into the last message. Parts that cannot be rendered are added to `losses`.
    """
    names: dict[str, str] = {}
    rewritten = [
        replace(message, parts=_render_parts(message.parts, names, losses, join("messages", index)))
        for index, message in enumerate(messages)
    ]
    if not messages or not any(isinstance(part, ToolResult) for part in messages[-1].parts):
        return tuple(rewritten)
    asked, start = rewritten[-1], len(rewritten) - 1
    if _is_question_and_call(messages[-3:-1]):
        asked, start = replace(asked, parts=(*rewritten[-3].parts, Text("\n"), *asked.parts)), len(rewritten) - 3
    wish = replace(asked, parts=(*asked.parts, Text(_LAST)))
    return _add_system((*rewritten[:start], wish))


def shorten_results(messages: Sequence[Message], losses: Losses) -> tuple[Message, ...]:
    """Shorten long results of tools, and report it: one of them could exceed the context of a small model."""
    return tuple(
        replace(message, parts=tuple(_shorten(part, losses, join("messages", index)) for part in message.parts))
        for index, message in enumerate(messages)
    )


def _shorten(part: Part, losses: Losses, path: str) -> Part:
    if not isinstance(part, ToolResult) or len(part.text) <= _MAX_RESULT:
        return part
    losses.add(path, "result", "weakened", f"the model reads {_MAX_RESULT:,} of its {len(part.text):,} characters")
    others = [inner for inner in part.parts if not isinstance(inner, Text)]
    return replace(part, parts=(Text(f"{part.text[:_MAX_RESULT]}… (shortened)"), *others))


def _is_question_and_call(messages: Sequence[Message]) -> bool:
    """Return True for a prompt and a message of calls only: with the result they become one prompt.

    The model would repeat the sentence that stands for the call instead of the result.
    """
    if [message.role for message in messages] != ["user", "assistant"]:
        return False
    return all(isinstance(part, ToolCall) for part in messages[1].parts)


def _render_parts(parts: Iterable[Part], names: dict[str, str], losses: Losses, path: str) -> tuple[Part, ...]:
    """Rewrite calls and results as sentences. `names` maps call ids to tool names, for results without a name."""
    plain: list[Part] = []
    for number, part in enumerate(parts):
        at = f"{path}/parts/{number}"
        if isinstance(part, ToolCall):
            names[part.id] = part.name
            if part.arguments or part.raw:
                losses.add(
                    at,
                    "arguments",
                    "dropped",
                    "the model sees only that the call was made, because it would copy the arguments",
                )
            plain.append(Text(f"I will use {part.name}."))
        elif isinstance(part, ToolResult):
            name = part.name or names.get(part.call_id, "it")
            what = "error" if part.is_error else "result"
            plain.append(Text(f"The {what} of {name} is: {part.text}"))
            if any(not isinstance(inner, Text) for inner in part.parts):
                losses.add(at, "media in a result", "dropped", "this model reads text", "error")
        else:
            plain.append(part)
    return tuple(plain)


def _add_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    first = messages[0]
    if first.role in ("system", "developer"):
        return (replace(first, parts=(*first.parts, Text(f"\n\n{_SYSTEM}"))), *messages[1:])
    return (Message("system", (Text(_SYSTEM),)), *messages)


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
    """Plan an answer that is a call.

    Examples follow the system prompt, and a grammar enforces the format. Unless a call is required, optional
    arguments that the prompt does not mention are withheld. Raises `ConfigError` if no function is declared. Withheld
    arguments are losses of the plan.
    """
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
    """Return a tool without the optional arguments that the prompt does not mention, and report each.

    This model invents a value for every argument that it may write.
    """
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
    """Plan an answer that is text: without tools, with earlier calls and results rewritten as sentences.

    An answer about a result is short and without randomness.
    """
    lost = Losses()
    plain = replace(request, messages=rewrite_history(request.messages, lost), tools=(), choice=None, parallel=None)
    cool: Object = _GREEDY if ends_with_result(request) else {}
    if cool and request.params.max_tokens is None:
        cool = {**cool, "max_tokens": _REPORT_TOKENS}
    body, losses = _encode_request(plain)
    lost.extend(losses)
    for index, tool in enumerate(request.tools):
        if tool.kind == "builtin":
            lost.add(f"/tools/{index}", tool.name, "dropped", "only its provider can run it", "error")
    return Plan({**cool, **body}, losses=tuple(lost))


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
    found = sum(exp(candidate["logprob"]) for candidate in top if candidate["token"].strip().lower() == word)
    return log(found) if found else -20.0


def _require_call(choice: ToolChoice | None) -> ToolChoice:
    return ToolChoice("required") if choice is None or not choice.names else replace(choice, required=True)


def _encode_request(request: Request) -> Encoded:
    return get_wire("openai_chat").encode_request(request)
