"""A mask for the calls of a tool set in a text format, with the request's tool choice.

An output is closed before its token limit. In a text format, tags close values that no quote closes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any

import llguidance

from ..ir.errors import SchemaError
from ..ir.parts import ToolCall
from ..ir.pointer import JSON
from ..ir.text import dumps
from ..ir.tools import Tool, ToolChoice
from ..text import Format, get
from .closing import ClosingPlan, ClosingSearch
from .masks import GrammarMask
from .state import MaskState
from .tokenizer import MaskTokenizer

_MOST_CLOSERS = 3  # continuations per state; the search tries each of them, the shortest first
_CHARACTER_REST = 3  # tokens that complete a character


class ToolClosingPlan(ClosingPlan):
    """A plan that also tries the closing texts of a format, `closers`, as tokens.

    Text that may end anywhere needs no room for its end. Where the remaining tokens are too few for a call, the output
    continues under `without_calls`, a matcher of text, unless it already contains a call.
    """

    __slots__ = ("_closers", "_text_step", "_without_calls")

    def __init__(
        self,
        tokenizer: MaskTokenizer,
        max_tokens: int,
        step: int,
        *,
        closers: tuple[list[int], ...] = (),
        without_calls: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(tokenizer, max_tokens, step)
        self._closers = closers
        self._without_calls = without_calls
        self._text_step = min(_CHARACTER_REST, max_tokens // 4)

    def text_matcher(self, tokens: list[int]) -> Any:
        """Return a matcher for text without calls after `tokens`, and release the forced end; None if they have a call.

        It is tried once per output.
        """
        if self._without_calls is None:
            return None
        matcher = self._without_calls()
        self._without_calls = None
        if matcher is None or (tokens and matcher.try_consume_tokens(tokens) != len(tokens)):
            return None
        self._step, self._forced, self._check_at = self._text_step, False, self._left
        return matcher

    def _find(self, matcher: Any, budget: int) -> list[int] | None:
        search = _TagSearch(self._tokenizer, self._preferred, budget)
        search.closers = self._closers
        found = search.shortest(matcher)
        return search.first(matcher) if found is None else found


class _TagSearch(ClosingSearch):
    """A search that tries the closing texts before anything else."""

    __slots__ = ("closers",)

    closers: tuple[list[int], ...]

    def _continuations(self, state: Any, written: bytes | bytearray) -> list[list[int]]:
        found: list[list[int]] = []
        for tokens in self._ends(written):
            if state.validate_tokens(tokens) == len(tokens) and self._closes(state, tokens):
                found.append(tokens)
                if len(found) == _MOST_CLOSERS:
                    break
        return found or super()._continuations(state, written)

    def _ends(self, written: bytes | bytearray) -> Iterator[list[int]]:
        """Yield closing texts as tokens, and before them the missing parts of texts that `written` already begins."""
        engine = self._tokenizer.engine
        for tokens in self.closers:
            closer = engine.decode_bytes(tokens)
            for size in range(min(len(closer) - 1, len(written)), 1, -1):
                if written.endswith(closer[:size]):
                    yield engine.tokenize_bytes(closer[size:])
                    break
        yield from self.closers

    def _closes(self, state: Any, tokens: list[int]) -> bool:
        """Return False if the tokens are only text of a value: any letter may follow, and the output may not end."""
        if any(state.validate_tokens([*tokens, letter]) == len(tokens) for letter in self._table.letters.tolist()):
            return True
        following = state.deep_copy()
        return bool(following.consume_tokens(tokens)) and bool(following.is_accepting())


_AUTO = ToolChoice("auto")
_END = -1  # the engine adds the end token by itself
_NONE = ToolChoice("none")
_LEAST_STEP = 8  # tokens beyond the longest call without optional values: marks of the format
_MOST_KEYS = 200  # keys or constants that are looked at; the estimate must stay cheap for generated schemas
_MOST_LENGTH = 400  # characters of a required minimum; beyond it no answer's limit would suffice
_MOST_DEPTH = 8  # levels and items; the size of the example grows as their product


class ToolMask(GrammarMask):
    """A mask under which every call of the output is a valid call of an offered tool, in the notation of `format`.

    The choice decides about the rest of the output:

    auto, validated   text and reasoning are free; a call is masked from its trigger to its end
    required          at least one call, after reasoning if the format has markers for it and `may_reason`
    tool, allowed     the same for one tool, or for some of them
    none              text and reasoning without the openers of calls

    With `parallel=False`, the output ends after one call. `reasoning`: the prompt has already opened the reasoning.
    Markers that the tokenizer holds as one special token are allowed only as that token, all others only as text.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        tokenizer: MaskTokenizer,
        format: str | Format = "hermes",  # noqa: A002  # the name of the concept in all of the package
        choice: ToolChoice = _AUTO,
        parallel: bool | None = None,
        *,
        reasoning: bool | None = None,
        may_reason: bool = True,
    ) -> None:
        """Derive and compile the grammar of the calls.

        If the engine refuses the grammar, it is derived again with fewer keywords (`cautious`); SchemaError if that is
        refused, too.
        """
        self.format = get(format) if isinstance(format, str) else format
        offered = list(tools)
        derive = partial(
            self.format.grammar,
            offered,
            parallel=parallel,
            reasoning=reasoning,
            may_reason=may_reason,
            special_tokens=_special_tokens(tokenizer),
        )
        self.grammar = derive(choice)
        try:
            super().__init__(self.grammar.lark, tokenizer, residual=self.grammar.residual)
        except SchemaError:  # the engine refused a combination of keywords
            self.grammar = derive(choice, cautious=True)
            super().__init__(self.grammar.lark, tokenizer, residual=self.grammar.residual)
        self.triggers = self.grammar.triggers
        keys = sorted({key for tool in offered for key in _keys(tool.input_schema)})
        self._closers = self._encode_all(self.grammar.closers(keys))
        self._step = max(map(self._call_length, offered), default=0) + _LEAST_STEP
        may_be_text = choice.mode != "none" and self._matcher.is_accepting()
        self._derive_text = partial(derive, _NONE, cautious=True) if may_be_text else None
        self._text: Any = None

    def start(self, max_tokens: int | None = None) -> MaskState:
        """Begin an output; with `max_tokens` it is completed within this number of tokens if that is possible."""
        state = super().start(max_tokens)
        if max_tokens is None:
            return state
        plan = ToolClosingPlan(
            self.tokenizer,
            max_tokens,
            self._step,
            closers=self._closers,
            without_calls=self._without_calls if self._derive_text else None,
        )
        return MaskState(state.matcher, self.tokenizer, plan)

    def _without_calls(self) -> Any:
        """Return a matcher of text without calls; None if the engine refuses its grammar."""
        if self._text is None and self._derive_text is not None:
            grammar = llguidance.LLMatcher.grammar_from_lark(self._derive_text().lark)
            self._text = llguidance.LLMatcher(self.tokenizer.engine, grammar, log_level=0)
        return None if self._text is None or self._text.is_error() else self._text.deep_copy()

    def _call_length(self, tool: Tool) -> int:
        """Return the number of tokens of a call with the required arguments and the longest optional argument."""
        schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
        arguments = _smallest_value({"type": "object", **schema}, 0)
        declared = schema.get("properties")
        named = declared if isinstance(declared, dict) else {}
        others = {key: _smallest_value(inner, 1) for key, inner in named.items() if key not in arguments}
        if others:
            longest = max(others, key=lambda key: len(key) + len(dumps(others[key])))
            arguments[longest] = others[longest]
        call = ToolCall(id="a1b2c3d4e", name=tool.name, arguments=arguments)
        return len(self.tokenizer.encode(self.format.calls.write([call])))

    def _encode_all(self, texts: Iterable[str]) -> tuple[list[int], ...]:
        encode = self.tokenizer.engine.tokenize_str
        return tuple(encode(text, parse_special=True) for text in texts)


