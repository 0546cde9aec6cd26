"""Propose positions of a text for calls: where the model would begin one."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.errors import ConfigError
from ...ir.value import Value
from ..language_model import LanguageModel
from .losses import start_tokens
from .mining_tool import MiningTool

__all__ = ["ProposedPosition", "call_start_tokens", "propose_insertion_points", "propose_positions"]

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
    out.
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
    """Return the tokens that begin a call: an opening bracket, and one with a space before it if that is one token."""
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
