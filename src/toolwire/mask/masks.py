"""Masks: a schema, a grammar or a regular expression, compiled once for a tokenizer."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import llguidance
import msgspec

from ..ir.errors import ConfigError, SchemaError
from ..ir.pointer import JSON, Object
from ..schema.decoding.converter import DecodingSchema, decoding_schema
from ..schema.decoding.limits import DecodingLimits, Residual
from .closing import ClosingPlan
from .growth import largest_step
from .state import MaskState
from .tokenizer import MaskTokenizer

__all__ = ["MASK_LIMITS", "GrammarMask", "JSONSchemaMask", "Mask", "RegexMask", "compile_matcher"]

MaskEngine: TypeAlias = Literal["llguidance", "xgrammar"]
_MAX_GRAMMAR = 4_000_000  # characters
_DEFAULT_STEP = 24
# Without \u, every key has one spelling. With it, the engine would accept an escaped form of a declared key as an
# undeclared one, and so a value that the schema of the key forbids.
_JSON_OPTIONS: Object = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf"\\',
}
MASK_LIMITS = DecodingLimits(max_length=None, max_limited=8)
"""The default limits of masks. A limit on strings doubles the cost of their tokens, and many limits on arrays that of the
compilation; `start(max_tokens)` closes both."""
_encode = msgspec.json.Encoder().encode


class Mask:
    """A compiled constraint on the whole output; `start` begins one output."""

    residual: tuple[Residual, ...] = ()
    """The keywords that a validator has to check after generation."""

    def __init__(self, matcher: Any, tokenizer: MaskTokenizer) -> None:
        self._matcher = matcher
        self.tokenizer = tokenizer

    def start(self, max_tokens: int | None = None) -> MaskState:
        """Begin an output; with `max_tokens` it is completed within this number of tokens if that is possible."""
        if max_tokens is None:
            return MaskState(self._matcher.deep_copy(), self.tokenizer)
        if type(max_tokens) is not int or max_tokens < 1:
            raise ConfigError(f"max_tokens must be a positive integer, got {max_tokens!r}")
        plan = ClosingPlan(self.tokenizer, max_tokens, *self._growth())
        return MaskState(self._matcher.deep_copy(), self.tokenizer, plan)

    def _growth(self) -> tuple[int, frozenset[bytes]]:
        """Return the tokens by which one token can lengthen the shortest end, and names to prefer on the way to it."""
        return _DEFAULT_STEP, frozenset()


class JSONSchemaMask(Mask):
    """A mask that allows only values of a JSON Schema, on one line, with spaces after commas and colons.

    With `unsupported="relax"`, keywords that the engine cannot enforce are listed in `residual`; with "error", they raise
    SchemaError. Properties are generated in the order of their declaration.
    """

    def __init__(
        self,
        schema: JSON,
        tokenizer: MaskTokenizer,
        *,
        engine: MaskEngine = "llguidance",
        unsupported: Literal["relax", "error"] = "relax",
        limits: DecodingLimits = MASK_LIMITS,
    ) -> None:
        decoded = decoding_schema(schema, limits=limits)
        self._estimate: tuple[int, frozenset[bytes]] | None = None
        if engine == "xgrammar":
            from .xgrammar_matcher import compile_xgrammar

            matcher: Any = compile_xgrammar(decoded.schema, tokenizer)
        elif engine == "llguidance":
            decoded, matcher = _compile_schema(schema, decoded, tokenizer, limits)
        else:
            raise ConfigError(f"unknown engine {engine!r}", hint="use llguidance or xgrammar")
        if unsupported == "error" and decoded.residual:
            left = decoded.residual[0]
            raise SchemaError(
                f"decoding cannot enforce {left.keyword}",
                pointer=left.pointer,
                hint='remove the keyword, or use unsupported="relax" and validate the output',
            )
        super().__init__(matcher, tokenizer)
        self.residual = decoded.residual
        self.decoded = decoded
        """The schema that the engine enforces."""

    def _growth(self) -> tuple[int, frozenset[bytes]]:
        if self._estimate is None:
            self._estimate = largest_step(self.decoded.schema, self.tokenizer)
        return self._estimate


class GrammarMask(Mask):
    """A mask of a Lark grammar in llguidance's dialect, whose start rule is `start`."""

    def __init__(self, lark: str, tokenizer: MaskTokenizer, *, residual: tuple[Residual, ...] = ()) -> None:
        _check_text(lark, "grammar")
        grammar = llguidance.LLMatcher.grammar_from_lark(lark)
        super().__init__(compile_matcher(grammar, tokenizer, "grammar"), tokenizer)
        self.residual = residual


class RegexMask(Mask):
    """A mask of a regular expression in Rust's syntax, without lookaround; the whole output matches it."""

    def __init__(self, pattern: str, tokenizer: MaskTokenizer) -> None:
        _check_text(pattern, "pattern")
        grammar = llguidance.LLMatcher.grammar_from_regex(pattern)
        super().__init__(compile_matcher(grammar, tokenizer, "pattern"), tokenizer)


def _check_text(text: object, kind: str) -> None:
    if not isinstance(text, str) or not text:
        raise SchemaError(f"the {kind} must be a text that is not empty")
    if len(text) > _MAX_GRAMMAR:
        raise SchemaError(f"the {kind} is longer than {_MAX_GRAMMAR:,} characters")


def _compile_schema(
    schema: JSON, decoded: DecodingSchema, tokenizer: MaskTokenizer, limits: DecodingLimits
) -> tuple[DecodingSchema, Any]:
    """Compile a converted schema; convert it cautiously if the engine refuses it."""
    matcher = _new_matcher(decoded.schema, tokenizer)
    if matcher.is_error() and "nsatisfiable" not in matcher.get_error():
        decoded = decoding_schema(schema, limits=limits, cautious=True)
        matcher = _new_matcher(decoded.schema, tokenizer)
    _require_valid(matcher, "schema")
    return decoded, matcher


def _new_matcher(schema: Object, tokenizer: MaskTokenizer) -> Any:
    try:
        text = _encode({**schema, "x-guidance": _JSON_OPTIONS}).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
    return llguidance.LLMatcher(tokenizer.engine, f'{{"grammars":[{{"json_schema":{text}}}]}}', log_level=0)


def compile_matcher(grammar: str, tokenizer: MaskTokenizer, kind: str) -> Any:
    """Compile a grammar of llguidance; SchemaError if it is refused."""
    matcher = llguidance.LLMatcher(tokenizer.engine, grammar, log_level=0)
    _require_valid(matcher, kind)
    return matcher


def _require_valid(matcher: Any, kind: str) -> None:
    if matcher.is_error():
        message = " ".join(matcher.get_error().split())[:300]
        raise SchemaError(f"the engine refused the {kind}: {message}", hint=f"simplify the {kind}")
