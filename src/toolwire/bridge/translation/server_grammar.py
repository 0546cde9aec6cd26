"""The fields of a request that make an inference server generate valid calls by construction.

    guided = guided_request(tools, "vllm", format="hermes")
    body |= guided.fields       # merge them into the body of a chat or completion request
    guided.residual             # keywords that the server does not enforce; validate the call before it is run
    toolwire.text.get(guided.format).parse(text)    # the calls in the text of the answer

Without `format`, the answer is a call in plain JSON, and a call is forced. With the name of a text format, the answer is a
turn as the model writes it: reasoning and text stay free unless the choice forces a call. Names of fields were read in
the sources of the servers, which are named beside each row. Only llama.cpp is tested live; see `is_verified`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall
from ...ir.pointer import Object, join
from ...ir.request import Request
from ...ir.tools import Tool, ToolChoice
from ...ir.value import Value
from ...schema.decoding.converter import decoding_schema
from ...schema.decoding.limits import DecodingLimits, Residual
from ...text import get
from ...text.engine.format import Format
from .required_call import call_schema, close_arguments, lower_arguments

GrammarServer: TypeAlias = Literal["vllm", "vllm_guided", "sglang", "llama_cpp", "ollama", "json_schema"]
"""`vllm_guided` is vLLM before 0.12, `json_schema` any other server with OpenAI's `response_format`."""

_PLAIN_JSON = "generic_json"
_SAMPLE: Object = {"toolwire": 0}
_SAMPLE_TEXT = '{"toolwire": 0}'
_FIRST_TAG = re.compile(r"(?:<[^<>]*>|\[[A-Z_]+\])(?=\s*[\[{<])")
_NOT_LIVE = "not verified live: the fields were read in the source of the server"
_FUNCTION_INPUT: Object = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class GuidedRequest(Value, frozen=True):
    """Fields for the body of a request.

    `residual` has pointers that begin with the name of the tool. `format` is the text format that reads the answer.
    `notes` state the conditions under which the server accepts the fields.
    """

    fields: Object
    residual: tuple[Residual, ...]
    format: str
    is_verified: bool
    notes: tuple[str, ...] = ()


class _GrammarServerRow(NamedTuple):
    """One server: the dialect of schemas that it enforces, and the fields for each kind of constraint."""

    dialect: str
    schema_field: Callable[[Object], Object]
    lark_field: Callable[[str], Object] | None = None
    lark_note: str = ""
    has_structural_tags: bool = False
    is_verified: bool = False
    limits: DecodingLimits | None = None  # lengths where the schema has none; None if the server unrolls them
    notes: tuple[str, ...] = ()


def _response_format(schema: Object) -> Object:
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "tool_call", "schema": schema, "strict": True},
        }
    }


# The llguidance of llama.cpp does not know this option of JSON, and a grammar with it would silently not be applied.
_ESCAPES_OPTION = ',"json_allowed_escapes":"nrbtf\\"\\\\"'
_LIMITS = DecodingLimits(max_properties=None)  # xgrammar does not count properties
_SERVERS: dict[str, _GrammarServerRow] = {
    # vllm/sampling_params.py StructuredOutputsParams, vllm/entrypoints/openai/engine/protocol.py (vLLM a014e35f)
    "vllm": _GrammarServerRow(
        "xgrammar",
        lambda schema: {"structured_outputs": {"json": schema}},
        lambda lark: {"structured_outputs": {"grammar": lark}},
        "start the server with the structured-output backend guidance",
        has_structural_tags=True,
        limits=_LIMITS,
        notes=("send no forced tool_choice beside these fields",),
    ),
    # vllm/entrypoints/openai/protocol.py ChatCompletionRequest.guided_json, guided_grammar (vLLM 881e1af4)
    "vllm_guided": _GrammarServerRow(
        "xgrammar",
        lambda schema: {"guided_json": schema},
        lambda lark: {"guided_grammar": lark, "guided_decoding_backend": "guidance"},
        "the backend guidance must be installed on the server",
        limits=_LIMITS,
        notes=("send no forced tool_choice beside these fields",),
    ),
    # python/sglang/srt/entrypoints/openai/protocol.py ResponseFormat, ChatCompletionRequest.ebnf (SGLang cce0a124);
    # llguidance reads Lark in `ebnf` (srt/constrained/llguidance_backend.py)
    "sglang": _GrammarServerRow(
        "xgrammar",
        _response_format,
        lambda lark: {"ebnf": lark},
        "start the server with the grammar backend llguidance",
        has_structural_tags=True,
        limits=_LIMITS,
        notes=("send no forced tool_choice beside these fields",),
    ),
    # tools/server/server-common.cpp oaicompat_chat_params_parse, common/sampling.cpp (llama.cpp b21e4de7)
    "llama_cpp": _GrammarServerRow(
        "gbnf",
        _response_format,
        lambda lark: {"grammar": lark.replace(_ESCAPES_OPTION, "")},
        "the server must be built with LLAMA_LLGUIDANCE: another one aborts; send the tools in the prompt, not in "
        "`tools`, beside which a grammar is refused",
        is_verified=True,
        notes=("set a token limit: the grammar has no limit for the lengths of strings",),
    ),
    # server/routes.go ChatHandler, api/types.go ChatRequest.Format (Ollama fb307609)
    "ollama": _GrammarServerRow(
        "gbnf",
        lambda schema: {"format": schema},
        notes=("set num_predict: the grammar has no limit for the lengths of strings",),
    ),
    "json_schema": _GrammarServerRow("gbnf", _response_format),
}


