"""Ask a model for one call of the APIs that fit a request, in the prompt form of Gorilla.

    specs = load_api_specs("api_zoo/")
    index = ToolIndex()
    index.add(specs.tools)
    call("the weather in Paris for 3 days", index=index, model="openai/gpt-5.6")
    # ToolCall(name="get_weather", arguments={"city": "Paris", "days": 3}), not executed

The prompt of the published listing is kept: `### API specs:`, the specs, `### User:`, the request, `### Call:`. These
points differ from it:

- Specs are found by words and by meaning, over the name, the description and the parameters, not by the description
  alone with one encoder.
- A spec in the prompt is its signature and the beginning of its description; the listing leaves the description out,
  so that the model has to guess the meaning of a name. Texts of specs cannot imitate the sections of the prompt.
- The model is any model, asked as a chat; a system message describes the form of the answer and allows `none`.
- The result is a parsed call with arguments that match the schema, not a text that begins after the prompt. A call of an
  API that was not offered, or with wrong arguments, raises an exception.
- If no spec fits, the model is not asked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from ..ir.errors import InvalidArguments, ProtocolError
from ..ir.parts import Text, ToolCall
from ..ir.pointer import JSON
from ..ir.request import Message, Params, Request
from ..ir.terminal import neutralise_line
from ..ir.text import dumps
from ..ir.tools import Tool
from ..run.tools.refusal import NOTHING, ranked
from .documents import clean_text
from .spec_tool import spec_name

if TYPE_CHECKING:
    from ..ir.response import Response
    from ..net.model.interface import Model
    from .ranking import SearchHit

MAX_TOKENS = 256  # one call with its arguments; an answer that is cut counts as unfinished and is not read
_ENTRIES = 4  # entries that are searched for each API that is offered; see `group_entries`. Not measured
_MAX_SPEC = 1_500  # characters of one specification in the prompt; three of them fit into a context of 4,096 tokens
_MAX_ANSWER = 20_000  # characters; many times MAX_TOKENS, for callers of `read_call` with answers of their own
_SYSTEM = (
    "Answer the request with one call of the listed APIs, written as name(parameter='value'), and nothing else. "
    "Use only parameters of the signature; write one whose name is not an identifier as **{'name': value}. If none of the APIs fits, answer: none"
)
_NONE = re.compile(r"[\s\"'`.]*none[\s\"'`.]*", re.IGNORECASE)
_FENCE = re.compile(r"```[a-z]*\n(.*?)(?:```|\Z)", re.DOTALL)
_CALL_MARK = "### Call:"


class SearchableIndex(Protocol):
    """An index of tools, in memory or on a server."""

    def search(self, query: str, k: int = 10) -> Sequence[SearchHit]: ...


def call(
    query: str, k: int = 3, *, index: SearchableIndex, model: Model | str, max_tokens: int = MAX_TOKENS
) -> ToolCall | None:
    """Return the call of an API that a model writes for a request. It is validated and not executed.

    `k` specs are offered. `model` is a model client or a name such as "openai/gpt-5.6". Return None if no spec shares
    anything with the request, or the model answers that none fits. Raise ProtocolError for an answer without a call
    of an offered API, and InvalidArguments for arguments that do not match the schema.
    """
    from ..net.threads import run_blocking

    return run_blocking(call_async(query, k, index=index, model=model, max_tokens=max_tokens))


def group_entries(tools: Sequence[Tool], k: int) -> tuple[list[Tool], list[int]]:
    """Return the first `k` APIs of a search, and the number of entries of each that were found.

    Entries of one API have the same name and parameters. A catalogue may have a popular API many times, for several
    tasks. Of other entries with the same name the first is kept, because a call has only the name.
    """
    named: dict[str, Tool] = {}
    counts: dict[str, int] = {}
    for tool in tools:
        first = named.setdefault(spec_name(tool.name), tool)
        if first.input_schema == tool.input_schema:
            counts[first.name] = counts.get(first.name, 0) + 1
    kept = list(named.values())[:k]
    return kept, [counts[tool.name] for tool in kept]


async def call_async(
    query: str, k: int = 3, *, index: SearchableIndex, model: Model | str, max_tokens: int = MAX_TOKENS
) -> ToolCall | None:
    """Like `call`, for asynchronous programs; None if no tool is found. Raises as `read_call` does."""
    hits = await asyncio.to_thread(index.search, query, k * _ENTRIES)  # it may have to encode the query
    tools, counts = group_entries([hit.tool for hit in hits], k)
    if not tools:
        return None
    if _is_local(model):
        return await _call_local(query, tools, counts, model, max_tokens)
    request = Request(
        messages=(
            Message("system", (Text(_SYSTEM),)),
            Message("user", (Text(make_prompt(query, tools)),)),
        ),
        params=Params(max_tokens=max_tokens, temperature=0.0),
    )
    response = await _ask(model, request)
    return read_call(response.text, tools, finished=response.stop is None or response.stop.reason != "length")


def _is_local(model: Model | str) -> bool:
    """Return True for a model in this process, by its name or a client of it."""
    if isinstance(model, str):
        return model.startswith("local/")
    endpoint = getattr(model, "endpoint", None)
    return endpoint is not None and endpoint.vendor.name == "local"


async def _ask(model: Model | str, request: Request) -> Response:
    if not isinstance(model, str):
        return await model.ask(request)
    from ..net.model.client import ModelClient

    async with ModelClient(model) as client:
        return await client.ask(request)


async def _call_local(
    query: str, tools: Sequence[Tool], counts: Sequence[int], model: Model | str, max_tokens: int
) -> ToolCall | None:
    """Let the model in this process choose: it is trained to call declared functions, not to write this prompt's form."""
    request = Request(
        messages=(Message("user", (Text(query),)),),
        tools=(*tools, NOTHING),
        parallel=False,
        params=Params(max_tokens=max_tokens, temperature=0.0),
        extra=ranked(counts),
    )
    response = await _ask(model, request)
    call = next(iter(response.calls), None)
    if call is None or call.state != "complete":
        raise ProtocolError("the answer has no complete call", hint="raise max_tokens")
    tool = next((tool for tool in tools if tool.name == call.name), None)
    return None if tool is None else _repair(tool, call)


