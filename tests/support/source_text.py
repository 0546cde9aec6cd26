"""Find the comments and the code lines of a module, without `tokenize`, which takes ten times as long."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|' r"'''(?:[^\\]|\\.)*?'''|" r'"(?:[^"\\\n]|\\.)*"|' r"'(?:[^'\\\n]|\\.)*'|(#[^\n]*)",
    re.DOTALL,
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Comment(NamedTuple):
    line: int
    text: str


def comments(source: str) -> Iterator[Comment]:
    """Yield the comments; comments without code between them are one text, except at the ends of code lines."""
    block: list[str] = []
    first = end = line = position = 0
    for found in _STRING_OR_COMMENT.finditer(source):
        if found[1] is None:
            continue
        line += source.count("\n", position, found.start())
        position = found.start()
        text = found[1].lstrip("#").strip()
        if source[source.rfind("\n", 0, position) + 1 : position].strip():
            yield Comment(line + 1, text)
            continue
        if block and source[end:position].strip():
            yield Comment(first, "\n".join(block))
            block = []
        first = first if block else line + 1
        block.append(text)
        end = found.end()
    if block:
        yield Comment(first, "\n".join(block))


def count_code_lines(source: str) -> int:
    """Count the lines with code: no comments, docstrings or blank lines."""
    docstrings = {
        number
        for node in _walk_definitions(ast.parse(source))
        if ast.get_docstring(node, clean=False) is not None
        for number in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    lines = source.split("\n")
    code = {number for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")}
    line = position = 0
    for found in _STRING_OR_COMMENT.finditer(source):
        line += source.count("\n", position, found.start())
        position = found.start()
        if found[1] is None and (height := found[0].count("\n")):
            code.update(range(line + 1, line + height + 2))
    return len(code - docstrings)


def _walk_definitions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may have a docstring. Expressions contain none."""
    if isinstance(node, _DOCUMENTED):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _walk_definitions(child)
