"""Repair invalid tool-call arguments: right, refused or silently wrong, for the 44 kinds of tests/vectors/repair, and the time.

A refusal is right if there is no right value: the text is truncated, or ambiguous. A value is then counted separately if it
is the complete part of the text: suitable for display, not for execution.
"""

import json
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from measure import best_micros
from peers_repair import Baml
from toolwire.schema import repair_arguments

VECTORS = json.loads(
    (Path(__file__).parent.parent / "tests/vectors/repair/corruptions.json").read_text(encoding="utf-8")
)
SCHEMAS, CORRUPTIONS = VECTORS["schemas"], VECTORS["corruptions"]
PERSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "active": {"type": "boolean"},
        "note": {"type": "string"},
    },
    "required": ["id", "name"],
}
PEOPLE = {"type": "object", "properties": {"people": {"type": "array", "items": PERSON}}, "required": ["people"]}


class Refusal(Exception):
    """The candidate returned no value."""


def candidates() -> dict:
    import json_repair
    from jiter import from_json

    baml = Baml({**SCHEMAS, "people": PEOPLE})
    repair = f"json_repair {version('json_repair')}"
    name = f"BAML {version('baml-py')}"
    return {
        "toolwire safe": lambda text, schema: _ours(text, schema, "safe"),
        "toolwire aggressive": lambda text, schema: _ours(text, schema, "aggressive"),
        repair: lambda text, _: json_repair.loads(text),
        f"{repair}, schema": lambda text, schema: json_repair.loads(text, schema=_schema(schema)),
        f"jiter {version('jiter')} partial": lambda text, _: from_json(text.encode(), partial_mode="trailing-strings"),
        f"{name}, any JSON": lambda text, _: baml.any_json(text),
        f"{name}, classes": baml.typed,
    }


def _schema(name: str) -> dict:
    return PEOPLE if name == "people" else SCHEMAS[name]


def _ours(text: str, schema: str, policy: str) -> dict:
    found = repair_arguments(text, _schema(schema), policy=policy)
    if found.arguments is None:
        raise Refusal(found.problems)
    return found.arguments


def judge(row: dict, run) -> str:
    try:
        value = run(row["text"], row["schema"])
    except Exception:
        return "error" if "right" in row else "ok"
    written = json.dumps(value, sort_keys=True)
    if "right" in row:
        return "ok" if written == json.dumps(row["right"], sort_keys=True) else "wrong"
    tolerated = (json.dumps(json.loads(text), sort_keys=True) for text in row["tolerated"])
    return "partial" if written in tolerated else "wrong"


def people() -> str:
    return json.dumps(
        {
            "people": [
                {"id": n, "name": f"Person {n}", "active": n % 2 == 0, "note": f'met in town, "number" {n}\nagain'}
                for n in range(45)
            ]
        }
    )


def speed(runs: dict) -> dict:
    valid = people()
    texts = {"valid": valid, "brackets missing": valid[:-2], "cut in a string": valid[: valid.rindex("again")]}
    return {
        kind: best_micros({name: _attempt(run, text) for name, run in runs.items()}, rounds=5, calls=20)
        for kind, text in texts.items()
    }


def _attempt(run, text: str):
    def attempt() -> None:
        try:
            run(text, "people")
        except Exception:
            pass

    return attempt


def main() -> dict:
    runs = candidates()
    table = [{"kind": row["kind"], **{name: judge(row, run) for name, run in runs.items()}} for row in CORRUPTIONS]
    counts = {name: Counter(row[name] for row in table) for name in runs}
    return {"table": table, "counts": counts, "micros": speed(runs), "bytes": len(people())}


if __name__ == "__main__":
    print(json.dumps(main()))
