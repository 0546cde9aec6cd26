"""Log probabilities of a candidate: `logprobsResult`."""

from __future__ import annotations

from ...ir.pointer import JSON, Object
from ..logprobs import LogprobForm, read_tokens

__all__ = ["LOGPROBS"]


def _read_logprobs(value: JSON) -> list[Object] | None:
    """Read a `LogprobsResult`: the chosen tokens, and for each position the most probable ones."""
    if type(value) is not dict or type(value.get("chosenCandidates")) is not list:
        return None
    tops = value.get("topCandidates")
    tokens: list[JSON] = []
    for number, chosen in enumerate(value["chosenCandidates"]):
        top = tops[number] if type(tops) is list and number < len(tops) else None
        others = top.get("candidates") if type(top) is dict else None
        found = [_rename(other) for other in others] if type(others) is list else []
        token = _rename(chosen)
        tokens.append(token and {**token, "top_logprobs": [*found]})
    return read_tokens(tokens)


def _rename(candidate: JSON) -> Object | None:
    if type(candidate) is not dict:
        return None
    return {"token": candidate.get("token"), "logprob": candidate.get("logProbability")}


def _write_logprobs(tokens: list[Object]) -> JSON:
    """Write a `LogprobsResult`."""
    chosen: list[JSON] = [_candidate(token) for token in tokens]
    tops: list[JSON] = [{"candidates": [_candidate(other) for other in token["top_logprobs"]]} for token in tokens]
    return {"chosenCandidates": chosen, "topCandidates": tops}


def _candidate(token: Object) -> Object:
    return {"token": token["token"], "logProbability": token["logprob"]}


LOGPROBS = LogprobForm(
    "gemini/candidate", "stop", _read_logprobs, _write_logprobs, field="logprobsResult", omitted="token ids"
)
