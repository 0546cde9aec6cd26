"""Write src/toolwire/text/formats/table.py: the module of each text format, from the modules themselves."""

import ast
from pathlib import Path

FORMATS = Path(__file__).parent.parent / "src/toolwire/text/formats"
TABLE = FORMATS / "table.py"
HEAD = '''"""The module that defines each format. `make docs` writes this file; a test compares it with the modules."""

from __future__ import annotations

__all__ = ["MODULES"]

MODULES = {
'''


def format_table() -> str:
    """Return the text of the table. The constant of a format is its name in capitals."""
    modules = {
        name.lower(): path.stem
        for path in sorted(FORMATS.glob("*.py"))
        if path.name not in ("__init__.py", TABLE.name)
        for name in exported(path)
    }
    return HEAD + "".join(f'    "{name}": "{modules[name]}",\n' for name in sorted(modules)) + "}\n"


def exported(path: Path) -> list[str]:
    """Return the names in a module's `__all__`, without importing it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return []
