"""Count the statements of the programs of the comparison; write the table of README.md.

A statement is a statement of Python's grammar, compound statements and their bodies included. Imports, docstrings and
other bare strings are not counted. Because one statement can be long, expressions are counted as well, with the
parameters and keyword arguments of functions.

python examples/compare/count_statements.py            print the table
python examples/compare/count_statements.py --write    replace the table of README.md
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
BEGIN, END = "<!-- table: count_statements.py -->\n", "<!-- end of the table -->\n"
TASKS = ("dependencies", "streaming", "conversation", "mcp", "testing")
PEERS = {"pydantic_ai": "PydanticAI", "openai_agents": "openai-agents"}


class Size(NamedTuple):
    """The size of a program."""

    statements: int
    expressions: int


def size(source: str) -> Size:
    """Count the statements and expressions of a program."""
    nodes = list(_counted_nodes(ast.parse(source)))
    statements = sum(isinstance(node, ast.stmt) for node in nodes)
    return Size(statements, sum(isinstance(node, (ast.expr, ast.arg, ast.keyword)) for node in nodes))


def _counted_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not _is_ignored(child):
            yield child
            yield from _counted_nodes(child)


def _is_ignored(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return isinstance(node, (ast.Import, ast.ImportFrom))


def rows() -> Iterator[tuple[str, str, Size, Size]]:
    """Yield task, peer, the size of the peer's program and of ours."""
    for task in TASKS:
        for peer in PEERS:
            folder = HERE / task / peer
            theirs, ours = (folder / f"with_{name}.py" for name in (peer, "toolwire"))
            yield task, peer, size(theirs.read_text(encoding="utf-8")), size(ours.read_text(encoding="utf-8"))


def table() -> str:
    """Format the table: one row per pair, and the sums per peer."""
    lines = ["| task | peer | statements: peer | toolwire | expressions: peer | toolwire | fewer statements |"]
    lines.append("|---|---|---:|---:|---:|---:|---|")
    sums: dict[str, list[int]] = {peer: [0, 0, 0, 0] for peer in PEERS}
    for task, peer, theirs, ours in rows():
        figures = (theirs.statements, ours.statements, theirs.expressions, ours.expressions)
        sums[peer] = [total + one for total, one in zip(sums[peer], figures, strict=True)]
        link = f"[{task}]({task}/{peer})"
        lines.append(f"| {link} | {PEERS[peer]} | {_cells(*figures)} | {_fewer(*figures[:2], PEERS[peer])} |")
    for peer, (their_statements, our_statements, their_expressions, our_expressions) in sums.items():
        cells = _cells(their_statements, our_statements, their_expressions, our_expressions)
        lines.append(f"| **all** | {PEERS[peer]} | {cells} | {_fewer(their_statements, our_statements, PEERS[peer])} |")
    return "\n".join(lines) + "\n"


def _cells(*figures: int) -> str:
    return " | ".join(map(str, figures))


def _fewer(theirs: int, ours: int, peer: str) -> str:
    if theirs == ours:
        return "equal"
    return (
        f"toolwire, {ours / theirs:.2f} times"
        if ours < theirs
        else f"**{peer}**; toolwire has {ours / theirs:.2f} times"
    )


def page() -> str:
    """Return README.md with the current table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(table(), end="")
