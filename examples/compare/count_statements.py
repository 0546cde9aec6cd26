"""Count the statements of the programs of the comparison; write the table of README.md.

A statement is a statement of Python's grammar, compound statements and their bodies included. Imports, docstrings,
other bare strings and the line `if __name__ == "__main__":` are not counted. Because one statement can be long, expressions are counted as well, with the
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
TASKS = tuple("weather extraction approval dependencies streaming conversation subagents mcp retries testing".split())
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
        if isinstance(child, ast.If) and "__name__" in ast.dump(child.test):
            for statement in child.body:
                yield statement
                yield from _counted_nodes(statement)
        elif not _is_ignored(child):
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
    """Format the table: one row per pair, and the sums per peer. The smaller program is named twice, by each figure."""
    lines = [
        "| task | peer | statements: peer | toolwire | smaller | expressions: peer | toolwire | smaller |",
        "|---|---|---:|---:|---|---:|---:|---|",
    ]
    sums = {peer: (Size(0, 0), Size(0, 0)) for peer in PEERS}
    for task, peer, theirs, ours in rows():
        lines.append(_row(f"[{task}]({task}/{peer})", PEERS[peer], theirs, ours))
        sums[peer] = (_add(sums[peer][0], theirs), _add(sums[peer][1], ours))
    lines += [_row("**all**", PEERS[peer], *sizes) for peer, sizes in sums.items()]
    return "\n".join(lines) + "\n"


def _row(task: str, peer: str, theirs: Size, ours: Size) -> str:
    cells = [task, peer]
    for their_figure, our_figure in zip(theirs, ours, strict=True):
        cells += [str(their_figure), str(our_figure), _smaller(peer, their_figure, our_figure)]
    return f"| {' | '.join(cells)} |"


def _smaller(peer: str, theirs: int, ours: int) -> str:
    if theirs == ours:
        return "equal"
    return f"toolwire ({ours / theirs:.2f})" if ours < theirs else f"**{peer}** ({ours / theirs:.2f})"


def _add(first: Size, second: Size) -> Size:
    return Size(first.statements + second.statements, first.expressions + second.expressions)


def page() -> str:
    """Return README.md with the current table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(table(), end="")
