"""A class name, public or private, has one meaning in the whole package."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import toolwire

PACKAGE = Path(toolwire.__file__).parent
CAMEL_CASE = re.compile(r"_?(?:[A-Z]+[a-z0-9]+)+[A-Z]*")

# A name with several meanings, and the reason.
ALLOWED: dict[str, str] = {}


def defined_names(tree):
    """Yield the names of the classes and type aliases that a module defines at its top level."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if CAMEL_CASE.fullmatch(name):
                    yield name


@cache
def repeated_names():
    """Return the names that more than one module defines. A leading underscore makes no difference."""
    modules = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for name in defined_names(ast.parse(file.read_text(encoding="utf-8"))):
            modules[name.lstrip("_")].append(file.relative_to(PACKAGE).as_posix())
    return {name: found for name, found in modules.items() if len(found) > 1}


def test_class_name_has_one_meaning():
    assert {name: found for name, found in repeated_names().items() if name not in ALLOWED} == {}


def test_every_allowed_name_is_still_repeated():
    assert ALLOWED.keys() <= repeated_names().keys()


def test_classes_and_aliases_are_found():
    source = "class Tool: ...\n_Step: TypeAlias = str\nAnswer = Text | Media\nLIMIT = 3\nx = 4\nJSON = Any\n"
    assert list(defined_names(ast.parse(source))) == ["Tool", "_Step", "Answer"]
