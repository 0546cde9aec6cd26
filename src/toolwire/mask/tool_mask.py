"""A mask for the calls of a tool set in a text format, with the tool choice of the request."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache, partial

from ..ir.errors import SchemaError
from ..ir.parts import ToolCall
from ..ir.pointer import JSON
from ..ir.tools import Tool, ToolChoice
from ..text import Format, get
from .masks import GrammarMask
from .state import MaskState
from .tokenizer import MaskTokenizer
from .tool_closing import ToolClosingPlan

__all__ = ["ToolMask"]

_AUTO = ToolChoice("auto")
_END = -1
_MOST_STEP = 200
_MOST_KEYS = 200


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
        self.format = get(format) if isinstance(format, str) else format
        offered = list(tools)
        derive = partial(
            self.format.grammar,
            offered,
            choice,
            parallel,
            reasoning=reasoning,
            may_reason=may_reason,
            special_tokens=_special_tokens(tokenizer),
        )
        self.grammar = derive()
        try:
            super().__init__(self.grammar.lark, tokenizer, residual=self.grammar.residual)
        except SchemaError:  # the engine refused a combination of keywords
            self.grammar = derive(cautious=True)
            super().__init__(self.grammar.lark, tokenizer, residual=self.grammar.residual)
        self.triggers = self.grammar.triggers
        keys = sorted({key for tool in offered for key in _keys(tool.input_schema)})
        self._closers = self._encode_all(self.grammar.closers(keys))
        calls = [
            ToolCall(id="a1b2c3d4e", name=tool.name, arguments=dict.fromkeys(_keys(tool.input_schema), ""))
            for tool in offered
        ]
        self._step = max((len(tokenizer.encode(self.format.calls.write([call]))) for call in calls), default=0)

    def start(self, max_tokens: int | None = None) -> MaskState:
        """Begin an output; with `max_tokens` it is completed within this number of tokens if that is possible."""
        state = super().start(max_tokens)
        if max_tokens is None:
            return state
        plan = ToolClosingPlan(self.tokenizer, max_tokens, min(self._step, _MOST_STEP), closers=self._closers)
        return MaskState(state.matcher, self.tokenizer, plan)

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
