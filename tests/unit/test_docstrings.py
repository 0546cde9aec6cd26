"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import toolwire

MODULES = [
    found.name for found in pkgutil.walk_packages(toolwire.__path__, "toolwire.") if "__main__" not in found.name
]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_pass(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_package_has_docstring_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(examples) >= 5
