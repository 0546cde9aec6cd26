"""The examples in docstrings run."""

import doctest
import importlib
from pathlib import Path

import pytest

import toolwire
from tables import every_case

SOURCE = Path(toolwire.__file__).parents[1]


def modules_with_examples():
    """Return the names of the modules whose source has an example. They are few, and to import all takes seconds."""
    paths = sorted((SOURCE / "toolwire").rglob("*.py"))
    found = [path.relative_to(SOURCE) for path in paths if ">>>" in path.read_text(encoding="utf-8")]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in found]


def import_installed(name):
    """Import a module. Skip the case if its extra is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in {"torch", "transformers", "xgrammar"}:
            raise
        pytest.skip(f"{name} needs {error.name}")


@every_case("name", modules_with_examples())
def test_docstring_examples_pass(name):
    result = doctest.testmod(import_installed(name))
    assert result.failed == 0


def test_package_has_docstring_examples():
    assert len(modules_with_examples()) >= 20
