"""Tool declarations and tool choice."""

from __future__ import annotations

from typing import Literal, TypeAlias

from .parts import Extra
from .pointer import Object
from .value import Value

__all__ = ["ChoiceMode", "Effect", "Grammar", "Tool", "ToolChoice", "ToolKind"]

ToolKind: TypeAlias = Literal["function", "freeform", "builtin", "search"]
Effect: TypeAlias = Literal["pure", "read", "idempotent", "write"]
ChoiceMode: TypeAlias = Literal["auto", "required", "none", "tool", "allowed", "validated"]


class Grammar(Value, frozen=True):
    """The grammar that a freeform tool's input must match; `syntax` is "lark" or "regex"."""

    syntax: str
    definition: str


class Tool(Value, frozen=True):
    """One tool, declared once.

    `strict` and `deferred` have three values; unset differs from false. `input_schema` None means that none was
    declared, which is equivalent to a tool without parameters. A `builtin` is the provider's own tool; its declaration
    is in `extra` under the wire that supports it. A `search` is a function of the caller that finds deferred tools (see
    `ir.tool_search`).
    """

    name: str
    description: str | None = None
    input_schema: Object | None = None
    output_schema: Object | None = None
    strict: bool | None = None
    kind: ToolKind = "function"
    effect: Effect = "write"
    examples: tuple[Object, ...] = ()
    namespace: str | None = None
    grammar: Grammar | None = None
    deferred: bool | None = None
    cache: str | None = None
    extra: Extra = {}


class ToolChoice(Value, frozen=True):
    """The tools that the model may or must call.

    auto        text or calls            required    at least one call          none       no calls
    tool        exactly `names[0]`       allowed     only `names`, and at least one of them if `required`
    validated   text, or calls that fit their schemas
    """

    mode: ChoiceMode
    names: tuple[str, ...] = ()
    required: bool = False
    extra: Extra = {}

    @property
    def forces_call(self) -> bool:
        return self.mode in ("required", "tool") or (self.mode == "allowed" and self.required)
