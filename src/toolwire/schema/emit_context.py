"""The interface between the emitter and the modules that emit one kind of node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..ir.losses import Losses
from ..ir.pointer import Object
from .codec import Codec
from .dialects import Dialect
from .nodes import Node
from .parameter_budget import ParameterBudget
from .step_budget import StepBudget

__all__ = ["CountBound", "EmitContext", "Emitted"]


class Emitted(NamedTuple):
    """A schema of the dialect, and the codec of its values; None: they are unchanged."""

    schema: Object
    codec: Codec | None = None


class CountBound(NamedTuple):
    """A bound on a number of items: the keyword to emit, the keyword of the source, and the value."""

    keyword: str
    source: str
    value: int | None


class EmitContext(Protocol):
    """The emitter, as passed to the function that emits a node. `emit` handles the nodes inside it."""

    dialect: Dialect
    losses: Losses
    defs: dict[str, Object]
    steps: StepBudget
    budget: ParameterBudget

    def find_target(self, pointer: str) -> Node | None: ...
    def emit(self, node: Node, depth: int) -> Emitted: ...
    def emit_null(self, node: Node) -> Emitted: ...
    def emit_any(self, node: Node) -> Emitted: ...
    def add_description(
        self, schema: Object, node: Node, remarks: list[str], codec: Codec | None = ..., *, repeats: bool = ...
    ) -> Object: ...
    def describe(self, node: Node, codec: Codec | None) -> str: ...
    def can_repeat(self, node: Node, keyword: str) -> bool: ...
    def add_counts(self, out: Object, remarks: list[str], node: Node, counts: Sequence[CountBound]) -> None: ...
    def accepts_null(self, node: Node) -> bool: ...
    def make_nullable(self, schema: Object) -> Object: ...
    def close_object(self, schema: Object) -> Object: ...
    def report_unenforced(self, node: Node, keyword: str, detail: str = ...) -> None: ...
    def report_pattern(self, node: Node, pattern: str, is_sent: bool) -> None: ...
    def report_omitted(self, node: Node, keyword: str, detail: str) -> None: ...
    def report_rewrite(self, node: Node, concept: str, detail: str, keyword: str | None = ...) -> None: ...
