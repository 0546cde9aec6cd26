"""Describe the public names for the API reference, from the source alone: nothing is imported.

A name of a package's `__all__` is followed through the `from … import` lines to its definition. A class shows its fields, its constructor and
its methods; a function, its signatures; a value, its assignment.

Shown are the members that a reader can use: those that a page of the docs, an example or `tests/typing/api.py` names. Other members without an
underscore are shared between modules of toolwire, such as the steps of a session that `Agent` drives. A protocol shows all members, because its
implementers need them. An attribute that only repeats a parameter of the constructor adds nothing, and is omitted.
"""

import ast
import copy
import functools
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Definition",
    "Described",
    "Member",
    "definition",
    "describe",
    "format_signatures",
    "package_text",
    "public_names",
]

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
_PRIVATE = {"cli"}  # the commands are documented by their `--help`
_LONG = 60  # characters of a default value; a longer one, such as a table, is shown as `...`
_LINE = 100  # characters in a line of a signature
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """The statements that define a name: several for a function with overloads. A package has its docstring only."""

    module: str
    nodes: tuple[ast.stmt, ...]
    text: str


class Member(NamedTuple):
    name: str
    signature: str
    text: str


class Described(NamedTuple):
    """A public name. `fields` have a line in a list, `members` a heading."""

    signature: str
    text: str
    fields: tuple[Member, ...] = ()
    members: tuple[Member, ...] = ()


@functools.cache
def public_names() -> dict[str, list[str]]:
    """Return the names that each package exports, by package."""
    package = SOURCE / "toolwire"
    found = {"toolwire": _exported(package / "__init__.py")}
    for folder in sorted(path for path in package.iterdir() if (path / "__init__.py").exists()):
        if folder.name not in _PRIVATE:
            found[f"toolwire.{folder.name}"] = _exported(folder / "__init__.py")
    return {package: names for package, names in found.items() if names}


def _exported(path: Path) -> list[str]:
    """Return the names that a package imports `as` themselves, the names in `own=`, or else its literal `__all__`."""
    found: set[str] = set()
    for node in ast.walk(_parsed(path)):
        match node:
            case ast.ImportFrom():
                found.update(alias.name for alias in node.names if alias.asname == alias.name)
            case ast.keyword(arg="own", value=ast.Constant(value=str() as own)):
                found.update(own.split())
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                found.update(ast.literal_eval(node.value))
    return sorted(found)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _file(module: str) -> Path:
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def package_text(package: str) -> str:
    return ast.get_docstring(_parsed(_file(package))) or ""


def definition(module: str, name: str) -> Definition:
    """Find the definition of a name that a module defines or imports."""
    path = _file(module)
    defining = _statements(path).get(name)
    if not defining:
        raise LookupError(f"{module} neither defines nor imports {name}")
    node = defining[0]
    if isinstance(node, ast.ImportFrom):
        origin = _origin(module, path, node)
        original = next(alias.name for alias in node.names if name in (alias.asname, alias.name))
        inner = f"{origin}.{original}"
        return Definition(inner, (), package_text(inner)) if _file(inner).exists() else definition(origin, original)
    return Definition(module, tuple(defining), _text_after(_parsed(path).body, node))


@functools.cache
def _statements(path: Path) -> dict[str, list[ast.stmt]]:
    """Return the statements of a module that define each name, also below `if`, definitions before imports."""
    found: dict[str, list[ast.stmt]] = {}
    pending: list[ast.stmt] = list(_parsed(path).body)
    for node in pending:
        pending += [*node.body, *node.orelse] if isinstance(node, ast.If) else []
    for node in sorted(pending, key=lambda node: isinstance(node, ast.ImportFrom)):
        for name in _defined(node):
            found.setdefault(name, []).append(node)
    return found


def _defined(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.ImportFrom():
            return {alias.asname or alias.name for alias in node.names}
    return set()


def _origin(module: str, path: Path, node: ast.ImportFrom) -> str:
    """Return the absolute name of the module that a statement imports from."""
    parts = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1] if node.level else []
    return ".".join([*parts, *(node.module or "").split(".")]).strip(".")


def describe(found: Definition) -> Described:
    first = found.nodes[0] if found.nodes else None
    if first is None:
        return Described("", found.text)
    if isinstance(first, ast.ClassDef):
        return _describe_class(first)
    if isinstance(first, _Function):
        functions = [node for node in found.nodes if isinstance(node, _Function)]
        return Described(_signatures(functions), _docstring(functions))
    return Described(_assignment(first), found.text)


def _describe_class(node: ast.ClassDef) -> Described:
    methods: dict[str, list[_Function]] = {}
    for item in node.body:
        if isinstance(item, _Function):
            methods.setdefault(item.name, []).append(item)
    shown = _parsed_uses() if not _is_protocol(node) else None
    fields = [
        *_class_fields(node),
        *(_instance_fields(methods["__init__"][-1], shown) if "__init__" in methods else []),
    ]
    members: list[Member] = []
    for name, functions in methods.items():
        if name.startswith("_") or (shown is not None and name not in shown):
            continue
        if _is_property(functions[0]):
            returned = ast.unparse(functions[0].returns) if functions[0].returns else "Any"
            fields.append(Member(name, f"{name}: {returned}", _docstring(functions)))
        else:
            members.append(Member(name, _signatures(functions), _docstring(functions)))
    return Described(_class_signature(node, methods), ast.get_docstring(node) or "", tuple(fields), tuple(members))


