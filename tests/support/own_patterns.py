"""Collect every regular expression of the package with the methods that are called on it.

Calls of `re` are found in the source. Patterns are evaluated in their module, or recorded while the package is imported
if they are made by a function or a comprehension. `unknown` are the calls that neither way resolves.
"""

import ast
import gc
import importlib
import pickle
import pkgutil
import re
import sys
from pathlib import Path
from typing import NamedTuple

from source_text import children

FUNCTIONS = frozenset({"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"})
FLAGS_AT = {"compile": 1, "match": 2, "search": 2, "fullmatch": 2, "findall": 2, "finditer": 2, "split": 3, "sub": 4}
_MENTIONS_A_METHOD = re.compile(rf"\.(?:{'|'.join(sorted(FUNCTIONS))})\b").search
# Libraries that are not imported, because they take most of the time and our modules that need them compile no pattern of
# their own; some are not installed.
OPTIONAL = {"dbos", "pydantic_ai", "torch", "transformers", "xgrammar"}


class OwnPattern(NamedTuple):
    """A pattern with a method that is called on it. `name` is empty for a pattern without one."""

    place: str
    name: str
    pattern: str | bytes
    flags: int
    method: str


class UnknownPattern(NamedTuple):
    """A call of `re` whose pattern is made at run time."""

    path: str
    function: str
    place: str
    methods: list[str]


class PatternCall(NamedTuple):
    """A call of `re` in the source."""

    path: str
    function: str
    node: ast.Call
    method: str
    assigned: str
    """The name of the pattern, or empty."""

    @property
    def place(self):
        return f"{self.path}:{self.node.lineno}"


def import_all(package):
    """Import every module of the package that can be imported, and record the patterns that they compile."""
    recorded = {}
    compile_pattern = re._compile

    def record(pattern, flags):
        compiled = compile_pattern(pattern, flags)
        frame = sys._getframe(2)
        recorded.setdefault((frame.f_code.co_filename, frame.f_lineno), set()).add((compiled.pattern, compiled.flags))
        return compiled

    sys.modules.update(dict.fromkeys(OPTIONAL))  # an import of None raises ModuleNotFoundError
    re._compile = record
    try:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                try:
                    importlib.import_module(module.name)
                except ModuleNotFoundError as error:
                    assert error.name.partition(".")[0] in OPTIONAL, error
                except ImportError as error:
                    assert type(error).__name__ == "MissingExtra", error
                except Exception as error:
                    assert type(error).__name__ == "MissingExtra", error
    finally:
        re._compile = compile_pattern
    return recorded


class _Visit(NamedTuple):
    """A node, the nodes in which it is, and the innermost function or class of them."""

    node: ast.AST
    parent: "_Visit | None"
    functions: list[ast.AST]


def _visits(tree):
    visits = [_Visit(tree, None, [])]
    for visit in visits:
        is_function = isinstance(visit.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        functions = [visit.node] if is_function else visit.functions
        visits += [_Visit(child, visit, functions) for child in children(visit.node)]
    return visits


def _find_calls(path, visits):
    """Yield the calls of `re` in a module, each with the function in which it is."""
    for visit in visits:
        match visit.node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method)) if method in FUNCTIONS:
                yield _read_call(path, visit, method), visit.functions


def _read_call(path, visit, method):
    parent = visit.parent
    assigned = ""
    if method == "compile":
        method = parent.node.attr if isinstance(parent.node, ast.Attribute) else ""
        outer = parent.parent.node if method else parent.node
        if isinstance(outer, (ast.Assign, ast.AnnAssign)):
            target = outer.targets[0] if isinstance(outer, ast.Assign) else outer.target
            assigned = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
    function = visit.functions[0].name if visit.functions else ""
    return PatternCall(path, function, visit.node, method, assigned)


def _evaluate(node, namespace):
    return eval(compile(ast.Expression(node), "<pattern>", "eval"), namespace)


def _namespace(module, functions):
    """Return the names of a module, and the constants of a function in it."""
    names = dict(vars(module))
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                try:
                    names[node.targets[0].id] = _evaluate(node.value, names)
                except Exception:  # it needs an argument of the function
                    names.pop(node.targets[0].id, None)
    return names


