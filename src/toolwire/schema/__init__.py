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
    from .composition import call_union as call_union
    from .decoding.converter import DecodingSchema as DecodingSchema
    from .decoding.converter import decoding_schema as decoding_schema
    from .decoding.limits import DecodingLimits as DecodingLimits
    from .decoding.limits import Residual as Residual
    from .dialects import DIALECTS as DIALECTS
    from .dialects import OUTPUT_DIALECTS as OUTPUT_DIALECTS
    from .dialects import Dialect as Dialect
    from .dialects import dialect as dialect
    from .dialects import output_dialect as output_dialect
    from .inference.tools import infer_tool as infer_tool
    from .lowering.conformance import violations as violations
    from .lowering.lowered import Lowered as Lowered
    from .lowering.lowered import lower as lower
    from .repair.arguments import Repair as Repair
    from .repair.arguments import repair_arguments as repair_arguments
    from .validation.validator import Problem as Problem
    from .validation.validator import Validator as Validator
    from .validation.validator import validator as validator
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "composition": "call_union",
            "decoding.converter": "DecodingSchema decoding_schema",
            "decoding.limits": "DecodingLimits Residual",
            "dialects": "DIALECTS OUTPUT_DIALECTS Dialect dialect output_dialect",
            "inference.tools": "infer_tool",
            "lowering.conformance": "violations",
            "lowering.lowered": "Lowered lower",
            "repair.arguments": "Repair repair_arguments",
            "validation.validator": "Problem Validator validator",
        },
    )
