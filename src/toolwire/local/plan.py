"""Plan a request with tools for a very small model: either a call or text.

Calls and results of the conversation are rewritten as plain text, because a small model copies calls that it sees. The
schemas of the possible calls become a grammar for llama.cpp's constrained decoding.

    plan = plan_call(request)   # tools as text in the prompt, with a grammar that allows only a call
    plan = plan_text(request)   # … without tools

The model chooses among the functions and `nothing_fits`: an adapter, trained by `bench/tool_calls`, teaches a model of 135
million parameters to choose. With a call of `nothing_fits` the answer is text (`model`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..bridge.emulation.requests import Emulation, emulate
from ..ir.errors import ConfigError
from ..ir.losses import Loss, Losses
from ..ir.parts import Part, Text, ToolCall, ToolResult
from ..ir.pointer import Object, join
from ..ir.request import Message, Request
from ..ir.text import dumps
from ..ir.tools import Tool, ToolChoice
from ..ir.value import Value
from ..run.tools.refusal import NOTHING, NOTHING_FITS
from ..text import get
from ..text.engine.prompt import ResultTemplate
from ..wire import get as get_wire
from ..wire.protocol import Encoded
from .choice import add_calls, calls_of_turn, found_priors, name_grammar, read_ranks, without_ranks
from .grammar import build_grammar, unenforced_keywords
from .nearest import rank_functions
from .values import RequestValues, value_text

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


# The prompt in which the model chooses a call: short declarations, and a function for "none of them fits".
#
#     Functions:
#     - get_weather(city: string, unit?: celsius|fahrenheit): Get the weather of a city.
#     - nothing_fits(): None of these functions does what the user asks for.
#     Answer with one call as JSON.
#
# The adapter of the embedded model is trained on exactly this text (`bench/tool_calls`), so a change of it needs a new
# adapter. It has no examples, because a model of this size copies them. Every character costs time: a prompt is read at
# about 100 tokens a second.


MAX_TOOLS = 6
"""Functions in a prompt. Of more, those are offered that fit the text of the request best, the best first."""
_INTRODUCTION = "Functions:\n"
_RULE = "\nAnswer with one call as JSON."
# (largest number of functions, characters of a description, characters of a parameter's description)
_DETAILS = ((3, 240, 60), (MAX_TOOLS, 160, 40))
_MAX_PARAMETERS = 12  # more than most functions have; not measured
_MAX_VALUES = 8  # of an enumeration; not measured


def declare(tools: Sequence[Tool]) -> str:
    """Return the system prompt for a choice among the tools, of which one may be `nothing_fits`."""
    count = sum(tool.name != NOTHING_FITS for tool in tools)
    _, description, parameter = next((row for row in _DETAILS if count <= row[0]), _DETAILS[-1])
    return _INTRODUCTION + "\n".join(_declare(tool, description, parameter) for tool in tools) + _RULE


def write_call(name: str, arguments: Object) -> str:
    """Return the text of a call, as the grammar of the engine lets the model write it."""
    return dumps({"name": name, "arguments": arguments})


def _declare(tool: Tool, most: int, most_parameter: int) -> str:
    schema = tool.input_schema or {}
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    rows = list(properties.items())[:_MAX_PARAMETERS] if isinstance(properties, dict) else []
    parameters = ", ".join(
        f"{name}{'' if name in needed else '?'}: {_type(part)}{_note(part, most_parameter)}" for name, part in rows
    )
    described = _shorten_text(tool.description or "", most)
    return f"- {tool.name}({parameters})" + (f": {described}" if described else "")


def _type(schema: object) -> str:
    if not isinstance(schema, dict):
        return "any"
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return "|".join(str(value) for value in values[:_MAX_VALUES])
    kind = schema.get("type")
    if kind == "array":
        return f"{_type(schema.get('items'))}[]"
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), None)
    branches = schema.get("anyOf")
    if kind is None and isinstance(branches, list):  # such as a type or null
        return next((_type(one) for one in branches if one != {"type": "null"}), "any")
    return kind if isinstance(kind, str) else "any"


def _note(schema: object, most: int) -> str:
    described = schema.get("description") if isinstance(schema, dict) and most else None
    return f" ({_shorten_text(described, most)})" if isinstance(described, str) and described else ""


def _shorten_text(text: str, most: int) -> str:
    """Return the beginning of a text in one line, cut after a sentence or at a space."""
    line = " ".join(text[: 4 * most].split())
    if len(line) <= most:
        return line
    cut = line[: most + 1]
    sentence = cut.rfind(". ")
    return cut[: sentence + 1] if sentence > most // 2 else cut.rpartition(" ")[0] or cut[:most]


_FORM = replace(get("generic_json"), results=ResultTemplate("The result of {name} is: {content}"))
_REPORT_TOKENS = 96  # for the answer after a result, which is one sentence

# Forty alternatives have nearly all of the probability; not measured.
_ALTERNATIVES: Object = {"logprobs": True, "top_logprobs": 40}
_GREEDY: Object = {"temperature": 0}  # default: values have to come from the prompt, not from sampling


class Plan(Value, frozen=True):
    """A request for the bare model. `emulation` restores the call in its response; None if the response is text."""

    body: Object
    emulation: Emulation | None = None
    losses: tuple[Loss, ...] = ()
    """Parts of the request that the model does not see or that are not enforced."""
    shapes: tuple[Object, ...] = ()
    """The schemas of the possible calls."""
    priors: Mapping[str, float] = {}
    """See `rank_priors` and `add_calls`."""
    text: str | None = None
    """The text with all values of the arguments; None for a conversation, whose values may be anywhere."""

    @property
    def functions(self) -> tuple[str, ...]:
        """The names that the model may write, each once."""
        return tuple(dict.fromkeys(shape["properties"]["name"]["const"] for shape in self.shapes))

    def name_body(self, names: Sequence[str], *, without_request: bool = False) -> Object:
        """Return the request for the name of a call, with alternatives; parameters of the client do not apply."""
        own = self.body["messages"]
        messages = [*own[:1], {"role": "user", "content": ""}] if without_request else own
        return {"messages": messages, "grammar": name_grammar(names), **_ALTERNATIVES, **_GREEDY}

    def call_body(self, name: str) -> Object:
        """Return the request for a call of this function."""
        shape = self.shape(name)
        shape = shape if self.text is None else RequestValues(self.text).restrict_call(shape)
        return {**self.body, "grammar": build_grammar(shape)}

    def shape(self, name: str) -> Object:
        """Return the schema of a call of this function."""
        return next(shape for shape in self.shapes if shape["properties"]["name"]["const"] == name)


def forbids_calls(request: Request) -> bool:
    return all(tool.kind == "builtin" for tool in request.tools) or (
        request.choice is not None and request.choice.mode == "none"
    )


def requires_call(request: Request) -> bool:
    return request.choice is not None and request.choice.forces_call


def declares_nothing(request: Request) -> bool:
    """Return True if the client itself declares `nothing_fits`: then it gets the call of it."""
    return any(tool.name == NOTHING_FITS for tool in request.tools)


def ends_with_result(request: Request) -> bool:
    """Return True if the conversation ends with a tool result: the next answer is text."""
    last = request.messages[-1:]
    return any(isinstance(part, ToolResult) for message in last for part in message.parts)


def plan_call(request: Request) -> Plan:
    """Plan an answer that is a call of one function, or of `nothing_fits` unless a call is required.

    A grammar enforces the form. The functions are declared in the system prompt. Of many, the ones nearest to the prompt
    are offered. Raises `ConfigError` if no function is declared. Parts that the model does not see are losses of the plan.
    """
    may_refuse = not requires_call(request)
    left_out = Losses()
    tools, ranks = _nearest_tools(request, left_out)
    choice = request.choice
    if may_refuse:
        tools = tools if declares_nothing(request) else (*tools, NOTHING)
        if choice is not None and choice.names:
            choice = replace(choice, names=tuple(dict.fromkeys((*choice.names, NOTHING_FITS))))
    asked = replace(
        request, tools=tools, choice=_require_call(choice), output=None, parallel=False, extra=without_ranks(request)
    )
    emulation = emulate(asked, _FORM, constrain=True)
    said = emulation.request
    if said.output is None or not isinstance(said.output.schema, dict):
        raise ConfigError("a call is required, but no function is declared")
    names = [tool.name for tool in tools] if choice is None or not choice.names else choice.names
    functions = [tool for tool in tools if tool.kind != "builtin" and tool.name in names]
    messages = _declare_functions(said.messages, request, declare(functions))
    body, losses = _encode_request(replace(said, messages=messages, output=None))
    losses.extend(emulation.losses)
    losses.extend(left_out)
    _report_call(request, {tool.name for tool in functions}, losses)
    calls = said.output.schema["properties"]["tool_call"]
    priors = add_calls(read_ranks(request) or found_priors(ranks), calls_of_turn(request))
    shapes = tuple(calls.get("anyOf", [calls]))
    return Plan({**_GREEDY, **body}, emulation, tuple(losses), shapes, priors, value_text(request))


def _nearest_tools(request: Request, losses: Losses) -> tuple[tuple[Tool, ...], dict[str, int]]:
    """Return the tools to offer, at most `MAX_TOOLS` functions, the best first, with their ranks. Report the others."""
    functions = [tool for tool in request.tools if tool.kind != "builtin" and tool.name != NOTHING_FITS]
    if request.choice is not None and request.choice.names:
        return request.tools, {}
    found: dict[str, tuple[Tool, int]] = {}
    ranked = functions[:MAX_TOOLS]
    if not read_ranks(request):
        found = rank_functions(_last_prompt(request), functions, MAX_TOOLS)
        ranked = [tool for tool, _ in found.values()]
    # By name: thousands of comparisons of whole declarations would block the event loop.
    dropped = {tool.name for tool in functions} - {tool.name for tool in ranked}
    for index, tool in enumerate(request.tools):
        if tool.kind != "builtin" and tool.name in dropped:
            losses.add(join("tools", index), "function", "dropped", "others fit the text of the prompt better", "info")
    others = (tool for tool in request.tools if tool.kind == "builtin" or tool.name == NOTHING_FITS)
    return (*ranked, *others), {name: rank for name, (_, rank) in found.items()}


def _last_prompt(request: Request) -> str:
    """Return the last text of the user."""
    texts = [
        part.text
        for message in request.messages
        if message.role == "user"
        for part in message.parts
        if isinstance(part, Text)
    ]
    return "".join(texts[-1:])


def _declare_functions(messages: Sequence[Message], request: Request, declared: str) -> tuple[Message, ...]:
    """Return the messages with the system prompt of the request, and the functions after it, instead of the form's own."""
    own = [
        part for message in request.messages[:1] if message.role in ("system", "developer") for part in message.parts
    ]
    before = "".join(part.text for part in own if isinstance(part, Text))
    system = Message("system", (Text(f"{before}\n\n{declared}" if before else declared),))
    return (system, *messages[1:])


def _report_call(request: Request, offered: Collection[str], losses: Losses) -> None:
    """Report the parts of a request that a planned call of an offered function drops or does not enforce."""
    if request.output is not None and request.output.kind != "text":
        losses.add("/output", "output format", "dropped", "the answer is a call")
    if request.parallel:
        losses.add("/parallel", "parallel calls", "dropped", "this model makes one call per turn", "info")
    for index, tool in enumerate(request.tools):
        if tool.kind in ("function", "search") and tool.name in offered and tool.input_schema is not None:
            for left in unenforced_keywords(tool.input_schema):
                path = f"/tools/{index}/input_schema{left.pointer}/{left.keyword}"
                losses.add(path, left.keyword, "weakened", "the grammar for this model does not enforce it")


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


def _require_call(choice: ToolChoice | None) -> ToolChoice:
    return ToolChoice("required") if choice is None or not choice.names else replace(choice, required=True)


def _encode_request(request: Request) -> Encoded:
    return get_wire("openai_chat").encode_request(request)
