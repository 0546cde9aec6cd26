"""A class name, public or private, has one meaning in the whole package."""

import ast
from collections import defaultdict
from functools import cache

from package_source import defined_classes, read_package

# A name with several meanings, and the reason.
ALLOWED: dict[str, str] = {}


@cache
def repeated_names():
    """Return the names that more than one module defines. A leading underscore makes no difference."""
    modules = defaultdict(list)
    for module, facts in read_package().items():
        for name in facts.classes:
            modules[name.lstrip("_")].append(module)
    return {name: found for name, found in modules.items() if len(found) > 1}


def test_class_name_has_one_meaning():
    assert {name: found for name, found in repeated_names().items() if name not in ALLOWED} == {}


def test_every_allowed_name_is_still_repeated():
    assert ALLOWED.keys() <= repeated_names().keys()


def test_classes_and_aliases_are_found():
    source = "class Tool: ...\n_Step: TypeAlias = str\nAnswer = Text | Media\nLIMIT = 3\nx = 4\nJSON = Any\n"
    assert list(defined_classes(ast.parse(source))) == ["Tool", "_Step", "Answer"]
