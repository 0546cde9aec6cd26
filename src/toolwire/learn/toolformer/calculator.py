"""Evaluate arithmetic expressions without `eval`: four operations on bounded numbers."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from ...run.calls.context import ToolError

__all__ = ["evaluate", "format_number"]

_MAX_LENGTH = 200
_MAX_VALUE = 10**15
_ALLOWED = re.compile(r"[0-9+\-*/(). ]+").fullmatch
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_LEADING_ZEROS = re.compile(r"(?<![\d.])0+(?=\d)")
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(expression: str) -> float:
    """Return the value of an expression of numbers, + - * / and parentheses. Raise ToolError for anything else.

    >>> evaluate("(1,200 - 200) / 8")
    125.0
    """
    if len(expression) > _MAX_LENGTH:
        raise ToolError(f"the expression is longer than {_MAX_LENGTH} characters")
    text = _LEADING_ZEROS.sub("", _THOUSANDS.sub("", expression)).strip()
    if not _ALLOWED(text):
        raise ToolError("the expression may contain numbers, + - * / and parentheses only")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, MemoryError, RecursionError):
        raise ToolError("the expression is not valid") from None
    return _value(tree.body)


def format_number(value: float) -> str:
    """Return a number with at most two decimals, as the calculator of the paper does.

    >>> format_number(400 / 1400)
    '0.29'
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)  # type: ignore[arg-type]  # checked above
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    operation = _OPERATORS.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    if operation is None or not isinstance(node, ast.BinOp):
        raise ToolError("the expression may contain + - * / only")
    try:
        return _bounded(operation(_value(node.left), _value(node.right)))
    except ZeroDivisionError:
        raise ToolError("division by zero") from None


def _bounded(value: float) -> float:
    if not abs(value) <= _MAX_VALUE:
        raise ToolError(f"a number of the expression exceeds {_MAX_VALUE}")
    return value
