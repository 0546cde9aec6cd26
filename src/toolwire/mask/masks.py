"""Masks: a schema, a grammar or a regular expression, compiled once for a tokenizer.

The growth of a mask is an estimate: the most that a token can lengthen the shortest end of an output, by the largest value that
it may begin. `BatchMask` computes the masks of many outputs at once, on the engine's threads, without the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import llguidance
import msgspec
import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ConfigError, SchemaError
from ..ir.pointer import JSON, Object
from ..ir.text import dumps
from ..schema.decoding.converter import DecodingSchema, decoding_schema
from ..schema.decoding.limits import DecodingLimits, Residual
from ..schema.validation.patterns import match_cost
from .closing import ClosingPlan
from .state import MaskState
from .tokenizer import MaskTokenizer

_LEAST = 6  # tokens: quotes, a colon and a brace may be needed after any token
_MOST = 200  # tokens; a larger step would make every check due at once, and close answers long before their limit
_FORMAT = 40  # bytes of a formatted string; a date-time with its time zone has 35, a UUID 36
_MAX_DEPTH = 12  # levels of required objects; deeper ones add little to the largest value, up to _MOST
_MAX_VISITS = 4_000  # subschemas; the estimate must stay cheaper than the grammar itself
_SUBWORD_VOCABULARY = 2_000  # byte and character vocabularies are smaller; their tokens are one byte each


def largest_step(schema: Object, tokenizer: MaskTokenizer) -> tuple[int, frozenset[bytes]]:
    """Return the most tokens by which one token may lengthen the end, and the names of required properties.

    The number is estimated from constants, keys and minimum lengths.
    """
    estimate = _Estimate(schema.get("$defs", {}))
    estimate.measure(schema, 0)
    per_token = 2 if tokenizer.vocabulary_size > _SUBWORD_VOCABULARY else 1
    return max(_LEAST, min(estimate.largest // per_token, _MOST)), frozenset(estimate.required)


class _Estimate:
    """Estimates the smallest values of subschemas in bytes.

    `largest` is the largest of these estimates so far, and `required` contains the names of required properties.
    """

    __slots__ = ("_defs", "_left", "_open", "largest", "required")

    def __init__(self, definitions: Object) -> None:
        self._defs = definitions
        self._left = _MAX_VISITS
        self._open: set[str] = set()
        self.largest = 0
        self.required: set[bytes] = set()

    def measure(self, schema: JSON, depth: int) -> int:
        """Return the bytes of a smallest value, and remember the largest one."""
        self._left -= 1
        if type(schema) is not dict or depth > _MAX_DEPTH or self._left < 0:
            return 2
        size = self._measure(schema, depth)
        self.largest = max(self.largest, size)
        return size

    def _measure(self, schema: Object, depth: int) -> int:
        """Return the largest estimate of any keyword; a reference inside its own target counts nothing."""
        sizes = [self._constant_size(schema), self._string_size(schema)]
        sizes += [self.measure(branch, depth + 1) for key in ("anyOf", "allOf") for branch in schema.get(key, ())]
        ref = schema.get("$ref")
        if ref is not None and ref not in self._open:
            self._open.add(ref)
            sizes.append(self.measure(self._defs.get(ref.rpartition("/")[2]), depth + 1))
            self._open.discard(ref)
        sizes.append(self._object_size(schema, depth))
        # a separator (", ") has two bytes, and so have brackets and the smallest undeclared item
        prefix = [self.measure(item, depth + 1) + 2 for item in schema.get("prefixItems", ())]
        other = self.measure(schema["items"], depth + 1) + 2 if "items" in schema else 4
        sizes.append(
            2 + sum(prefix[: schema.get("minItems", 0)]) + other * max(schema.get("minItems", 0) - len(prefix), 0)
        )
        return max(sizes)

    def _constant_size(self, schema: Object) -> int:
        values = [schema["const"]] if "const" in schema else schema.get("enum", ())
        return max((len(dumps(value)) for value in values[:_MAX_VISITS]), default=2)

    def _string_size(self, schema: Object) -> int:
        length: int = schema.get("minLength", 0)
        pattern = min(match_cost(schema["pattern"]), 4 * _MOST) if "pattern" in schema else 0
        return 2 + length + pattern + (_FORMAT if "format" in schema else 0)

    def _object_size(self, schema: Object, depth: int) -> int:
        """Return the size with all required properties, and collect their names.

        The longest optional property is only remembered in `largest`: once begun, it must be completed.
        """
        needed, optional = 2, 0  # two braces
        required = schema.get("required", ())
        for name, subschema in schema.get("properties", {}).items():
            size = len(name) + 6 + self.measure(subschema, depth + 1)  # 6: quotes, ": " and ", "
            if name in required:
                needed += size
                self.required.add(name.encode("utf-8", "replace"))
            else:
                optional = max(optional, size)
        self.largest = max(self.largest, optional)
        return needed


MaskEngine: TypeAlias = Literal["llguidance", "xgrammar"]
_MAX_GRAMMAR = 4_000_000  # characters; the engine compiles in native code, which no time limit can stop
_DEFAULT_STEP = 24  # tokens, for a grammar without a schema from which it could be estimated
# Without \u, every key has one spelling. With it, the engine would accept an escaped form of a declared key as an
# undeclared one, and so a value that the schema of the key forbids.
_JSON_OPTIONS: Object = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf"\\',
}
MASK_LIMITS = DecodingLimits(max_length=None, max_limited=8)
"""The default limits of masks. A limit on strings doubles the cost of their tokens, and many limits on arrays double
the cost of compilation; `start(max_tokens)` closes both."""
_encode = msgspec.json.Encoder().encode


class Mask:
    """A compiled constraint on the whole output; `start` begins one output."""

    residual: tuple[Residual, ...] = ()
    """The keywords that a validator has to check after generation."""

    def __init__(self, matcher: Any, tokenizer: MaskTokenizer) -> None:
        self._matcher = matcher
        self.tokenizer = tokenizer

    def start(self, max_tokens: int | None = None) -> MaskState:
        """Begin an output; with `max_tokens` it is completed within this number of tokens if that is possible.

        Raise ConfigError for a limit below 1.
        """
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
        """Convert and compile the schema; ConfigError for an unknown engine, SchemaError if the engine refuses it."""
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
            unenforced = decoded.residual[0]
            raise SchemaError(
                f"decoding cannot enforce {unenforced.keyword}",
                pointer=unenforced.pointer,
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
    """Raise SchemaError if a grammar is empty, too long or no text."""
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
    """Return a matcher for a schema. Raise SchemaError if it is not JSON."""
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


class BatchMask:
    """The masks of a batch: row `index` of the result belongs to `states[index]`."""

    __slots__ = ("_executor", "_rows", "states")

    def __init__(
        self, outputs: Sequence[Mask | MaskState], *, max_tokens: int | None = None, threads: int | None = None
    ) -> None:
        """Begin an output for each `Mask`, limited to `max_tokens`; a `MaskState` continues with its own limit.

        `threads` is the number of threads of the engine; None for most of the processors. Raise ConfigError for no
        outputs, for an invalid `max_tokens`, and for masks of different widths. Tokenizers are not compared further:
        each row is computed for its own.
        """
        if not outputs:
            raise ConfigError("a batch needs at least one mask")
        self.states = [output.start(max_tokens) if isinstance(output, Mask) else output for output in outputs]
        widths = {state.width for state in self.states}
        if len(widths) > 1:
            raise ConfigError("the masks of a batch must have the same width", hint="use one tokenizer for all")
        self._executor: Any = llguidance.LLExecutor(threads)
        self._rows = np.zeros((len(self.states), widths.pop()), np.uint32)

    def allowed(self) -> NDArray[np.uint32]:
        """Return the masks of the next tokens; the array is reused by the next call.

        Masks of llguidance are computed together, in parallel threads; forced ends and other engines one by one.
        """
        computed = []
        for index, state in enumerate(self.states):
            if state.fill_forced(self._rows[index]):
                continue
            if isinstance(state.matcher, llguidance.LLMatcher):
                computed.append((index, state))
            else:
                state.fill(self._rows[index])
        if computed:
            pairs = [(state.matcher, index) for index, state in computed]
            rows, width = self._rows.shape
            self._executor.unsafe_compute_mask_ptr(pairs, self._rows.ctypes.data, width * 4, rows)
            for index, state in computed:
                state.check()
                state.restrict(self._rows[index])
        return self._rows

    def accept(self, tokens: Sequence[int]) -> None:
        """Continue each output with its token. Raise ConfigError for another number of tokens."""
        if len(tokens) != len(self.states):
            raise ConfigError(f"expected {len(self.states)} tokens, got {len(tokens)}")
        for state, token in zip(self.states, tokens, strict=True):
            state.accept(int(token))

    @property
    def is_finished(self) -> bool:
        return all(state.is_finished for state in self.states)