def make_prompt(query: str, tools: Sequence[Tool]) -> str:
    """Return the prompt: the specs, the request, and the mark after which the call begins."""
    specs = "\n\n".join(render_spec(name, tool) for name, tool in _call_names(tools).items())
    return f"### API specs:\n{specs}\n\n### User: {_indent_marks(query)}\n{_CALL_MARK}"


def _call_names(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Return the tools by a name that is readable in a Python call. Of equal names the first is kept."""
    named: dict[str, Tool] = {}
    for tool in tools:
        name = spec_name(tool.name)
        named.setdefault(name if name[0].isalpha() else f"api_{name}", tool)
    return named


def render_spec(name: str, tool: Tool) -> str:
    """Return the signature of a tool and its description in one line each, up to `_MAX_SPEC` characters."""
    schema = tool.input_schema or {}
    properties = schema.get("properties")
    required = schema.get("required")
    parameters = [
        _render_parameter(clean_text(str(key)), value, is_required=type(required) is list and key in required)
        for key, value in (properties.items() if type(properties) is dict else ())
    ]
    signature = f"{name}({', '.join(parameters)})"[:_MAX_SPEC]
    description = clean_text(tool.description or "")
    return f"{signature}\n    {description}"[:_MAX_SPEC].rstrip()


def _render_parameter(name: str, schema: Any, *, is_required: bool) -> str:
    kind = schema.get("type") if type(schema) is dict else None
    typed = f"{name}: {clean_text(kind)}" if type(kind) is str else name
    default = _render_default(schema.get("default") if type(schema) is dict else None)
    return typed if is_required else f"{typed} = {default}"


def _render_default(value: JSON) -> str:
    return clean_text(dumps(value))[:100] if type(value) in (str, int, float, bool) else "None"


def _indent_marks(text: str) -> str:
    """Keep a request from imitating a section of the prompt."""
    return re.sub(r"(?m)^(?=[^\S\n]*+###)", " ", text)


def read_call(answer: str, tools: Sequence[Tool], *, finished: bool = True) -> ToolCall | None:
    """Return the call in an answer with repaired arguments, or None if the answer is that no API fits.

    Raises `ProtocolError` for an answer without a complete call of these tools, and `InvalidArguments` for arguments
    that cannot be repaired.
    """
    from ..text.engine.format import Format
    from ..text.styles.code_calls import PythonicCalls

    named = _call_names(tools)
    text = _find_call_text(answer[:_MAX_ANSWER], named)
    if text is None:
        if _NONE.fullmatch(answer):
            return None
        raise ProtocolError(
            f"the answer is no call of the offered APIs: {neutralise_line(answer[:200])}",
            hint=f"the offered APIs are {', '.join(named)}",
        )
    offered = [replace(tool, name=name) for name, tool in named.items()]
    written = Format("api_call", "Python calls after a mark", (), PythonicCalls(open=(_CALL_MARK,), brackets=False))
    parsed = next(iter(written.parse(f"{_CALL_MARK} {text}", offered, finished=finished).calls), None)
    if parsed is None or parsed.state != "complete" or parsed.name not in named:
        raise ProtocolError(f"the call cannot be read: {neutralise_line(text[:200])}")
    return _repair(named[parsed.name], parsed)


def _repair(tool: Tool, call: ToolCall) -> ToolCall:
    """Return the call with repaired arguments; raise InvalidArguments if they cannot be."""
    from ..schema.repair.arguments import repair_arguments

    repaired = repair_arguments(call.arguments, tool.input_schema or {"type": "object"})
    if repaired.arguments is None:
        problems = "; ".join(f"{problem.path}: {problem.message}" for problem in repaired.problems)
        raise InvalidArguments(f"the arguments of {tool.name} do not match its schema: {problems}")
    return ToolCall(call.id, tool.name, repaired.arguments)


def _find_call_text(answer: str, names: Iterable[str]) -> str | None:
    """Return the answer from the first name of an offered API that is followed by a parenthesis."""
    fenced = _FENCE.search(answer)
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    for text in (fenced.group(1) if fenced else "", answer):
        found = re.search(rf"(?<![\w.])(?:{pattern})\s*\(", text)
        if found:
            return text[found.start() :]
    return None
