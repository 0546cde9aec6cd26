"""The regular expressions of the package itself are linear enough for text from strangers."""

import ast
import importlib
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import toolwire
from toolwire.ir import MissingExtra

UNBOUNDED = 100
FUNCTIONS = frozenset({"compile", "match", "search", "fullmatch", "sub", "split", "findall", "finditer"})


def own_patterns():
    """Every pattern that the package compiles when it is imported, and every literal one in a call of `re`."""
    found = {}
    root = Path(toolwire.__file__).parent
    for module in pkgutil.walk_packages(toolwire.__path__, "toolwire."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except MissingExtra:  # a plugin of a program that is not installed
                pass
            except ModuleNotFoundError as error:  # of an extra; its literal patterns are read below
                assert error.name in {"torch", "transformers", "xgrammar"}
    for name, module in list(sys.modules.items()):
        if name.startswith("toolwire"):
            for attribute, value in vars(module).items():
                pattern = getattr(value, "__self__", value)
                if isinstance(pattern, re.Pattern):
                    found[f"{name}.{attribute}"] = (pattern.pattern, pattern.flags)
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(ast.Attribute(ast.Name("re"), name), [ast.Constant(pattern), *_]) if name in FUNCTIONS:
                    found[f"{path.relative_to(root)}:{node.lineno}"] = (pattern, 0)
    return found


def nests_backtracking(parsed, inside=False):
    """Whether a repetition that may backtrack is inside another one: without that, no pattern is exponential."""
    for operation, argument in parsed:
        match str(operation), argument:
            case "MAX_REPEAT" | "MIN_REPEAT", (_, high, inner):
                if (high >= UNBOUNDED and inside) or nests_backtracking(inner, inside or high >= UNBOUNDED):
                    return True
            case "POSSESSIVE_REPEAT", (_, _, inner):
                if nests_backtracking(inner):
                    return True
            case "ATOMIC_GROUP", inner:
                if nests_backtracking(inner):
                    return True
            case "SUBPATTERN", (*_, inner):
                if nests_backtracking(inner, inside):
                    return True
            case "BRANCH", (_, branches):
                if any(nests_backtracking(branch, inside) for branch in branches):
                    return True
            case "ASSERT" | "ASSERT_NOT", (_, inner):
                if nests_backtracking(inner):
                    return True
    return False


def parse(pattern, flags):
    if isinstance(pattern, bytes):
        return re._parser.parse(pattern.decode("latin-1"), flags & ~re.UNICODE)
    return re._parser.parse(pattern, flags)


@pytest.mark.finding("Z2")
def test_no_pattern_of_the_package_nests_repetitions_that_backtrack():
    patterns = own_patterns()
    assert len(patterns) > 100
    assert not [name for name, (pattern, flags) in patterns.items() if nests_backtracking(parse(pattern, flags))]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(a+)+", True),
        ("(?:a*b)*", True),
        ("(?:a*+b)*+", False),
        ("(?>(?:a+b)+)", True),
        ("a+b+", False),
        ("(a{2,3})*", False),
    ],
)
def test_nested_repetitions_are_recognised(pattern, expected):
    assert nests_backtracking(parse(pattern, 0)) is expected
