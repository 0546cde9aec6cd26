"""Data of bench/learn_toolken.py: MetaTool's queries, GSM8K's annotated answers, and templated sentences.

The first two are not part of the repository: `--data` names the folder with `metatool/` and `math/`; the default is
`../shared/data` beside the checkout, or TOOLWIRE_BENCH_DATA.
"""

import csv
import json
import os
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from toolwire import Tool
from toolwire.learn import Demonstration, MarkedCall

DATA = Path(os.environ.get("TOOLWIRE_BENCH_DATA") or Path(__file__).resolve().parent.parent.parent / "shared" / "data")
OPERATIONS = ("add", "divide", "multiply", "subtract")  # in the order of the rows of a head
SYMBOLS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}


class Queries(NamedTuple):
    """Queries with their tools, split at random within each tool: 70 % train, 10 % dev, 20 % test."""

    train: list[tuple[str, str]]
    dev: list[tuple[str, str]]
    test: list[tuple[str, str]]
    dropped: dict[str, int]


def read_metatool(data: Path, *, tools: int | None = None, per_tool: int | None = None, seed: int = 0) -> Queries:
    """Read the single-tool queries. Repeated queries are dropped, and those that belong to several tools."""
    with (data / "metatool" / "all_clean_data.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["Query"].strip(), row["Tool"]) for row in csv.DictReader(file)]
    owners = defaultdict(set)
    for query, tool in rows:
        owners[query.lower()].add(tool)
    by_tool = defaultdict(dict)
    for query, tool in rows:
        if len(owners[query.lower()]) == 1 and query:
            by_tool[tool].setdefault(query.lower(), query)
    ambiguous = sum(len(owners[query.lower()]) > 1 for query, _ in rows)
    kept = sum(map(len, by_tool.values()))
    found = Queries(
        [], [], [], {"rows": len(rows), "of several tools": ambiguous, "repeated": len(rows) - ambiguous - kept}
    )
    for tool in sorted(by_tool)[:tools]:
        queries = list(by_tool[tool].values())
        random.Random(f"{seed}/{tool}").shuffle(queries)
        queries = queries[:per_tool]
        test, dev = round(0.2 * len(queries)), max(round(0.1 * len(queries)), 1)
        for split, part in zip(
            found, (queries[test + dev :], queries[test : test + dev], queries[:test]), strict=False
        ):
            split += [(query, tool) for query in part]
    return found


def read_descriptions(data: Path) -> dict[str, str]:
    """Return the descriptions of MetaTool's tools; merged tools have theirs in a second file."""
    plugins = json.loads((data / "metatool" / "plugin_des.json").read_text("utf-8"))
    merged = json.loads((data / "metatool" / "big_tool_des.json").read_text("utf-8"))
    return {**plugins, **merged}


def arithmetic_tools() -> list[Tool]:
    """Return the four operations as tools."""
    number = {"type": "number"}
    schema = {
        "type": "object",
        "properties": {"a": number, "b": number},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    return [Tool(name, f"{name} two numbers", schema) for name in OPERATIONS]


_SPAN = re.compile(r"<<([^<>]*)>>")
_SIMPLE = re.compile(r"\s*(-?[0-9.]+)\s*([-+*/])\s*([0-9.]+)\s*=\s*(-?[0-9.]+)\s*")
_NUMBER = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?")


def read_gsm8k(data: Path, name: str, count: int) -> list[Demonstration]:
    """Read questions with answers, whose calculations are marked as `<<48/2=24>>24`.

    A calculation of two numbers is a call. Longer ones are ignored: none of the four tools computes them at once.
    """
    lines = (data / "math" / f"gsm8k_{name}.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    random.Random(name).shuffle(rows)
    return [_gsm8k_demonstration(row) for row in rows[:count]]


def _gsm8k_demonstration(row: dict) -> Demonstration:
    answer = row["answer"].split("\n####")[0]
    text = f"Question: {row['question'].strip()}\nAnswer: "
    begin, calls, ignored, last = len(text), [], [], 0
    for match in _SPAN.finditer(answer):
        text += answer[last : match.start()]
        last = match.end()
        number = _NUMBER.match(answer, last)
        end = len(text) + (len(number[0]) if number else 1)
        simple = _SIMPLE.fullmatch(match[1])
        if simple and number:
            values = {"a": _number(simple[1]), "b": _number(simple[3])}
            calls.append(MarkedCall(SYMBOLS[simple[2]], len(text), end, values))
        else:
            ignored.append((len(text), end))
    text += answer[last:]
    return Demonstration(text, tuple(calls), begin, tuple(ignored))


def _number(text: str) -> float:
    value = float(text.strip("."))
    return int(value) if value.is_integer() else value


# Sentences in which no symbol names the operation. The last two of each operation appear only in the test set.
_TEMPLATES = {
    "add": (
        "{name} has {a} {things} and gets {b} more, so now {name} has {c} {things}.",
        "The sum of {a} and {b} is {c}.",
        "There are {a} {things} in the first room and {b} in the second, {c} {things} in all.",
        "{name} paid ${a} for the bike and ${b} for the lock, a total of ${c}.",
        "After walking {a} steps, {name} walked another {b} steps, which makes {c} steps.",
        "The team scored {a} points on Monday and {b} on Tuesday. Together that is {c} points.",
        "With {a} {things} from the north and {b} from the south, the store received {c} {things}.",
        "{name} wrote {a} pages in May and {b} pages in June, altogether {c} pages.",
    ),
    "subtract": (
        "{name} had {a} {things} and gave away {b}, so {name} still has {c} {things}.",
        "The difference between {a} and {b} is {c}.",
        "Of the {a} {things} in the box, {b} were broken, which leaves {c} {things}.",
        "The tank held {a} litres. After {b} litres were used, {c} litres remain.",
        "The shirt cost ${a}, but with a discount of ${b} it costs ${c}.",
        "{name} needs {a} {things} and already has {b}, so {c} {things} are missing.",
        "From {a} {things}, {name} sold {b} and kept {c}.",
        "The trip is {a} miles long and {b} miles are done. There are {c} miles left.",
    ),
    "multiply": (
        "A box holds {a} {things}. {b} boxes hold {c} {things}.",
        "The product of {a} and {b} is {c}.",
        "{name} earns ${a} an hour and works {b} hours, so {name} earns ${c}.",
        "There are {b} rows with {a} seats each, which gives {c} seats.",
        "{name} bought {a} {things} at ${b} each and paid ${c}.",
        "{name} reads {a} pages a day. In {b} days, {name} reads {c} pages.",
        "Each of the {a} workers packed {b} {things}, so they packed {c} {things}.",
        "A machine makes {a} {things} per minute, and in {b} minutes it makes {c} {things}.",
    ),
    "divide": (
        "{name} shares {a} {things} equally among {b} friends, so each friend gets {c} {things}.",
        "The quotient of {a} and {b} is {c}.",
        "{a} {things} are packed into {b} equal boxes, with {c} {things} in each box.",
        "A rope of {a} metres is cut into {b} equal pieces of {c} metres.",
        "{name} paid ${a} for {b} {things}, which is ${c} for each.",
        "The car used {b} hours for {a} miles, an average of {c} miles per hour.",
        "{b} people split a bill of ${a}, and each of them paid ${c}.",
        "If {a} {things} last for {b} days, {name} uses {c} {things} a day.",
    ),
}
_PLAIN = (
    "The house on the corner was built in {year}.",
    "{name} lives in room {a} on the second floor.",
    "Flight {b} leaves at gate {a} every morning.",
    "{name} was born in {year} and likes {things}.",
    "Bus {a} stops near the library, and bus {b} near the park.",
    "The code of the lock is {a}, and {name} wrote it down.",
    "{name} looked at the {things} for a while and then went home.",
    "Chapter {b} begins on page {a} of the book.",
)
_NAMES = ("Tom", "Mia", "Omar", "Lena", "Kofi", "Yuki", "Sara", "Ivan", "Priya", "Diego", "Ana", "Noah")
_THINGS = ("apples", "stamps", "books", "coins", "marbles", "pens", "tickets", "shells", "cards", "bricks")
HELD_TEMPLATES = 2


def make_templated(count: int, seed: str, *, held: bool) -> list[Demonstration]:
    """Make texts of one to three sentences, of which about one in three needs no call.

    `held`: with the templates that are used for tests only.
    """
    random_of = random.Random(seed)
    found = []
    for _ in range(count):
        text, calls = "", []
        for _ in range(random_of.randint(1, 3)):
            text += " " if text else ""
            if text and random_of.random() < 0.4:
                text += _fill(random_of.choice(_PLAIN), random_of, *_operands("add", random_of)[:2])[0]
                continue
            operation = random_of.choice(OPERATIONS)
            a, b, c = _operands(operation, random_of)
            templates = _TEMPLATES[operation]
            chosen = templates[-HELD_TEMPLATES:] if held else templates[:-HELD_TEMPLATES]
            sentence, start = _fill(random_of.choice(chosen), random_of, a, b, c)
            calls.append(MarkedCall(operation, len(text) + start, len(text) + start + len(str(c)), {"a": a, "b": b}))
            text += sentence
        found.append(Demonstration(text, tuple(calls)))
    return found


def _operands(operation: str, random_of: random.Random) -> tuple[int, int, int]:
    """Return operands of two to four digits and the result, which is a whole number."""
    high = random_of.choice((99, 999, 9999))
    a, b = random_of.randint(10, high), random_of.randint(10, high)
    if operation == "add":
        return a, b, a + b
    if operation == "subtract":
        return max(a, b) + 1, min(a, b), max(a, b) + 1 - min(a, b)
    b = random_of.randint(2, 99)
    return (a, b, a * b) if operation == "multiply" else (a * b, b, a)


def _fill(template: str, random_of: random.Random, a: int, b: int, c: int | None = None) -> tuple[str, int]:
    """Return the sentence, and the place of the result in it."""
    values = {
        "name": random_of.choice(_NAMES),
        "things": random_of.choice(_THINGS),
        "year": random_of.randint(1850, 2020),
        "a": a,
        "b": b,
    }
    before, _, after = template.partition("{c}")
    before = before.format(**values)
    return before + ("" if c is None else str(c)) + after.format(**values), len(before)
