"""The facts that tests need of every module of the package: it is parsed once per process, which takes two seconds of CPU.

The trees are not kept: they are a million objects.
"""

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import plain_english
from source_text import count_code_lines, walk
from toolwire import __file__ as package_file

SOURCE = Path(package_file).parents[1]
_DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NODES = frozenset((*_DEFINITIONS, ast.Import, ast.ImportFrom, *plain_english.WITH_TEXTS))  # a quarter of all nodes
_CAMEL_CASE = re.compile(r"_?(?:[A-Z]+[a-z0-9]+)+[A-Z]*")


class Module(NamedTuple):
    path: Path
    lines: int
    code_lines: int
    imports: frozenset[str]
    """The absolute names that it imports, also in functions and under TYPE_CHECKING."""
    early_imports: frozenset[str]
    """The absolute names that it imports when it is imported."""
    classes: list[str]
    limits_without_reason: list[str]
    texts: list[plain_english.Text]


@cache
def read_package() -> dict[str, Module]:
    """Return the modules of the package by name."""
    modules = {}
    was_enabled = gc.isenabled()
    gc.disable()  # trees have no cycles, and make so many objects that a third of the time would be collections
    try:
        for path in sorted((SOURCE / "toolwire").rglob("*.py")):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = _read(name, path)
    finally:
        if was_enabled:
            gc.enable()
    return modules


def _read(name: str, path: Path) -> Module:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    nodes = [node for node in walk(tree) if type(node) in _NODES]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return Module(
        path,
        text.count("\n"),
        count_code_lines(text, nodes),
        frozenset(_imported_names(package, nodes)),
        frozenset(_imported_names(package, tree.body)),
        list(defined_classes(tree)),
        list(limits_without_reason(text, nodes)),
        list(plain_english.texts_of_nodes(path.relative_to(SOURCE.parent).as_posix(), text, nodes)),
    )


def _imported_names(package: str, nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def defined_classes(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the classes and type aliases that a module defines at its top level."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if _CAMEL_CASE.fullmatch(name):
                    yield name


def _is_number(node: ast.AST | None) -> bool:
    """Return whether an expression has only numbers: `64`, `-1`, `16 << 20`, `(0.5, 8)`."""
    match node:
        case ast.Constant(value):
            return type(value) in (int, float)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Tuple(elts=elements):
            return bool(elements) and all(map(_is_number, elements))
    return False


def limits_without_reason(text: str, nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the numeric constants of a module and its classes without a comment on or above their line, or a docstring."""
    lines = text.split("\n")
    for parent in nodes:
        if not isinstance(parent, ast.Module | ast.ClassDef):
            continue
        for node, following in zip(parent.body, [*parent.body[1:], None], strict=True):
            match node:
                case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=value):
                    pass
                case _:
                    continue
            if not _is_number(value):
                continue
            name = ast.unparse(target).strip("()")
            if isinstance(parent, ast.ClassDef) and not name.isupper():
                continue
            is_above = lines[node.lineno - 2].lstrip().startswith("#")
            is_beside = any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
            is_below = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            if not (is_above or is_beside or is_below):
                yield f"{parent.name}.{name}" if isinstance(parent, ast.ClassDef) else name