def guided_request(
    tools: Request | Iterable[Tool],
    server: GrammarServer,
    *,
    choice: ToolChoice | None = None,
    format: Format | str | None = None,  # noqa: A002  # the name of the concept in the whole package
    parallel: bool | None = None,
    special_tokens: Mapping[str, int] | None = None,
    may_reason: bool = True,
) -> GuidedRequest:
    """Return the fields that constrain an answer to calls of the tools, or to a turn in a text format.

    `choice` and `parallel` default to a Request's own, `choice` otherwise to a required call. `special_tokens` maps
    the tags of the format that the tokenizer holds as one special token to their ids: a grammar does not match a special
    token by its text. `may_reason=False` excludes reasoning before a required call in a text format: a model that was not
    trained to reason may not end it. Raise ConfigError for a constraint that the server cannot express, an unknown server
    or tool.
    """
    row = _SERVERS.get(server)
    if row is None:
        raise ConfigError(f"unknown server {server!r}", hint=f"use one of {', '.join(_SERVERS)}")
    if isinstance(tools, Request):
        choice = tools.choice if choice is None else choice
        parallel = tools.parallel if parallel is None else parallel
        tools = tools.tools
    choice = ToolChoice("required") if choice is None else choice
    selected = _select_tools(tools, choice)
    if format is None:
        return _guide_json(row, selected, choice, parallel)
    form = get(format) if isinstance(format, str) else format
    tagged = _guide_by_tags(row, form, selected, choice, parallel)
    if tagged is not None:
        return tagged
    if row.lark_field is None:
        raise ConfigError(
            f"{server} has no grammars, so it cannot constrain the text format {form.name!r}",
            hint="leave out the format: the call is then plain JSON",
        )
    grammar = form.grammar(selected, choice, parallel, special_tokens=special_tokens, may_reason=may_reason)
    notes = (row.lark_note, *_notes(row))
    return GuidedRequest(row.lark_field(grammar.lark), grammar.residual, form.name, row.is_verified, notes)


def _select_tools(tools: Iterable[Tool], choice: ToolChoice) -> list[Tool]:
    """Return the tools that may be called, as functions.

    Raise ConfigError if the choice names an unknown tool, or no tool can be called.
    """
    offered = [tool for tool in tools if tool.kind != "builtin"]
    named = choice.names if choice.mode in ("tool", "allowed") else None
    unknown = [name for name in named or () if all(tool.name != name for tool in offered)]
    if unknown:
        raise ConfigError(
            f"the tool choice names {unknown[0]!r}, which is not offered", hint="offer it, or name another"
        )
    if not offered or choice.mode == "none":
        raise ConfigError("no tool can be called", hint="offer a function, and do not choose 'none'")
    return [
        replace(tool, kind="function", input_schema=_FUNCTION_INPUT) if tool.kind == "freeform" else tool
        for tool in offered
        if named is None or tool.name in named
    ]


