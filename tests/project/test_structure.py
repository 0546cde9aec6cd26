"""The structure of the package: no import cycle, folders and modules of a size that a reader can survey."""

import ast
from collections import Counter, defaultdict

import pytest

from package_source import limits_without_reason, read_package
from source_text import count_code_lines, walk

CHILDREN = 25  # a folder's listing fits on a screen
LINES = 600  # h11's longest module has 660
LONG = 400, 0.05  # lines, and the share of modules that have so many
MERGED = 120, 450  # a smaller module with a single importer belongs to it, unless the result is larger

# Modules and code lines per package: lower them after a deletion. A feature that raises them has a CHANGELOG entry.
SIZES = {
    "__main__": (1, 14),
    "_extras": (1, 56),
    "_lazy": (1, 38),
    "adapters": (18, 2990),
    "asgi": (18, 2504),
    "audit": (29, 4698),
    "bridge": (51, 9419),
    "cli": (75, 14062),
    "durable": (8, 1195),
    "gateway": (90, 17319),
    "ir": (16, 1316),
    "learn": (59, 9337),
    "local": (9, 1160),
    "mask": (10, 1531),
    "mcp": (34, 5448),
    "net": (64, 11339),
    "openapi": (10, 1696),
    "retrieve": (29, 4848),
    "run": (41, 6569),
    "schema": (30, 6217),
    "stream": (11, 2003),
    "testing": (32, 4629),
    "text": (37, 7326),
    "toolwire": (0, 87),
    "wire": (119, 23048),
}


# Numeric constants without a comment or docstring beside them, which should give the reason. Remove a name with its reason.
LIMITS_WITHOUT_REASON = [
    "mcp.protocol.rpc:INTERNAL_ERROR",
    "mcp.protocol.rpc:INVALID_PARAMS",
    "mcp.protocol.rpc:INVALID_REQUEST",
    "mcp.protocol.rpc:METHOD_NOT_FOUND",
    "mcp.protocol.rpc:MISSING_CAPABILITY",
    "mcp.protocol.rpc:UNSUPPORTED_VERSION",
    "mcp.server.registry:_MAX_NAME_LENGTH, _MAX_DESCRIPTION_LENGTH",
    "mcp.server.stdio:_PAUSE_LEVEL, _RESUME_LEVEL",
]


def import_graph(modules):
    """Return the modules that each module imports. A name that is not a module counts as an import of its parent."""
    graph = {}
    for module, facts in modules.items():
        found = {name if name in modules else name.rpartition(".")[0] for name in facts.imports}
        graph[module] = (found & modules.keys()) - {module}
    return graph


def find_cyclic(graph):
    """Return the modules that are in a cycle, or between two cycles.

    Modules that import no remaining module are removed until none is left to remove, then the same for modules that no
    remaining module imports.
    """
    remaining = dict(graph)
    while leaves := [module for module, targets in remaining.items() if not targets & remaining.keys()]:
        for module in leaves:
            del remaining[module]
    while roots := remaining.keys() - set().union(*remaining.values()):
        for module in roots:
            del remaining[module]
    return sorted(remaining)


@pytest.fixture(scope="module")
def modules():
    return read_package()


@pytest.fixture(scope="module")
def graph(modules):
    return import_graph(modules)


def test_graph_contains_the_whole_package(graph):
    assert len(graph) > 400
    assert "toolwire.ir.errors" in graph["toolwire.ir.losses"]


def test_cycle_is_found():
    assert find_cyclic({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == ["b", "c"]


def test_no_cycle_of_files(graph):
    assert find_cyclic(graph) == []


def test_small_module_with_a_single_importer_is_part_of_it(modules, graph):
    """Packages do not count as importers: their tables export names. Lazily imported modules stay lazy."""
    eligible = []
    importers = defaultdict(list)
    for importer, targets in graph.items():
        for target in targets:
            importers[target].append(importer)
    for module, facts in modules.items():
        if facts.path.name == "__init__.py" or len(importers[module]) != 1:
            continue
        importer = importers[module][0]
        other = modules[importer]
        small, merged = MERGED
        if (
            other.path.name != "__init__.py"
            and facts.lines < small
            and facts.lines + other.lines < merged
            and module.split(".")[1] == importer.split(".")[1]
            and module in {name if name in modules else name.rpartition(".")[0] for name in other.early_imports}
        ):
            eligible.append(f"{module} belongs to {importer}")
    assert eligible == []


def test_folder_has_few_children(modules):
    paths = [facts.path for facts in modules.values()]
    children = Counter(path.parent for path in paths if path.name != "__init__.py")
    children.update(path.parent.parent for path in paths if path.name == "__init__.py")
    assert {str(folder): count for folder, count in children.items() if count > CHILDREN} == {}


def test_module_is_not_too_long(modules):
    lines = {module: facts.lines for module, facts in modules.items() if facts.path.name != "__init__.py"}
    assert {module: count for module, count in lines.items() if count > LINES} == {}
    long, share = LONG
    assert sum(count >= long for count in lines.values()) <= share * len(lines)


def test_code_lines_are_counted_without_comments_and_docstrings():
    source = '"""Text."""\n\nx = (  # one\n    1,\n)\n# comment\n\n\ndef f():\n    """Text."""\n    return 1\n'
    assert count_code_lines(source, walk(ast.parse(source))) == 5


def test_packages_do_not_grow_unnoticed(modules):
    counts, lines = Counter(), Counter()
    for module, facts in modules.items():
        package = module.split(".")[1] if module.count(".") else "toolwire"
        counts[package] += facts.path.name != "__init__.py"
        lines[package] += facts.code_lines
    sizes = {package: (counts[package], lines[package]) for package in sorted(lines)}
    larger = {
        package: size
        for package, size in sizes.items()
        if size[0] > SIZES.get(package, (0, 0))[0] or size[1] > SIZES.get(package, (0, 0))[1]
    }
    assert larger == {}, "shorten it; for a feature, raise the entry in SIZES and describe the feature in CHANGELOG.md"


def test_limit_without_a_comment_is_found():
    text = 'A = 1\n\nB = -1  # why\n# why\nC, D = 1 << 4, 2\nE = 1\n"""Why."""\n\nclass F:\n    G = 2\n    h: int = 3\n'
    assert list(limits_without_reason(text, walk(ast.parse(text)))) == ["A", "F.G"]


def test_limits_have_reasons(modules):
    found = [f"{module}:{name}" for module, facts in modules.items() for name in facts.limits_without_reason]
    missing = sorted({name.removeprefix("toolwire.") for name in found})
    assert missing == LIMITS_WITHOUT_REASON, "write the reason or the measurement of a new limit beside it"


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