def _is_protocol(node: ast.ClassDef) -> bool:
    return any("Protocol" in ast.unparse(base) for base in node.bases)


def _is_property(node: _Function) -> bool:
    return any(ast.unparse(item) in ("property", "cached_property") for item in node.decorator_list)


@functools.cache
def _parsed_uses() -> frozenset[str]:
    """Return all words of the docs and examples."""
    files = [
        ROOT / "README.md",
        *(path for path in (ROOT / "docs").rglob("*.md")),
        *(path for path in (ROOT / "examples").rglob("*.py")),
        ROOT / "tests/typing/api.py",
    ]
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))


def _class_fields(node: ast.ClassDef) -> Iterator[Member]:
    """Yield the annotated fields. Their declarations are in the signature, so those without a docstring are only there."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not item.target.id.startswith("_"):
            text = _text_after(node.body, item)
            if text:
                yield Member(item.target.id, f"{item.target.id}: {ast.unparse(item.annotation)}", text)


def _instance_fields(init: _Function, shown: frozenset[str] | None) -> Iterator[Member]:
    """Yield the attributes that a constructor sets and documents."""
    for item in ast.walk(init):
        if not isinstance(item, (ast.Assign, ast.AnnAssign)):
            continue
        target = item.targets[0] if isinstance(item, ast.Assign) else item.target
        if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
            continue
        name, text = target.attr, _text_after(init.body, item)
        if text and (shown is None or name in shown):
            kind = f": {ast.unparse(item.annotation)}" if isinstance(item, ast.AnnAssign) else ""
            yield Member(name, f"{name}{kind}", text)


def _text_after(body: Sequence[ast.stmt], node: ast.stmt) -> str:
    """Return the text that follows a statement as its documentation."""
    position = body.index(node) + 1 if node in body else len(body)
    match body[position : position + 1]:
        case [ast.Expr(value=ast.Constant(value=str() as text))]:
            return text
    return ""


def _docstring(functions: Sequence[_Function]) -> str:
    return next((text for node in reversed(functions) if (text := ast.get_docstring(node))), "")


def _class_signature(node: ast.ClassDef, methods: dict[str, list[_Function]]) -> str:
    """Return the class with its declared fields, or else with its constructor."""
    shell = copy.copy(node)
    shell.decorator_list = []
    shell.keywords = [item for item in node.keywords if item.arg == "metaclass"]
    fields = [
        ast.AnnAssign(target=item.target, annotation=item.annotation, value=_short(item.value), simple=1)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not item.target.id.startswith("_")
    ]
    inits = [_bare(init) for init in _declarations(methods.get("__init__", []))]
    shell.body = [*fields, *inits] or [ast.Expr(ast.Constant(...))]
    return ast.unparse(ast.fix_missing_locations(shell))


def _declarations(functions: Sequence[_Function]) -> Sequence[_Function]:
    """Return the overloads of a function, or the function."""
    overloads = [
        node for node in functions if any(ast.unparse(item).endswith("overload") for item in node.decorator_list)
    ]
    return overloads or functions


def _signatures(functions: Sequence[_Function]) -> str:
    return "\n".join(ast.unparse(ast.fix_missing_locations(_bare(node))) for node in _declarations(functions))


def _bare(node: _Function) -> _Function:
    """Return a function without its body, its decorators and `self`."""
    bare = copy.copy(node)
    bare.body = [ast.Expr(ast.Constant(...))]
    bare.decorator_list = [item for item in node.decorator_list if ast.unparse(item) == "classmethod"]
    bare.args = copy.copy(node.args)
    bare.args.defaults = [_short(value) or value for value in node.args.defaults]
    bare.args.kw_defaults = [_short(value) for value in node.args.kw_defaults]
    return bare


def _short(value: ast.expr | None) -> ast.expr | None:
    """Return a default value, or `...` for a long or a private value."""
    if value is None:
        return None
    text = ast.unparse(value)
    is_private = re.search(r"(?<![\w.])_[a-zA-Z]", text)
    return ast.Constant(...) if len(text) > _LONG or is_private else value


def _assignment(node: ast.stmt) -> str:
    match node:
        case ast.AnnAssign(value=value, annotation=annotation, target=target):
            shown = _short(value)
            return f"{ast.unparse(target)}: {ast.unparse(annotation)}" + (f" = {ast.unparse(shown)}" if shown else "")
        case ast.Assign(value=value, targets=[target, *_]):
            return f"{ast.unparse(target)} = {ast.unparse(_short(value) or value)}"
    return ast.unparse(node)


_MARK = "# next signature\n"


def format_signatures(signatures: Sequence[str]) -> list[str]:
    """Format all signatures by one call of ruff: a process for each of them would take most of the time of the build."""
    done = subprocess.run(  # noqa: S603 - a command without user input
        [sys.executable, "-m", "ruff", "format", "--isolated", f"--line-length={_LINE}", "-"],
        input=_MARK.join(f"{signature}\n" for signature in signatures),
        capture_output=True,
        text=True,
        check=True,
    )
    texts = done.stdout.split(_MARK)
    return [re.sub(r":\s*\.\.\.$", "", text.strip(), flags=re.MULTILINE) for text in texts]
