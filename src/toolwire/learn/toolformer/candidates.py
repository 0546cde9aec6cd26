"""Candidates of calls: propose positions of a text, and execute the calls that were sampled there.

Positions are proposed where the model would begin a call. Calls run through the runtime with its time limits; a call without a usable result has a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall, ToolResult
from ...ir.value import Value
from ...net.tools.runner import Runner
from ...run.values.results import result_code
from ..language_model import LanguageModel
from .corpus import parse_call
from .filters import MAX_LOGITS, start_tokens
from .mining_tool import MiningTool, calculator_tool


class ProposedPosition(Value, frozen=True):
    """A position of a text (in characters), and the probability of a call there."""

    position: int
    probability: float


def propose_insertion_points(
    model: LanguageModel,
    passage: str,
    tool: MiningTool | None = None,
    *,
    k: int | None = None,
    call_probability: float | None = None,
) -> list[int]:
    """Return up to `k` positions of `passage`, in characters, where the model would begin a call, in their order.

    The default tool is the calculator. `k` and `call_probability` replace the settings of the tool.
    """
    tool = tool or calculator_tool()
    [found] = propose_positions(model, [passage], tool, k=k, call_probability=call_probability)
    return sorted(one.position for one in found)


def propose_positions(
    model: LanguageModel,
    texts: Sequence[str],
    tool: MiningTool,
    *,
    k: int | None = None,
    call_probability: float | None = None,
    batch_tokens: int = 16_384,
) -> list[list[ProposedPosition]]:
    """Return the best positions of each text, the most probable first.

    One forward pass per text: the few-shot prompt, then the text. The probability of a call before token j is that
    of the call-start token after the tokens before j. Positions with a probability below `call_probability` are left
    out. Raise ConfigError if `count` is not positive.
    """
    count = tool.positions if k is None else k
    least = tool.call_probability if call_probability is None else call_probability
    if count < 1:
        raise ConfigError(f"the number of positions must be positive, got {count}")
    start = start_tokens(model)
    rows = []
    for number, text in enumerate(texts):
        prompt, tokens = [*start, *model.encode(tool.prompt(text))], model.encode(f" {text}")
        rows.append((number, prompt, tokens))
    rows.sort(key=lambda row: (-len(row[1]) - len(row[2]), row[0]))
    found: list[list[ProposedPosition]] = [[] for _ in texts]
    first = 0
    while first < len(rows):
        width = max(len(rows[first][1]) + len(rows[first][2]), 1)
        batch = rows[first : first + max(1, batch_tokens // width)]
        for (number, _, tokens), chances in zip(batch, _call_probabilities(model, batch), strict=True):
            found[number] = _best_positions(model, texts[number], tokens, chances, count, least)
        first += len(batch)
    return found


def call_start_tokens(model: LanguageModel) -> list[int]:
    """Return the tokens that begin a call: an opening bracket, and one with a space before it if that is one token.

    Raise ConfigError if there is no such token.
    """
    found = {tuple(model.encode(text)) for text in ("[", " [")}
    tokens = sorted(tokens[0] for tokens in found if len(tokens) == 1)
    if not tokens:
        raise ConfigError("the tokenizer has no token for an opening bracket")
    return tokens


def _call_probabilities(
    model: LanguageModel, batch: Sequence[tuple[int, Sequence[int], Sequence[int]]]
) -> list[list[float]]:
    """Return, for each row, the probability of a call before each of its tokens."""
    import torch

    tokens, attention = model.pad_batch([[*prompt, *text] for _, prompt, text in batch])
    starts = torch.tensor(call_start_tokens(model), device=model.device)
    with torch.inference_mode():
        states = model.hidden_states(tokens, attention)
        wanted = torch.cat(
            [states[row, len(prompt) - 1 : len(prompt) - 1 + len(text)] for row, (_, prompt, text) in enumerate(batch)]
        )
        chances = []
        for block in wanted.split(max(1, MAX_LOGITS // model.vocabulary_size)):
            logits = model.word_logits(block)
            chances.append((logits[:, starts].logsumexp(-1) - logits.logsumexp(-1)).exp())
    flat = torch.cat(chances).tolist() if chances else []
    found, first = [], 0
    for _, _, text in batch:
        found.append(flat[first : first + len(text)])
        first += len(text)
    return found


def _best_positions(
    model: LanguageModel, text: str, tokens: Sequence[int], chances: Sequence[float], count: int, least: float
) -> list[ProposedPosition]:
    """Return the `count` most probable positions. A position inside of a character is not a position."""
    order = sorted(range(1, len(tokens)), key=lambda place: (-chances[place], place))
    found: list[ProposedPosition] = []
    for place in order:
        if len(found) == count or chances[place] < least:
            break
        before = model.decode(tokens[:place]).removeprefix(" ")  # the space after "Output:", which some decoders omit
        if before and text.startswith(before) and len(before) < len(text):
            found.append(ProposedPosition(len(before), chances[place]))
    return found


_MAX_CALLS = 256  # calls of one run
# calls with their results; bounds memory. Samples of a text repeat each other, so an emptied cache costs little
_MAX_CACHED = 100_000


class ExecutedCall(Value, frozen=True):
    """The result of a call, or the reason why there is none."""

    result: str | None = None
    reason: str = ""


class CallExecutor:
    """Runs calls written as text. The result of an identical call is reused. Close it, or use it in a `with` block."""

    def __init__(self, tools: Sequence[MiningTool]) -> None:
        """Raise ConfigError for a tool with side effects: a model makes thousands of calls without approval."""
        for mined in tools:
            if mined.tool.effect not in ("pure", "read"):
                raise ConfigError(
                    f"the tool {mined.name!r} has side effects (effect {mined.tool.effect!r}), and sampled calls run unattended",
                    hint='use a tool with effect="pure" or effect="read"',
                )
        self._tools = [mined.tool for mined in tools]
        self._runner = Runner(*self._tools, keeps_outputs=False)
        self._known: dict[tuple[str, str | None], ExecutedCall] = {}

    def execute(self, calls: Sequence[tuple[str, str | None]]) -> list[ExecutedCall]:
        """Execute calls, each with the date of its text (or None), and return their results in the same order."""
        if len(self._known) > _MAX_CACHED:
            self._known.clear()
        missing: dict[str | None, dict[str, None]] = {}  # texts by date; a dict instead of a set keeps their order
        for text, date in calls:
            if (text, date) not in self._known:
                missing.setdefault(date, {})[text] = None
        for date, texts in missing.items():
            self._run(list(texts), date)
        return [self._known[key] for key in calls]

    def close(self) -> None:
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, texts: Sequence[str], date: str | None) -> None:
        """Run the calls in batches and store each outcome in `_known`, also for texts that are not calls."""
        parsed: list[tuple[str, ToolCall]] = []
        for text in texts:
            call = parse_call(text, self._tools)
            if call is None:
                self._known[text, date] = ExecutedCall(reason="not a call")
            else:
                parsed.append((text, call))
        for first in range(0, len(parsed), _MAX_CALLS):
            part = parsed[first : first + _MAX_CALLS]
            calls = [
                ToolCall(f"call{number}", call.name, call.arguments) for number, (_, call) in enumerate(part, first)
            ]
            results = self._runner.run_sync(calls, deps={"date": date})
            for (text, _), result in zip(part, results, strict=True):
                self._known[text, date] = _outcome(result)


def _outcome(result: ToolResult) -> ExecutedCall:
    if result.is_error:
        code = result_code(result)
        return ExecutedCall(reason=result.text[:80] if code == "failed" else code.replace("_", " "))
    text = " ".join(result.text.split())
    return ExecutedCall(text) if text else ExecutedCall(reason="empty result")
