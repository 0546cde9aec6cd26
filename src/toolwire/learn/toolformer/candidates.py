"""Candidates of calls: propose positions of a text, sample calls there, and execute them.

Positions are proposed where the model would begin a call. A mask admits only inputs that fit the tool's pattern.
Calls run through the runtime with its time limits; a call without a usable result has a reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall, ToolResult
from ...ir.value import Value
from ...net.tools.runner import Runner
from ...run.values.results import result_code
from ..language_model import LanguageModel, generate_tokens
from .corpus import parse_call
from .filters import start_tokens
from .mining_tool import MiningTool, calculator_tool

if TYPE_CHECKING:
    from ...mask import RegexMask


_MAX_LOGITS = 2**28  # numbers of one block of logits: 1 GiB


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
    from .mining_tool import calculator_tool

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
        for block in wanted.split(max(1, _MAX_LOGITS // model.vocabulary_size)):
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


_MASK_TOKENIZERS: dict[int, tuple[Any, Any]] = {}  # by the id of a tokenizer, which the entry keeps alive


def sample_calls(
    model: LanguageModel,
    passage: str,
    i: int,
    n: int = 5,
    *,
    tool: MiningTool | None = None,
    temperature: float = 0.8,
    seed: int = 0,
) -> list[str]:
    """Return up to `n` different calls that the model writes before `passage[i:]`, such as `Calculator(8 - 2)`."""
    [calls] = sample_batch(
        model, [(passage, i)], tool or calculator_tool(), samples=n, temperature=temperature, seed=seed
    )
    return list(dict.fromkeys(calls))


def sample_batch(
    model: LanguageModel,
    places: Sequence[tuple[str, int]],
    tool: MiningTool,
    *,
    samples: int,
    temperature: float = 0.8,
    seed: int = 0,
    batch_tokens: int = 16_384,
) -> list[list[str]]:
    """Return the sampled calls of each place (a text and a position), repetitions included, sorted into batches.

    A sample that did not finish within the tool's `max_tokens` is left out. Raise ConfigError if `samples` is not
    positive.
    """
    if samples < 1:
        raise ConfigError(f"the number of samples must be positive, got {samples}")
    require_temperature(temperature)
    if not tool.pattern:  # a tool without input has one call
        return [[f"{tool.name}()"] for _ in places]
    from ...mask import MaskProcessor

    mask = call_mask(model, tool)
    prompts = [_prompt_tokens(model, text, position, tool) for text, position in places]
    order = sorted(range(len(places)), key=lambda number: (-len(prompts[number]), number))
    found: list[list[str]] = [[] for _ in places]
    first = 0
    while first < len(order):
        width = len(prompts[order[first]]) + tool.max_tokens
        rows = order[first : first + max(1, batch_tokens // (width * samples))]
        # no limit of tokens: unfinished calls are left out, which costs less than to force their end
        states = [mask.start() for _ in range(len(rows) * samples)]
        processor = MaskProcessor(states, len(prompts[order[first]]))
        generated = generate_tokens(
            model,
            [prompts[row] for row in rows],
            max_tokens=tool.max_tokens,
            temperature=temperature,
            samples=samples,
            seed=seed + first,
            processors=[processor],
        )
        for row, sampled in zip(rows, generated, strict=True):
            texts = [model.decode(tokens) for tokens in sampled]
            found[row] = [f"{tool.name}({text}" for text in texts if text.endswith(")")]
        first += len(rows)
    return found


def require_temperature(temperature: float) -> None:
    """Raise ConfigError for a temperature with which the samples of a position would all be equal, or undefined."""
    if not 0 < temperature < math.inf:
        raise ConfigError(f"temperature must be positive, got {temperature}", hint="use a value such as 0.8")


def call_mask(model: LanguageModel, tool: MiningTool) -> RegexMask:
    """Return the mask for the input of a call and its closing parenthesis."""
    from ...mask import MaskTokenizer, RegexMask

    known = _MASK_TOKENIZERS.get(id(model.tokenizer))
    if known is None or known[0] is not model.tokenizer:
        _MASK_TOKENIZERS.clear()
        known = (model.tokenizer, MaskTokenizer.from_tokenizer(model.tokenizer, model.vocabulary_size))
        _MASK_TOKENIZERS[id(model.tokenizer)] = known
    return RegexMask(rf"({tool.pattern})\)", known[1])


def _prompt_tokens(model: LanguageModel, text: str, position: int, tool: MiningTool) -> list[int]:
    before = text[:position]
    space = "" if not before or before[-1].isspace() else " "
    return [*start_tokens(model), *model.encode(f"{tool.prompt(text)} {before}{space}[{tool.name}(")]


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
        missing = [key for key in dict.fromkeys(calls) if key not in self._known]
        for date in dict.fromkeys(date for _, date in missing):
            self._run([text for text, its_date in missing if its_date == date], date)
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
