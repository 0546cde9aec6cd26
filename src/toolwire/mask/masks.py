"""Masks: a schema, a grammar or a regular expression, compiled once for a tokenizer.

`BatchMask` computes the masks of many outputs at once, on the engine's threads, without the interpreter lock.
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
from ..schema.decoding.converter import DecodingSchema, decoding_schema
from ..schema.decoding.limits import DecodingLimits, Residual
from .closing import ClosingPlan
from .closing_search import START_STATES
from .growth import Growth, TokenLimitError, pattern_growth
from .schema_growth import estimate_growth
from .state import MaskState
from .tokenizer import MaskTokenizer

MaskEngine: TypeAlias = Literal["llguidance", "xgrammar"]
_MAX_GRAMMAR = 4_000_000  # characters; the engine compiles in native code, which no time limit can stop
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
        self._shortest: list[int] | None = None  # the tokens of a shortest output, found by the first limited one
        self._growth: Growth | None = None  # computed by the first limited output

    def start(self, max_tokens: int | None = None) -> MaskState:
        """Begin an output; with `max_tokens` it is completed within this number of tokens.

        Raise TokenLimitError if no output is that short, with the smallest limit that is accepted, or if the mask cannot
        promise to keep any limit.
        """
        if max_tokens is None:
            return MaskState(self._matcher.deep_copy(), self.tokenizer)
        if type(max_tokens) is not int or max_tokens < 1:
            raise ConfigError(f"max_tokens must be a positive integer, got {max_tokens!r}")
        return MaskState(self._matcher.deep_copy(), self.tokenizer, self._plan(max_tokens))

    def _plan(self, max_tokens: int) -> ClosingPlan:
        """Return the plan of one output. Raise TokenLimitError if the shortest output that was found exceeds the limit."""
        if self._growth is None:
            self._growth = self._estimate_growth()
        plan = self._new_plan(max_tokens, self._growth)
        if self._shortest is None:
            self._shortest = plan.find(self._matcher, START_STATES)
            if self._shortest is not None and len(self._shortest) > self._growth.total:  # the search is not exact
                self._growth = self._growth._replace(total=len(self._shortest))
                plan = self._new_plan(max_tokens, self._growth)
        if self._shortest is None:
            raise TokenLimitError("no short output of this mask was found", hint="start without max_tokens")
        least = max(len(self._shortest), 1)
        if least > max_tokens:
            message = f"an output needs at least {least} tokens, got max_tokens={max_tokens}"
            raise TokenLimitError(message, least=least, hint=f"pass max_tokens={least} or more")
        plan.follow(self._shortest)
        return plan

    def _new_plan(self, max_tokens: int, growth: Growth) -> ClosingPlan:
        return ClosingPlan(self.tokenizer, max_tokens, growth)

    def _estimate_growth(self) -> Growth:
        """Bound the ends of outputs. Raise TokenLimitError if no bound is known."""
        raise NotImplementedError


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

    def _estimate_growth(self) -> Growth:
        return estimate_growth([self.decoded.schema], self.tokenizer)


class GrammarMask(Mask):
    """A mask of a Lark grammar in llguidance's dialect, whose start rule is `start`.

    `growth` is the most tokens that one token can require: with `start: "a" | "b" /c{30}/`, the token `b` requires 30
    others. `start` accepts a limit only with it, because it is not known from the grammar.
    """

    def __init__(
        self, lark: str, tokenizer: MaskTokenizer, *, growth: int | None = None, residual: tuple[Residual, ...] = ()
    ) -> None:
        _check_text(lark, "grammar")
        grammar = llguidance.LLMatcher.grammar_from_lark(lark)
        super().__init__(compile_matcher(grammar, tokenizer, "grammar"), tokenizer)
        self.residual = residual
        self._declared_growth = growth

    def _estimate_growth(self) -> Growth:
        if self._declared_growth is None:
            raise TokenLimitError("the growth of this grammar is not known", hint="pass growth, or no max_tokens")
        return Growth(self._declared_growth, self._declared_growth)


class RegexMask(Mask):
    """A mask of a regular expression in Rust's syntax, without lookaround; the whole output matches it."""

    def __init__(self, pattern: str, tokenizer: MaskTokenizer) -> None:
        _check_text(pattern, "pattern")
        grammar = llguidance.LLMatcher.grammar_from_regex(pattern)
        super().__init__(compile_matcher(grammar, tokenizer, "pattern"), tokenizer)
        self._pattern = pattern

    def _estimate_growth(self) -> Growth:
        return pattern_growth(self._pattern)


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
