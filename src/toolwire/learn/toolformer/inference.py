"""Generate text with calls: a call begins where its first token is among the `top_k` most probable ones.

The model stops after the call, the call is executed, and generation continues after its result. As in the paper, an
input has at most one call, so that a model cannot call tools forever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError
from ...ir.value import Value
from ..language_model import LanguageModel, generate_tokens
from .candidates import CallExecutor, call_start_tokens
from .corpus import ARROW, call_span
from .filters import start_tokens
from .mining_tool import MiningTool

if TYPE_CHECKING:
    import torch

_CALL_END = ")]"


class TextWithCall(Value, frozen=True):
    """A generated text. With a call, it is `before`, the call with its result, and `after`.

    `reason` is set if a call that the model wrote was dropped. The text then continues without it.
    """

    before: str
    after: str = ""
    call: str | None = None
    result: str | None = None
    reason: str = ""
    prompt_end: str = ""

    @property
    def text(self) -> str:
        if self.call is None:
            return self.before + self.after
        return self.before + call_span(self.prompt_end + self.before, self.call, self.result) + self.after


def generate_with_calls(
    model: LanguageModel,
    prompts: Sequence[str],
    tools: Sequence[MiningTool],
    *,
    max_tokens: int = 32,
    top_k: int = 10,
    call_tokens: int = 48,
    batch_tokens: int = 65_536,
    dates: Sequence[str | None] = (),
    executor: CallExecutor | None = None,
) -> list[TextWithCall]:
    """Continue every prompt greedily by up to `max_tokens` tokens, with at most one call of up to `call_tokens`.

    After a call, the text continues by up to `max_tokens` further tokens. `dates` are those of the texts, for a calendar.
    `top_k=0` disables calls: their first token is never chosen. Raise ConfigError if a number is out of range.
    """
    if top_k < 0 or max_tokens < 1 or call_tokens < 1:
        raise ConfigError("top_k must not be negative, max_tokens and call_tokens must be positive")
    if executor is None and top_k:
        with CallExecutor(tools) as opened:
            return generate_with_calls(
                model,
                prompts,
                tools,
                max_tokens=max_tokens,
                top_k=top_k,
                call_tokens=call_tokens,
                batch_tokens=batch_tokens,
                dates=dates,
                executor=opened,
            )
    if not top_k or executor is None:
        texts = _continue(model, prompts, max_tokens, batch_tokens)
        return [TextWithCall(text, prompt_end=prompt[-1:]) for prompt, text in zip(prompts, texts, strict=True)]
    begun = _begin(model, prompts, max_tokens, top_k, call_tokens, batch_tokens)
    calls = zip(begun, dates or [None] * len(prompts), strict=True)
    results = iter(executor.execute([(call, date) for (_, call), date in calls if call is not None]))
    started: list[TextWithCall] = []
    for prompt, (before, call) in zip(prompts, begun, strict=True):
        outcome = next(results) if call is not None else None
        kept = outcome is not None and outcome.result is not None
        started.append(
            TextWithCall(
                before,
                call=call if kept else None,
                result=outcome.result if outcome is not None else None,
                reason=outcome.reason if outcome is not None else "",
                prompt_end=prompt[-1:],
            )
        )
    return _finish(model, prompts, started, max_tokens, batch_tokens)


def _finish(
    model: LanguageModel, prompts: Sequence[str], started: Sequence[TextWithCall], max_tokens: int, batch_tokens: int
) -> list[TextWithCall]:
    """Continue the texts whose call was executed or dropped; the others are complete."""
    from msgspec.structs import replace

    open_rows = [row for row, one in enumerate(started) if one.call is not None or one.reason]
    texts = _continue(model, [prompts[row] + started[row].text for row in open_rows], max_tokens, batch_tokens)
    finished = list(started)
    for row, text in zip(open_rows, texts, strict=True):
        finished[row] = replace(started[row], after=text)
    return finished


def _begin(
    model: LanguageModel, prompts: Sequence[str], max_tokens: int, top_k: int, call_tokens: int, batch_tokens: int
) -> list[tuple[str, str | None]]:
    """Return, for each prompt, the text before the first call, and the call, if the model wrote one."""
    found: list[tuple[str, str | None]] = [("", None)] * len(prompts)
    for rows, tokens in _batches(model, prompts, max_tokens + call_tokens, batch_tokens):
        width = max(map(len, tokens))
        processor = _CallStartRule(model, width, max_tokens, top_k)
        generated = generate_tokens(model, tokens, max_tokens=max_tokens + call_tokens, processors=[processor])
        for row, [new] in zip(rows, generated, strict=True):
            found[row] = _split(model, new, processor.starts)
    return found


def _split(model: LanguageModel, tokens: Sequence[int], starts: Sequence[int]) -> tuple[str, str | None]:
    """Split generated tokens into the text before a call and the call itself, or None without a call.

    The call has neither brackets nor result.
    """
    place = next((number for number, token in enumerate(tokens) if token in starts), None)
    if place is None:
        return model.decode(tokens), None
    before, written = model.decode(tokens[:place]), model.decode(tokens[place:])
    inside = written.lstrip().removeprefix("[")
    for end in (ARROW, "]"):
        inside = inside.partition(end)[0] if end in inside else inside
    return before, inside.strip()


def _continue(model: LanguageModel, prompts: Sequence[str], max_tokens: int, batch_tokens: int) -> list[str]:
    """Continue prompts greedily without calls."""
    texts = [""] * len(prompts)
    for rows, tokens in _batches(model, prompts, max_tokens, batch_tokens):
        processor = _CallStartRule(model, max(map(len, tokens)), max_tokens, 0)
        generated = generate_tokens(model, tokens, max_tokens=max_tokens, processors=[processor])
        for row, [new] in zip(rows, generated, strict=True):
            texts[row] = model.decode(new)
    return texts


def _batches(
    model: LanguageModel, prompts: Sequence[str], new_tokens: int, batch_tokens: int
) -> list[tuple[list[int], list[list[int]]]]:
    """Return batches of similar length: the numbers of their prompts, and the tokens of these."""
    start = start_tokens(model)
    encoded = [[*start, *model.encode(prompt)] or [model.end_token] for prompt in prompts]
    order = sorted(range(len(prompts)), key=lambda row: (-len(encoded[row]), row))
    batches, first = [], 0
    while first < len(order):
        size = max(1, batch_tokens // (len(encoded[order[first]]) + new_tokens))
        rows = order[first : first + size]
        batches.append((rows, [encoded[row] for row in rows]))
        first += len(rows)
    return batches


class _CallStartRule:
    """A logits processor: begin a call by the top-k rule, end the text after it; with `top_k=0`, never begin one."""

    def __init__(self, model: LanguageModel, width: int, max_tokens: int, top_k: int) -> None:
        self.starts = call_start_tokens(model)
        self._model = model
        self._width = width
        self._max_tokens = max_tokens
        self._top_k = top_k

    def __call__(self, tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores with forced tokens.

        A call begins when a start token is among the `_top_k` best, at most once per row; a row ends after its call, or
        after `_max_tokens` without a call. `_top_k` 0 forbids calls.
        """
        import torch

        starts = torch.tensor(self.starts, device=scores.device)
        scores = scores.clone()
        if not self._top_k:
            scores[:, starts] = -torch.inf
            return scores
        new = tokens[:, self._width :]
        has_begun = torch.isin(new, starts).any(-1)
        best = scores.topk(min(self._top_k, scores.shape[-1])).indices
        begins = torch.isin(best, starts).any(-1) & ~has_begun
        if new.shape[1] >= self._max_tokens:
            self._force(scores, ~has_begun, torch.full_like(has_begun, self._model.end_token, dtype=torch.long))
        else:
            self._force(scores, begins, starts[scores[:, starts].argmax(-1)])
        ended = torch.zeros_like(has_begun)
        for row in has_begun.nonzero()[:, 0].tolist():
            text = self._model.decode(new[row].tolist())
            written = text[text.find("[") :]
            ended[row] = _CALL_END in written or ARROW in written or "\n" in written
        self._force(scores, ended, torch.full_like(has_begun, self._model.end_token, dtype=torch.long))
        return scores

    @staticmethod
    def _force(scores: Any, rows: Any, chosen: Any) -> None:
        """Leave one token with a finite score in each of `rows`."""
        import torch

        if rows.any():
            scores[rows] = -torch.inf
            scores[rows.nonzero()[:, 0], chosen[rows]] = 0.0