def _guide_json(row: _GrammarServerRow, tools: list[Tool], choice: ToolChoice, parallel: bool | None) -> GuidedRequest:
    """Constrain the whole answer to a call in plain JSON; raise ConfigError if the choice does not force a call."""
    if not choice.forces_call:
        raise ConfigError(
            f"a JSON schema forces a call, but the choice is {choice.mode!r}",
            hint="choose 'required' or a tool, or give the text format of the model",
        )
    residual: list[Residual] = []
    lowered = [replace(tool, input_schema=_lower_tool(tool, row, residual)) for tool in tools]
    schema = call_schema(lowered, parallel=bool(parallel))
    if row.limits is not None:
        schema = decoding_schema(schema, limits=row.limits).schema
    return GuidedRequest(row.schema_field(schema), tuple(residual), _PLAIN_JSON, row.is_verified, _notes(row))


def _lower_tool(tool: Tool, row: _GrammarServerRow, residual: list[Residual]) -> Object:
    """Return the arguments' schema with the keywords that the server enforces; add the others to `residual`."""
    if tool.input_schema is None:
        return {"type": "object"}
    lowered = lower_arguments(tool.input_schema, row.dialect)
    if lowered is None:
        residual += [Residual(join(tool.name), keyword) for keyword in tool.input_schema]
        return {"type": "object", "additionalProperties": True}
    for loss in lowered.losses:
        if loss.action in ("weakened", "dropped"):
            at, _, keyword = loss.path.rpartition("/")
            residual.append(Residual(join(tool.name) + at, keyword))
    return lowered.schema


def _guide_by_tags(
    row: _GrammarServerRow, form: Format, tools: list[Tool], choice: ToolChoice, parallel: bool | None
) -> GuidedRequest | None:
    """Constrain the answer to a turn in a text format by structural tags; None if they do not suffice."""
    is_single = parallel is False or (parallel is None and form.one_call)
    if not row.has_structural_tags or not _has_tagged_calls(form, is_single=is_single):
        return None
    residual: list[Residual] = []
    tags = [_structural_tag(form, tool, _lower_tool(tool, row, residual)) for tool in tools]
    fields: Object = {"response_format": _structural_tags(tools, tags, choice, is_single=is_single)}
    return GuidedRequest(fields, tuple(residual), form.name, row.is_verified, _notes(row))


def _has_tagged_calls(form: Format, *, is_single: bool) -> bool:
    """Return whether each call is JSON between two texts that depend only on the tool, as structural tags require."""
    first, second = (ToolCall(f"call0000{number}", f"f{number}", _SAMPLE) for number in range(2))
    one, two = form.calls.write([first]), form.calls.write([second])
    begin, found, end = one.partition(_SAMPLE_TEXT)
    has_tag = bool(found and end.strip()) and begin.strip()[:1] not in ("", "{", "[") and first.id not in one
    return has_tag and (
        is_single or form.calls.write([first, second]).replace("\n", "") == (one + two).replace("\n", "")
    )


def _structural_tag(form: Format, tool: Tool, schema: Object) -> Object:
    begin, _, end = form.calls.write([ToolCall("call00000", tool.name, _SAMPLE)]).partition(_SAMPLE_TEXT)
    content: Object = {
        "type": "json_schema",
        "json_schema": decoding_schema(close_arguments(schema), limits=_LIMITS).schema,
    }
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _structural_tags(tools: list[Tool], tags: list[Object], choice: ToolChoice, *, is_single: bool) -> Object:
    """Return the structural tags of a turn, as xgrammar reads them: free text until a trigger, then a call."""
    return {
        "type": "structural_tag",
        "format": {
            "type": "triggered_tags",
            "triggers": list(
                dict.fromkeys(_trigger(tag["begin"], tool) for tag, tool in zip(tags, tools, strict=True))
            ),
            "tags": tags,
            "at_least_one": choice.forces_call,
            "stop_after_first": is_single,
        },
    }


def _trigger(begin: str, tool: Tool) -> str:
    """Return the text at which a call begins: its first tag, or all of it before the name of the tool."""
    before = begin.partition(tool.name)[0]
    tag = _FIRST_TAG.match(before)
    if tag is not None:
        return tag[0]
    return before + tool.name if before.endswith(">") else before  # a tag before the name begins other turns, too


def _notes(row: _GrammarServerRow) -> tuple[str, ...]:
    return row.notes if row.is_verified else (*row.notes, _NOT_LIVE)
