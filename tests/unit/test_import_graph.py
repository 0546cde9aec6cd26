"""The import graph of the package: no cycle of files, and no small file without a reason to exist."""

import ast
import re
from pathlib import Path

import pytest

from toolwire import __file__ as package_file

SOURCE = Path(package_file).parents[1]
SMALL = 40  # lines
REASON = re.compile(r"\bSeparate because \w")  # in the docstring of a small module with a single importer


def find_modules():
    """Return the files of the package by module name."""
    modules = {}
    for path in sorted((SOURCE / "toolwire").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imported_names(module, path, tree):
    """Yield the absolute names that a module imports, also in functions and under TYPE_CHECKING."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def import_graph(modules):
    """Return the modules that each module imports. A name that is not a module counts as an import of its parent."""
    graph = {}
    for module, path in modules.items():
        names = imported_names(module, path, ast.parse(path.read_text("utf-8")))
        found = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module] = (found & modules.keys()) - {module}
    return graph


def find_cyclic(graph):
    """Return the modules that are in a cycle, or between two cycles.

    Modules that import no remaining module are removed until none is left to remove, then the same for modules that no
    remaining module imports.
    """
    remaining = dict(graph)
    while leaves := [one for one, targets in remaining.items() if not targets & remaining.keys()]:
        for one in leaves:
            del remaining[one]
    while roots := remaining.keys() - set().union(*remaining.values()):
        for one in roots:
            del remaining[one]
    return sorted(remaining)


MODULES = find_modules()


@pytest.fixture(scope="module")
def graph():
    return import_graph(MODULES)


def test_graph_contains_the_whole_package(graph):
    assert len(graph) > 400
    assert "toolwire.ir.errors" in graph["toolwire.ir.losses"]


def test_cycle_is_found():
    assert find_cyclic({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b", "c"]


def test_no_cycle_of_files(graph):
    assert find_cyclic(graph) == []


def test_small_file_with_a_single_importer_states_its_reason(graph):
    importers = {module: [one for one, targets in graph.items() if module in targets] for module in graph}
    unexplained = []
    for module, path in MODULES.items():
        text = path.read_text("utf-8")
        if path.name == "__init__.py" or len(importers[module]) != 1 or len(text.splitlines()) >= SMALL:
            continue
        if not REASON.search(ast.get_docstring(ast.parse(text)) or ""):
            unexplained.append(f"{module} (merge it into {importers[module][0]}, or add `Separate because …`)")
    assert unexplained == []


def test_path_of_a_gateway_request_is_a_small_graph(graph):
    """In `gateway/answer`: at most ten imports among its modules, and at most three of each of them."""
    package = "toolwire.gateway.answer"
    arrows = {
        module: {name for name in names if name.startswith(f"{package}.") and name != module}
        for module, names in graph.items()
        if module.startswith(f"{package}.")
    }
    assert sum(map(len, arrows.values())) <= 10
    assert max(map(len, arrows.values())) <= 3
