"""Convert the schemas of calls to a grammar for llama.cpp's constrained decoding.

llama.cpp is built with llguidance, whose grammar produces the call on one line. `response_format` lets the model
write spaces and line breaks, and takes two thirds more tokens (bench/local.py measures both). A schema that
llguidance does not fully support would silently give no grammar at all, so the schema is converted cautiously first
(`schema.decoding`). The code that runs the tool checks the keywords that the grammar does not enforce.
"""

from __future__ import annotations

from ..ir.errors import ProtocolError
from ..ir.pointer import JSON, Object
from ..ir.response import Fault, UpstreamError
from ..ir.text import dumps
from ..schema.composition import relocate_refs
from ..schema.decoding.converter import decoding_schema
from ..schema.decoding.limits import DecodingLimits, Residual
from ..schema.validation.validator import validator
from ..stream.strict import parse_object
from .choice import OPENING

LIMITS = DecodingLimits(max_length=200, max_items=8, max_properties=1, max_integer=2**53 - 1, close_objects=True)
"""Limits for a small model, which may repeat a value, an item or a key forever."""
_COMPACT_JSON = {"whitespace_flexible": False}


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


def check_call(shape: Object, text: str) -> None:
    """Raise `UpstreamError` if a finished text is not a call that the grammar of its schema allows.

    llama.cpp ignores a grammar that it refuses, such as for a schema without a valid value, and writes any text. A text
    cut off by a stop sequence of the request is accepted.
    """
    if not _is_allowed(shape["properties"], text):
        name = shape["properties"]["name"]["const"]
        reason = "its schema may be unsatisfiable, or llama.cpp refused its grammar"
        raise UpstreamError(Fault("invalid_request", f"no valid call of {name}: {reason}", 400, retryable=False))


def _is_allowed(parts: Object, text: str) -> bool:
    try:
        call = parse_object(text.encode())
    except ProtocolError:
        return text.startswith(OPENING) or OPENING.startswith(text)
    if call.get("name") != parts["name"]["const"] or "arguments" not in call:
        return False
    enforced = decoding_schema(parts["arguments"], limits=LIMITS, cautious=True).schema
    # The engine's formats are approximations, and a check that is too costly is left to the tool.
    unchecked = ("format", "effort", "depth")
    return all(problem.keyword in unchecked for problem in validator(enforced).problems(call["arguments"]))
