"""Choose a function: the probability of each offered name, and the ranks that the caller knows.

A model of 135 million parameters prefers some names and some places whatever the request is. So its choice is explicit:

1. `score_names` reads the probability of each name from a short answer, in which the engine writes one of them.
2. The same for an empty request: the preference for a name. It shares the prompt up to the request, so it costs little.
3. `choose` adds the order of the functions, if the caller has ranked them, and decides.

The arguments are written afterwards, under a grammar of the chosen function alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import exp, log, log1p

from ..ir.parts import Extra, Text, ToolCall
from ..ir.pointer import Object
from ..ir.request import Request
from ..ir.text import dumps
from ..ir.value import Value
from ..run.tools.refusal import NOTHING_FITS, RANKED

OPENING = '{"name":"'
"""The beginning of every call."""
# Chosen by `bench/tool_calls/weights.py` on 330 requests of the development sets (`evaluation/dev.jsonl`, the platform, `toolwire do`): 77 % are
# right, and 69 % with the most probable name (docs/experiments/tool-calls.md).
_WEIGHT = 0.5  # of the score of the model; a prior has the weight 1
_USUAL = 0.5  # of the usual score
_RANK = 2.0  # of the logarithm of a rank
_FOUND = 1.5  # of the logarithm of a rank among functions without a ranking of the caller
_REFUSAL = -1.0  # for `nothing_fits`
_COUNT = 1.0  # of the logarithm of the number of entries: their share is the prior probability
_REPEATED = 2.0  # for each earlier call of the turn; not measured
_FLOOR = -16.0  # logarithm of the probability of a name that is not among the alternatives of a token
WriteName = Callable[[Sequence[str]], Awaitable[list[Object]]]
"""Let the engine write the beginning of a call of one of the names; return its tokens with their alternatives."""


async def score_names(names: Iterable[str], write: WriteName) -> dict[str, float]:
    """Return the logarithm of the probability of each name.

    The tokens of the written name show the alternatives where names differ. Names that differ from it in the same token
    need an answer of their own.
    """
    distinct = list(dict.fromkeys(names))
    scores = dict.fromkeys(distinct, 0.0)  # in the order of the names: of equal functions the first is chosen
    pending = [distinct]
    while pending:
        group = asked = pending.pop()
        written = {name: f"{OPENING}{dumps(name)[1:]}".encode() for name in group}
        text, total = b"", 0.0
        for token in await write(group):
            found = _group_by_token(group, written, text, token)
            chosen = _token_bytes(token)
            for following, (probability, names_of_token) in found.items():
                if following == chosen:
                    continue
                scores.update(dict.fromkeys(names_of_token, total + probability))
                if following and 1 < len(names_of_token) < len(asked):  # fewer each time, so it ends
                    pending.append(names_of_token)
            probability, group = found.get(chosen, (_FLOOR, []))
            text, total = text + chosen, total + probability
            if len(group) <= 1:
                break
        scores.update(dict.fromkeys(group, total))
    return scores


def _group_by_token(
    group: Sequence[str], written: Mapping[str, bytes], text: bytes, token: Object
) -> dict[bytes, tuple[float, list[str]]]:
    """Return the names by their next token, with the logarithm of its probability.

    It is the written token if it fits, else the most probable alternative; names without one belong to an empty token.
    So the written name is never among the alternatives, and each group is smaller than the one before.
    """
    found: dict[bytes, tuple[float, list[str]]] = {}
    alternatives = sorted(token["top_logprobs"], key=lambda one: -one["logprob"])
    spelled = [(_token_bytes(one), one["logprob"]) for one in (token, *alternatives)]
    for name in group:
        rest = written[name][len(text) :]
        fitting = (
            (part, score) for part, score in spelled if part and (rest.startswith(part) or part.startswith(rest))
        )
        part, score = next(fitting, (b"", _FLOOR))
        found.setdefault(part, (max(score, _FLOOR), []))[1].append(name)
    return found


def _token_bytes(token: Object) -> bytes:
    """Return the bytes of a token, which may be a part of a character."""
    return bytes(token["bytes"])


def name_grammar(names: Sequence[str]) -> str:
    """Build a grammar of the beginning of a call, up to the end of the name."""
    # JSON allows the control character U+007F in a text, the lexer of the grammar does not.
    written = " | ".join(dumps(dumps(name)[1:]).replace("\x7f", "\\u007f") for name in names)
    return f"%llguidance {{}}\nstart: {dumps(OPENING)} ({written})"


class NameChoice(Value, frozen=True):
    """The chosen function.

    `margin`: the logarithm of the ratio of its probability and of all others together, without priors and usual scores;
    None without another function.
    """

    name: str
    margin: float | None = None


def choose(scores: Mapping[str, float], usual: Mapping[str, float], priors: Mapping[str, float]) -> NameChoice:
    """Choose a function by its score, less a part of its usual one, and by its prior.

    Of equal functions the first is chosen.
    """
    usual = _normalise(usual)
    known = _normalise(scores)
    total = {
        name: _WEIGHT * (score - _USUAL * usual[name]) + priors.get(name, _REFUSAL if name == NOTHING_FITS else 0.0)
        for name, score in known.items()
    }
    name = max(total, key=lambda one: total[one])
    # Priors and usual scores choose better, but they are no certainty: a margin decides whether a command runs.
    others = sum(exp(score) for other, score in known.items() if other != name)
    return NameChoice(name, known[name] - log(max(others, exp(_FLOOR))))


def rank_priors(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the prior of each function of a ranking, the best first, with its number of entries."""
    return {name: _COUNT * log(count) - _RANK * log1p(rank) for rank, (name, count) in enumerate(counts.items())}


def found_priors(ranks: Mapping[str, int]) -> dict[str, float]:
    """Return the priors of functions that the local model has ranked itself."""
    return {name: -_FOUND * log1p(rank) for name, rank in ranks.items() if rank}


def add_calls(priors: Mapping[str, float], calls: Mapping[str, int]) -> dict[str, float]:
    """Return priors that are lower for functions that were called before in this turn: a small model repeats its calls."""
    return {**priors, **{name: priors.get(name, 0.0) - _REPEATED * count for name, count in calls.items()}}


def read_ranks(request: Request) -> dict[str, float]:
    """Return the priors of ranked tools: the field `ranked_tools` of a request has a count for each of them."""
    counts = request.extra.get("openai_chat", {}).get(RANKED)
    if not isinstance(counts, list) or not all(type(count) is int and count > 0 for count in counts):
        return {}
    names = [tool.name for tool in request.tools if tool.name != NOTHING_FITS]
    return rank_priors(dict(zip(names, counts, strict=False)))


def calls_of_turn(request: Request) -> Counter[str]:
    """Return how often each function was called since the last text of the user."""
    calls: Counter[str] = Counter()
    for message in reversed(request.messages):
        if message.role == "user" and any(isinstance(part, Text) for part in message.parts):
            break
        calls.update(part.name for part in message.parts if isinstance(part, ToolCall))
    return calls


def without_ranks(request: Request) -> Extra:
    """Return the extra fields for the engine."""
    own = request.extra.get("openai_chat", {})
    return {**request.extra, "openai_chat": {key: value for key, value in own.items() if key != RANKED}}


def _normalise(scores: Mapping[str, float]) -> dict[str, float]:
    """Return scores whose exponentials have the sum 1."""
    most = max(scores.values())
    total = most + log(sum(exp(score - most) for score in scores.values()))
    return {name: score - total for name, score in scores.items()}
