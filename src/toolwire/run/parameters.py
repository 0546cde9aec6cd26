"""The parameters of a tool, computed once because every call needs them."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.pointer import Object
from ..ir.tools import Tool
from ..schema.validation.validator import Problem, validator
from .function_tool import FunctionTool

__all__ = ["Parameters"]

_ANY_OBJECT: Object = {"type": "object"}


class Parameters:
    """A tool's schema and parameter names. `names` is None if only the schema restricts them.

    Raises SchemaError for an invalid schema.
    """

    __slots__ = ("_validator", "names", "schema")

    def __init__(self, tool: Tool) -> None:
        self.schema = tool.input_schema or _ANY_OBJECT
        self.names: frozenset[str] | None = None
        if isinstance(tool, FunctionTool) and tool.input_schema is not None:
            self.names = frozenset(tool.input_schema.get("properties", {}))
        self._validator = validator(self.schema)

    def accept(self, arguments: Object) -> bool:
        """Return True if the arguments are valid for the tool."""
        return (self.names is None or self.names.issuperset(arguments)) and self._validator.accepts(arguments)

    @property
    def accept_scalars(self) -> Callable[[Object], bool]:
        """`accept` for arguments that are all scalars and known by name."""
        return self._validator.accepts_scalars

    def unknown_names(self, arguments: Object) -> list[str]:
        """List the arguments that the function does not take, even if the schema allows additional ones."""
        names = self.names
        return [] if names is None else [name for name in arguments if name not in names]

    def problems(self, arguments: Object) -> tuple[Problem, ...]:
        return self._validator.problems(arguments)