def _resolve(call, functions, module, recorded, filename):
    """Return the patterns of a call with their flags; empty if they are not known."""
    if module is not None:
        try:
            names = _namespace(module, functions)
            pattern = _evaluate(call.node.args[0], names)
            at = FLAGS_AT[call.node.func.attr]
            given = call.node.args[at : at + 1] + [word.value for word in call.node.keywords if word.arg == "flags"]
            compiled = re.compile(pattern, _evaluate(given[0], names) if given else 0)
        except (NameError, AttributeError):
            pass
        else:
            return {(compiled.pattern, compiled.flags)}
    return recorded.get((filename, call.node.lineno), set())


def _used_and_imported(visits):
    """Return the methods that are called on each name in a module, and the names that it imports."""
    used, imported = {}, set()
    for node, _, _ in visits:
        if isinstance(node, ast.Attribute) and node.attr in FUNCTIONS:
            name = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            if (
                node.attr == "split"
                and isinstance(node.value, ast.Attribute)
                and ast.unparse(node.value.value) != "self"
            ):
                continue  # a text that another object holds, such as `result.text.split()`
            used.setdefault(name, set()).add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            imported.update(alias.name for alias in node.names)
    return used, imported


def _reduce(methods):
    """Return the methods with different costs: a search for every match includes a match at the beginning."""
    scans = methods & {"sub", "subn", "split", "findall", "finditer"}
    first = {"finditer"} if scans or not methods else methods & {"search"} or methods & {"match"}
    return sorted(first | methods & {"fullmatch"})


def collect(package):
    """Return the patterns of the package, and the calls whose patterns are not known."""
    root = Path(package.__file__).parent
    recorded = import_all(package)
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    modules = {path: _visits(ast.parse(text)) for path, text in texts.items() if _MENTIONS_A_METHOD(text)}
    names = {path: _used_and_imported(visits) for path, visits in modules.items()}
    used = {path: found for path, (found, _) in names.items()}
    patterns, unknown = [], []
    for path, visits in modules.items():
        calls = list(_find_calls(path.relative_to(root).as_posix(), visits))
        name = ".".join([package.__name__, *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")
        for call, functions in calls:
            found = _resolve(call, functions, sys.modules.get(name), recorded, str(path))
            methods = {call.method} - {""}
            if call.assigned and not methods:
                users = [other for other in modules if other == path or call.assigned in names[other][1]]
                methods = methods.union(*(used[user].get(call.assigned, ()) for user in users))
            elif not methods:  # in a container, from which other names get it
                own = {"re", *(other.assigned for other, _ in calls)}
                methods = methods.union(*(found for name, found in used[path].items() if name not in own))
            if not found:
                unknown.append(UnknownPattern(call.path, call.function, call.place, _reduce(methods)))
            patterns += [
                OwnPattern(call.place, call.assigned, *item, method) for item in found for method in _reduce(methods)
            ]
    return patterns, unknown


def field_values(class_name, field):
    """Return the patterns in a field of all values of a class that modules of the package hold.

    Without a class, `field` has the names of variables.
    """
    seen, found, waiting = set(), set(), []
    for name, module in list(sys.modules.items()):
        if name.startswith("toolwire"):
            own = vars(module)
            waiting += list(own.values()) if class_name else [own[part] for part in field.split("+") if part in own]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, type):
            continue
        if isinstance(value, str) and not class_name:
            found.add(value)
        names = getattr(type(value), "__struct_fields__", None) or getattr(type(value), "_fields", ())
        if class_name in {base.__name__ for base in type(value).__mro__}:
            held = getattr(value, field)
            found.update([held] if isinstance(held, (str, bytes)) else [item[0] for item in held or ()])
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (tuple, list, set, frozenset)):
            waiting += value
        elif names or type(value).__module__.startswith("toolwire"):
            waiting += [getattr(value, name, None) for name in (*names, *getattr(value, "__dict__", ()))]
    return sorted(found)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    sys.modules["own_patterns"] = sys.modules["__main__"]
    for _value in (OwnPattern, UnknownPattern):
        _value.__module__ = "own_patterns"
    import toolwire

    gc.disable()  # nothing of it is garbage
    patterns, unknown = collect(toolwire)
    values = {argument: field_values(*argument.split(".")) for argument in sys.argv[2:]}
    sys.stdout.buffer.write(pickle.dumps((patterns, unknown, values)))
