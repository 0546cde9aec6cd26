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
    from .call_shapes import call_union
    from .conform import violations
    from .decoding import DecodingSchema, decoding_schema
    from .decoding_limits import DecodingLimits
    from .decoding_state import Residual
    from .dialects import DIALECTS, OUTPUT_DIALECTS, Dialect, dialect, output_dialect
    from .infer import infer_tool
    from .lowering import Lowered, lower
    from .repair import Repair, repair_arguments
    from .validate import Problem, Validator, validator
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "dialects": ("DIALECTS", "OUTPUT_DIALECTS", "Dialect", "dialect", "output_dialect"),
            "call_shapes": ("call_union",),
            "decoding": ("DecodingSchema", "decoding_schema"),
            "decoding_limits": ("DecodingLimits",),
            "decoding_state": ("Residual",),
            "lowering": ("Lowered", "lower"),
            "validate": ("Problem", "Validator", "validator"),
            "repair": ("Repair", "repair_arguments"),
            "conform": ("violations",),
            "infer": ("infer_tool",),
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
