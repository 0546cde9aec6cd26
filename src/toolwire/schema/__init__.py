"""Schemas: infer them from code, lower them for each provider, lift arguments back, validate arguments.

toolwire.schema.lower(schema, "openai_strict")      the schema to send, with `lift` for the arguments
toolwire.schema.validator(schema).problems(value)   the problems of the arguments
toolwire.schema.repair_arguments(text, schema)      the arguments in a model's text, or their problems
toolwire.schema.decoding_schema(schema)             the schema for constrained decoding, and the keywords it leaves out
toolwire.schema.DIALECTS                            the subset of JSON Schema that each provider accepts
toolwire.schema.output_dialect("openai", strict=True)   the subset that it accepts for structured outputs
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .composition import call_union
    from .decoding.converter import DecodingSchema, decoding_schema
    from .decoding.limits import DecodingLimits, Residual
    from .dialects import DIALECTS, OUTPUT_DIALECTS, Dialect, dialect, output_dialect
    from .inference.tools import infer_tool
    from .lowering.conformance import violations
    from .lowering.lowered import Lowered, lower
    from .repair.arguments import Repair, repair_arguments
    from .validation.validator import Problem, Validator, validator
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "dialects": ("DIALECTS", "Dialect", "OUTPUT_DIALECTS", "dialect", "output_dialect"),
            "composition": ("call_union",),
            "decoding.converter": ("DecodingSchema", "decoding_schema"),
            "decoding.limits": ("DecodingLimits", "Residual"),
            "lowering.lowered": ("Lowered", "lower"),
            "validation.validator": ("Problem", "Validator", "validator"),
            "repair.arguments": ("Repair", "repair_arguments"),
            "lowering.conformance": ("violations",),
            "inference.tools": ("infer_tool",),
        },
    )

__all__ = [
    "DIALECTS",
    "DecodingLimits",
    "DecodingSchema",
    "Dialect",
    "Lowered",
    "OUTPUT_DIALECTS",
    "Problem",
    "Repair",
    "Residual",
    "Validator",
    "call_union",
    "decoding_schema",
    "dialect",
    "infer_tool",
    "lower",
    "output_dialect",
    "repair_arguments",
    "validator",
    "violations",
]
