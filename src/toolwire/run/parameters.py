"""What a tool takes, worked out once: every call asks."""

from __future__ import annotations

from ..ir.pointer import Object
from ..ir.tools import Tool
from ..schema.infer import FunctionTool
from ..schema.validate import Problem, validator

__all__ = ["Parameters"]

_ANYTHING: Object = {"type": "object"}


class Parameters:
    """`names` is None where only the schema knows. SchemaError where it is none."""

    __slots__ = ("_validator", "names", "schema")

    def __init__(self, tool: Tool) -> None:
        self.schema = tool.input_schema or _ANYTHING
        self.names: frozenset[str] | None = None
        if isinstance(tool, FunctionTool) and tool.input_schema is not None:
            self.names = frozenset(tool.input_schema.get("properties", {}))
        self._validator = validator(self.schema)

    def accept(self, arguments: Object) -> bool:
        """Whether a call with these arguments may be made."""
        return (self.names is None or self.names.issuperset(arguments)) and self._validator.accepts(arguments)

    def unknown(self, arguments: Object) -> list[str]:
        """Arguments that the function does not take. A schema may leave the door open; a function does not."""
        names = self.names
        return [] if names is None else [name for name in arguments if name not in names]

    def problems(self, arguments: Object) -> tuple[Problem, ...]:
        return self._validator.problems(arguments)
