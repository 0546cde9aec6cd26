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
from ..ir.pointer import JSON, Object
from ..ir.tools import Tool, ToolChoice
from ..schema.composition import arguments_schema
from ..schema.decoding.converter import decoding_schema
from ..text import Format, get
from ..text.engine.grammar import CALL_LIMITS
from ..text.engine.style import JsonArguments
from .closing import ClosingPlan
from .closing_search import ClosingSearch
from .growth import Growth
from .masks import GrammarMask
from .schema_growth import MEMBER, estimate_growth
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
        growth: Growth,
        *,
        closers: tuple[list[int], ...] = (),
        without_calls: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(tokenizer, max_tokens, growth)
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
        self._growth, self._is_known = Growth(self._text_step, self._text_step), False
        return matcher

    def find(self, matcher: Any, budget: int) -> list[int] | None:
        search = _TagSearch(self._tokenizer, self._growth.required, budget, self._path, self._growth.examples)
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
_MARKS = 8  # tokens around a call beside its own, such as marks of the turn
_MOST_KEYS = 200  # keys that may be closed; generated schemas have any number


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
        self._keys = sorted({key for tool in offered for key in _keys(tool.input_schema)})
        self._closers = self._encode_all(self.grammar.closers(self._keys))
        self._offered = [tool for tool in offered if tool.kind != "builtin"]
        self._is_one_call = choice.forces_call and parallel is False and len(self._offered) == 1
        may_be_text = choice.mode != "none" and self._matcher.is_accepting()
        self._derive_text = partial(derive, _NONE, cautious=True) if may_be_text else None
        self._text: Any = None

    def _new_plan(self, max_tokens: int, growth: Growth) -> ToolClosingPlan:
        return ToolClosingPlan(
            self.tokenizer,
            max_tokens,
            growth,
            closers=self._closers,
            without_calls=self._without_calls if self._derive_text else None,
        )

    def _without_calls(self) -> Any:
        """Return a matcher of text without calls; None if the engine refuses its grammar."""
        if self._text is None and self._derive_text is not None:
            grammar = llguidance.LLMatcher.grammar_from_lark(self._derive_text().lark)
            self._text = llguidance.LLMatcher(self.tokenizer.engine, grammar, log_level=0)
        return None if self._text is None or self._text.is_error() else self._text.deep_copy()

    def _estimate_growth(self) -> Growth:
        """Bound the ends of calls: the arguments of the largest tool, and the text of the format around them.

        A token may begin a whole call, by its trigger or by the first letter of its name, unless one call of one tool is
        required. A text between tags may close its tag, so it has no smaller bound than other tokens.
        """
        schemas = [decoding_schema(arguments_schema(tool), limits=CALL_LIMITS).schema for tool in self._offered]
        around = max((self._call_length(tool.name) for tool in self._offered), default=0)
        around += max(map(len, self._closers), default=0) + _MARKS
        separators = MEMBER
        if not isinstance(self.format.calls.template().arguments, JsonArguments):
            key = max(self._keys, key=len, default="")
            separators += self._call_length("f", {key: ""}) - self._call_length("f")
        found = estimate_growth(schemas, self.tokenizer, around=around, separators=separators)
        step = found.step if self._is_one_call else max(found.step, found.total)
        return found._replace(step=step, text_step=step)

    def _call_length(self, name: str, arguments: Object | None = None) -> int:
        call = ToolCall(id="a1b2c3d4e", name=name, arguments=arguments or {})
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