@lru_cache(8)
def _special_tokens(tokenizer: MaskTokenizer) -> dict[str, int]:
    """Return the special tokens by their text. The end token has the id -1: the engine adds it by itself."""
    declared = json.loads(tokenizer.definition).get("added_tokens", ()) if tokenizer.definition else ()
    special = {
        str(token["content"]): int(token["id"]) for token in declared if tokenizer.engine.is_special_token(token["id"])
    }
    return {text: _END if number == tokenizer.end_token else number for text, number in special.items() if text}


def _keys(schema: JSON) -> list[str]:
    """Return the names of all declared properties, also of nested objects, up to a limit."""
    found: dict[str, None] = {}
    pending = [schema]
    while pending and len(found) < _MOST_KEYS:
        node = pending.pop()
        if isinstance(node, dict):
            named = node.get("properties")
            found.update(dict.fromkeys(map(str, named)) if isinstance(named, dict) else {})
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return list(found)


def _smallest_value(schema: JSON, depth: int) -> Any:
    """Return a value about as long as the shortest one, with required properties only; constants are the longest."""
    if not isinstance(schema, dict) or depth > _MOST_DEPTH:
        return ""
    constants = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(constants, list) and constants:
        return max(constants[:_MOST_KEYS], key=lambda value: len(dumps(value)))
    named, required = schema.get("properties"), schema.get("required")
    if isinstance(named, dict) or schema.get("type") == "object":
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        parts = named if isinstance(named, dict) else {}
        return {name: _smallest_value(parts.get(name), depth + 1) for name in names[:_MOST_KEYS]}
    if schema.get("type") == "array":
        return [_smallest_value(schema.get("items"), depth + 1)] * _at_most(schema.get("minItems"), _MOST_DEPTH)
    return "x" * _at_most(schema.get("minLength"), _MOST_LENGTH)


def _at_most(value: JSON, limit: int) -> int:
    return min(max(value, 0), limit) if type(value) is int else 0
