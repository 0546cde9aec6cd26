"""Losses: the parts of a value that a translation could not preserve.

A translation returns a value and a list of losses. A loss is not an exception: the request is still sent, and the
losses show the author which parts are missing on the other side. In strict mode every loss above `info` becomes a
`LossError` before anything is sent.

    dropped     removed
    weakened    replaced by something less precise
    rewritten   expressed differently with the same meaning, or substituted for something that was missing
    moved       present, but in another place

    info        undone on the way back, or without effect on the meaning
    warning     the answer may differ
    error       the model will not see something that it was meant to see
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from .errors import ConfigError, EncodeError
from .notebook import repr_html
from .value import Value

Action: TypeAlias = Literal["dropped", "weakened", "rewritten", "moved"]
Severity: TypeAlias = Literal["info", "warning", "error"]


class Loss(Value, frozen=True):
    """One thing that the other side does not receive as intended.

    `path` points into the source document. `target` points into the target document, at the place where something of
    the statement remains; it is None if nothing does, and for streams.

    >>> print(Loss("/params/top_k", "top_k", "dropped", "warning", "openai_chat has no such parameter"))
    warning  /params/top_k  top_k dropped: openai_chat has no such parameter
    """

    path: str
    concept: str
    action: Action
    severity: Severity
    detail: str
    target: str | None = None
    _columns = "severity path concept action detail target"
    _repr_html_ = repr_html

    def __str__(self) -> str:
        place = self.path or "/" if self.target is None else f"{self.path or '/'} → {self.target or '/'}"
        return f"{self.severity}  {place}  {self.concept} {self.action}: {self.detail}"


class Losses:
    """Collect losses while a value is being written, without duplicates."""

    __slots__ = ("_seen",)

    def __init__(self, losses: Iterable[Loss] = ()) -> None:
        self._seen: dict[Loss, None] = dict.fromkeys(losses) if losses else {}

    def add(self, path: str, concept: str, action: Action, detail: str, severity: Severity = "warning") -> None:
        self._seen[Loss(path, concept, action, severity, detail)] = None

    def extend(self, losses: Iterable[Loss]) -> None:
        self._seen.update(dict.fromkeys(losses))

    def copy(self) -> Losses:
        """Return the losses so far, to which others are added."""
        copied = Losses()
        copied._seen = self._seen.copy()
        return copied

    def __iter__(self) -> Iterator[Loss]:
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)


class RelocatedLosses(Losses):
    """Losses of a value that was made from another one: they are added to `origin` with paths of that one."""

    __slots__ = ("_locate", "_origin")

    def __init__(self, origin: Losses, locate: Callable[[str], str]) -> None:
        super().__init__()
        self._origin = origin
        self._locate = locate

    def add(self, path: str, concept: str, action: Action, detail: str, severity: Severity = "warning") -> None:
        self._origin.add(self._locate(path), concept, action, detail, severity)

    def extend(self, losses: Iterable[Loss]) -> None:
        for loss in losses:
            self.add(loss.path, loss.concept, loss.action, loss.detail, loss.severity)


def check_losses(losses: object) -> None:
    """Raise ConfigError for a caller's `losses` that are neither None nor `Losses`, such as a list."""
    if losses is not None and not isinstance(losses, Losses):
        raise ConfigError(
            f"losses cannot be collected in a value of type {type(losses).__name__}",
            hint="pass losses=toolwire.ir.Losses(), and iterate over it afterwards",
        )


class LossError(EncodeError):
    """Strict mode: something could not be translated. `losses` lists every loss."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        """Describe the first loss and the number of the others."""
        first = losses[0]
        more = f" and {len(losses) - 1} more" if len(losses) > 1 else ""
        super().__init__(
            f"{first.concept} would be {first.action}: {first.detail}{more}",
            pointer=first.path,
            hint="drop strict mode to accept the listed losses",
        )
        self.losses = tuple(losses)


def require_lossless(losses: Iterable[Loss]) -> None:
    """Raise LossError if any loss is more severe than `info` (strict mode)."""
    serious = [loss for loss in losses if loss.severity != "info"]
    if serious:
        raise LossError(serious)
