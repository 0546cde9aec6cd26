"""Sample calls at positions of texts. A mask admits only inputs that fit the pattern of the tool.

Sampling is most of the work of mining on a CPU, so nothing is computed or stored twice:

1. The few-shot examples are computed once for all positions of a batch.
2. The text before a position is computed once for all of the position's samples.
3. The sampled calls are branches of one sequence: each new token sees the examples, its text and its own call only, by the
   attention mask. Separate rows would each hold, copy and read the examples, which was half of the time.
4. A branch whose call is complete ends. Most calls have 10 tokens, the longest allowed one has 32 or more.

A model whose layers do not cache all tokens cannot do this. It computes each row as a whole, by `generate` of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...ir.errors import ConfigError
from ..language_model import LanguageModel, generate_tokens
from .filters import start_tokens
from .mining_tool import MiningTool, calculator_tool

if TYPE_CHECKING:
    import torch

    from ...mask import MaskState, RegexMask

_MASK_TOKENIZERS: dict[int, tuple[Any, Any]] = {}  # by the id of a tokenizer, which the entry keeps alive
_MAX_BRANCHES = 512  # of a sequence: each new token is compared with the tokens of all branches
_BRANCH_TOKENS = 256  # of `batch_tokens`; a branch and its share of the examples are shorter


class _CallPrompt(NamedTuple):
    """The tokens of the few-shot examples, and of the text up to the call that begins after it."""

    shots: tuple[int, ...]
    text: tuple[int, ...]


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
    mask = call_mask(model, tool)
    prompts = _prompts(model, places, tool) if places else []
    sample = _sample_branches if model.caches_all_tokens else _sample_rows
    found: list[list[str]] = [[] for _ in places]
    for number, batch in enumerate(_batches(prompts, samples, batch_tokens)):
        # no limit of tokens: unfinished calls are left out, which costs less than to force their end
        states = [mask.start() for _ in range(len(batch) * samples)]
        sample(model, [prompts[row] for row in batch], states, tool.max_tokens, temperature, seed + number)
        for place, row in enumerate(batch):
            own = states[place * samples : (place + 1) * samples]
            found[row] = [f"{tool.name}({model.decode(state.tokens)}" for state in own if state.is_complete]
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


def _prompts(model: LanguageModel, places: Sequence[tuple[str, int]], tool: MiningTool) -> list[_CallPrompt]:
    """Return the prompts of places. Their few-shot part is the longest common beginning, whatever the tokenizer merges."""
    whole = {text: (*start_tokens(model), *model.encode(tool.prompt(text))) for text, _ in places}
    first, last = min(whole.values()), max(whole.values())  # in lexicographic order: all others begin as these two do
    size = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    prompts = []
    for text, position in places:
        before = text[:position]
        space = "" if not before or before[-1].isspace() else " "
        call = model.encode(f" {before}{space}[{tool.name}(")
        prompts.append(_CallPrompt(whole[text][:size], (*whole[text][size:], *call)))
    return prompts


def _batches(prompts: Sequence[_CallPrompt], samples: int, batch_tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of prompts that are sampled together: prompts of similar lengths."""
    order = sorted(range(len(prompts)), key=lambda row: (-len(prompts[row].text), row))
    size = max(1, min(batch_tokens // _BRANCH_TOKENS, _MAX_BRANCHES) // samples)
    for first in range(0, len(order), size):
        yield order[first : first + size]


def _sample_branches(
    model: LanguageModel,
    prompts: Sequence[_CallPrompt],
    states: Sequence[MaskState],
    max_tokens: int,
    temperature: float,
    seed: int,
) -> None:
    """Extend each state by sampled tokens until its call is complete. Each prompt has as many states as any other."""
    import torch

    from ...mask import BatchMask
    from ...mask.processor import apply_mask

    device, samples = model.device, len(states) // len(prompts)
    decoder, generator = model.network.get_decoder(), torch.Generator(device).manual_seed(seed)
    shots = torch.tensor([prompts[0].shots], device=device)
    before = shots.shape[1]
    text = torch.tensor([token for prompt in prompts for token in prompt.text], device=device)
    owners = torch.tensor([row for row, prompt in enumerate(prompts) for _ in prompt.text], device=device)
    places = torch.tensor([before + at for prompt in prompts for at in range(len(prompt.text))], device=device)
    sees_shots = torch.ones((len(text), before), dtype=torch.bool, device=device)
    rows = torch.arange(len(prompts), device=device)[:, None]
    with torch.inference_mode():
        cache = decoder(input_ids=shots, use_cache=True).past_key_values

        def compute(tokens: torch.Tensor, places: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            """Return the hidden states of tokens, each of which sees the cached and new tokens of its row in `seen`."""
            bias = torch.zeros(seen.shape, dtype=model.network.dtype, device=device)
            bias.masked_fill_(~seen, torch.finfo(bias.dtype).min)
            states: torch.Tensor = decoder(
                input_ids=tokens[None],
                position_ids=places[None],
                attention_mask=bias[None, None],
                past_key_values=cache,
            ).last_hidden_state[0]
            return states

        hidden = compute(text, places, torch.cat([sees_shots, (owners[:, None] == owners).tril()], 1))
        last = torch.tensor([len(prompt.text) for prompt in prompts], device=device).cumsum(0) - 1
        hidden, places = hidden[last].repeat_interleave(samples, 0), places[last].repeat_interleave(samples) + 1
        seen = torch.cat([sees_shots[: len(prompts)], rows == owners], 1).repeat_interleave(samples, 0)
        open_states = list(states)
        for _ in range(max_tokens):
            masks = BatchMask(open_states)
            scores = apply_mask(torch.from_numpy(masks.allowed().view("int32")), model.word_logits(hidden))
            chosen = torch.multinomial((scores / temperature).softmax(-1), 1, generator=generator)[:, 0]
            masks.accept(chosen.tolist())
            kept = [row for row, state in enumerate(open_states) if not state.is_finished]
            if not kept:
                return
            open_states = [open_states[row] for row in kept]
            seen = torch.cat([seen[kept], torch.eye(len(kept), dtype=torch.bool, device=device)], 1)
            places = places[kept]
            hidden = compute(chosen[kept], places, seen)
            places = places + 1


def _sample_rows(
    model: LanguageModel,
    prompts: Sequence[_CallPrompt],
    states: Sequence[MaskState],
    max_tokens: int,
    temperature: float,
    seed: int,
) -> None:
    """Extend the states as `_sample_branches` does, with a row of its own for each."""
    from ...mask import MaskProcessor

    rows = [[*prompt.shots, *prompt.text] for prompt in prompts]
    processor = MaskProcessor(states, max(map(len, rows)))
    samples = len(states) // len(prompts)
    generated = generate_tokens(
        model,
        rows,
        max_tokens=max_tokens,
        temperature=temperature,
        samples=samples,
        seed=seed,
        processors=[processor],
    )
    for state, tokens in zip(states, (tokens for row in generated for tokens in row), strict=True):
        for token in tokens[len(state.tokens) :]:  # the processor did not see the last token
            state.accept(token)
