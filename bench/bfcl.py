"""Read the functions of the Berkeley Function Calling Leaderboard as JSON Schema: a second corpus for schemas.py.

They are part of the wheel `bfcl-eval`, which run.py installs without its dependencies. Its types are names of Python, Java and
JavaScript types; each function is used once, by its name and parameters.
"""

import json
from pathlib import Path

PACKAGE = "bfcl-eval==2026.3.23"
_PLACE = ".venv-schemas/lib/python*/site-packages/bfcl_eval/data"


def functions() -> list[tuple[str, dict]]:
    """Return the name and schema of each function; empty if the wheel is not installed."""
    from toolwire.learn.bfcl.entries import parameter_schema  # run.py runs without toolwire

    found: dict[str, tuple[str, dict]] = {}
    for folder in Path(__file__).parent.glob(_PLACE):
        for file in sorted(folder.rglob("*.json")):
            if "possible_answer" not in file.parts:
                for function in _declared(file):
                    key = json.dumps([function["name"], function["parameters"]], sort_keys=True)
                    # a parameter of any type is a string, as in the leaderboard's own conversion
                    schema = parameter_schema(function["parameters"], any_type="string")
                    found.setdefault(key, (function["name"], schema))
    return list(found.values())


def _declared(file: Path) -> list[dict]:
    text = file.read_text(encoding="utf-8")
    try:
        rows = json.loads(text)
    except json.JSONDecodeError:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    rows = [row for row in (rows if isinstance(rows, list) else [rows]) if isinstance(row, dict)]
    listed = [row["function"] for row in rows if "function" in row]
    functions = [one for entry in listed for one in (entry if isinstance(entry, list) else [entry])]
    return [one for one in [*functions, *rows] if isinstance(one, dict) and "parameters" in one and "name" in one]
