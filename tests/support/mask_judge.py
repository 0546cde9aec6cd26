"""Judge the outputs of masks: by a validator of the schema without the keywords that a mask does not enforce."""

import copy
import json

import jsonschema_rs

from toolwire.ir.pointer import resolve


def finite(text):
    """Read a number; an exponent may exceed the range of binary numbers, which is valid JSON."""
    return max(min(float(text), 1e308), -1e308)


def read(text):
    return json.loads(text, parse_float=finite)


def without_residual(schema, residual):
    schema = copy.deepcopy(schema)
    for left in sorted(
        residual, key=lambda left: -left.pointer.count("/")
    ):  # inner ones first: outer ones contain them
        resolve(schema, left.pointer).pop(left.keyword, None)
    return schema


def make_judge(schema, mask):
    return jsonschema_rs.validator_for(without_residual(schema, mask.residual), validate_formats=True, offline=True)
