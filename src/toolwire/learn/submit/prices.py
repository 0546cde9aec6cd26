"""Prices of fine-tuning as data, each with its source and the date when it was read, and the cost of a job.

Only published prices are here. Mistral and Together report the price of a job themselves before it starts, so they need
no row; Vertex AI publishes prices that change with the model and the location, so pass `price` there.
"""

from __future__ import annotations

from ...ir.value import Value

_OPENAI = "https://developers.openai.com/api/docs/pricing"
_PAGES = {"openai": _OPENAI, "vertex": "https://cloud.google.com/vertex-ai/generative-ai/pricing"}
_MILLION = 1_000_000  # tokens; prices are for so many


class TrainingPrice(Value, frozen=True):
    """USD for a million trained tokens, the page that states it, and the month when it was read."""

    service: str
    model: str  # its name without a date, such as `-2025-04-14`
    per_million: float
    source: str
    read: str


class CostEstimate(Value, frozen=True):
    """The cost of a job in USD, or None if no price is known. `source` explains where the price is from."""

    tokens: int  # of the file, times the epochs
    usd: float | None
    source: str


PRICES = (
    TrainingPrice("openai", "gpt-4.1", 25.0, _OPENAI, "2025-10"),
    TrainingPrice("openai", "gpt-4.1-mini", 5.0, _OPENAI, "2025-10"),
    TrainingPrice("openai", "gpt-4o", 25.0, _OPENAI, "2025-07"),
    TrainingPrice("openai", "gpt-4o-mini", 3.0, _OPENAI, "2025-07"),
)


def find_price(service: str, model: str) -> TrainingPrice | None:
    """Return the price of a model, which may have a date at the end, or None."""
    matching = [row for row in PRICES if row.service == service and is_snapshot(model, row.model)]
    return matching[0] if matching else None


def is_snapshot(model: str, name: str) -> bool:
    """Return whether a model is `name`, or a dated snapshot of it.

    >>> is_snapshot("gpt-4.1-2025-04-14", "gpt-4.1"), is_snapshot("gpt-4.1-mini", "gpt-4.1")
    (True, False)
    """
    rest = model.removeprefix(name)
    return model.startswith(name) and (not rest or (rest[0] == "-" and rest[1:].replace("-", "").isdigit()))


def estimate_cost(service: str, model: str, tokens: int, epochs: int, price: float | None = None) -> CostEstimate:
    """Estimate the cost of a job: the tokens of the file, times the epochs, times the price.

    `price` replaces the table: USD for a million tokens.
    """
    trained = tokens * epochs
    if price is not None:
        return CostEstimate(trained, trained * price / _MILLION, f"{price:g} USD per million tokens, as given")
    row = find_price(service, model)
    if row is None:
        page = _PAGES.get(service)
        return CostEstimate(trained, None, f"no price of {model} is known" + (f"; {page} lists prices" if page else ""))
    source = f"{row.per_million:g} USD per million tokens, {row.source}, read {row.read}"
    return CostEstimate(trained, trained * row.per_million / _MILLION, source)
