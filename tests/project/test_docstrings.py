"""The examples in docstrings run."""

import doctest
import importlib
from pathlib import Path

import toolwire
from tables import every_case

SOURCE = Path(toolwire.__file__).parents[1]


def modules_with_examples():
    """Return the names of the modules whose source has an example. They are few, and to import all takes seconds."""
    paths = sorted((SOURCE / "toolwire").rglob("*.py"))
    found = [path.relative_to(SOURCE) for path in paths if ">>>" in path.read_text(encoding="utf-8")]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in found]


@every_case("name", modules_with_examples())
def test_docstring_examples_pass(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_package_has_docstring_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = map(importlib.import_module, modules_with_examples())
    assert sum(bool(test.examples) for module in modules for test in finder.find(module)) >= 5
