"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil
from contextlib import suppress
from pathlib import Path

import pytest

import toolwire
from tables import every_case
from toolwire.ir import MissingExtra

MODULES = [
    found.name for found in pkgutil.walk_packages(toolwire.__path__, "toolwire.") if "__main__" not in found.name
]


def import_installed(name):
    """Import a module; MissingExtra if it belongs to an extra that is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in {"torch", "transformers", "xgrammar"}:
            raise
        raise MissingExtra(f"{name} needs {error.name}") from None


def has_examples(module):
    """Return whether the source has an example: doctest looks at every object, and few modules have one."""
    return ">>>" in Path(module.__file__).read_text(encoding="utf-8")


@pytest.mark.one_in(7)
@every_case("name", MODULES)
def test_docstring_examples_pass(name):
    try:
        module = import_installed(name)
    except MissingExtra as error:
        pytest.skip(str(error))
    if has_examples(module):
        result = doctest.testmod(module)
        assert result.failed == 0


def test_package_has_docstring_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = []
    for name in MODULES:
        with suppress(MissingExtra):  # a plugin of a program that is not installed
            module = import_installed(name)
            examples += [test for test in finder.find(module) if test.examples] if has_examples(module) else []
    assert len(examples) >= 5
