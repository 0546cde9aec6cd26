"""Schemas: infer them from code, lower them for each provider, lift arguments back, validate arguments.

toolwire.schema.lower(schema, "openai_strict")      the schema to send, with `lift` for the arguments
toolwire.schema.validator(schema).problems(value)   the problems of the arguments
toolwire.schema.repair_arguments(text, schema)      the arguments in a model's text, or their problems
toolwire.schema.DIALECTS                            the subset of JSON Schema that each provider accepts
"""

from __future__ import annotations

TYPE_CHECKING = False

_HOMES = {
    "DIALECTS": "dialects",
    "Dialect": "dialects",
    "Lowered": "lowering",
    "Problem": "validate",
    "Repair": "repair",
    "Validator": "validate",
    "dialect": "dialects",
    "lower": "lowering",
    "repair_arguments": "repair",
    "tools_from_openapi": "openapi",
    "validator": "validate",
    "violations": "conform",
}

__all__ = [
    "DIALECTS",
    "Dialect",
    "Lowered",
    "Problem",
    "Repair",
    "Validator",
    "dialect",
    "lower",
    "repair_arguments",
    "tools_from_openapi",
    "validator",
    "violations",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


if TYPE_CHECKING:
    from .conform import violations as violations
    from .dialects import DIALECTS as DIALECTS
    from .dialects import Dialect as Dialect
    from .dialects import dialect as dialect
    from .lowering import Lowered as Lowered
    from .lowering import lower as lower
    from .openapi import tools_from_openapi as tools_from_openapi
    from .repair import Repair as Repair
    from .repair import repair_arguments as repair_arguments
    from .validate import Problem as Problem
    from .validate import Validator as Validator
    from .validate import validator as validator
