"""The texts of the Toolformer experiment: word problems and templated arithmetic, written as statements."""

import csv
import gzip
import json
import random
import re
from pathlib import Path

__all__ = ["load_data", "number", "templated", "write_data"]

FILE = "toolformer-data.json.gz"
TEMPLATES = {
    "+": (
        "What is {a} plus {b}? The answer is",
        "A farm has {a} hens and buys {b} more. How many hens does it have? The answer is",
        "One shelf holds {a} books and the other holds {b}. How many books are there in total? The answer is",
    ),
    "-": (
        "What is {a} minus {b}? The answer is",
        "There were {a} tickets and {b} were sold. How many tickets are left? The answer is",
        "A tank holds {a} liters and {b} liters flow out. How many liters remain? The answer is",
    ),
    "*": (
        "What is {a} times {b}? The answer is",
        "Each of {a} boxes contains {b} screws. How many screws are there? The answer is",
        "A train makes {a} trips with {b} passengers each. How many passengers travel? The answer is",
    ),
}
VALUE = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


def write_data(folder: Path, source: Path, limit: int, seed: int) -> Path:
    """Write the texts to train on and the held-out problems as one compressed file."""
    draw = random.Random(seed)
    train = [*_limited(_mawps(source), limit, draw), *_limited(_gsm8k(source), limit, draw)]
    train += [templated(draw, digits=draw.choice((2, 3, 4))) for _ in range(limit)]
    used = {row["prompt"] for row in train}
    held_out = []
    while len(held_out) < min(300, limit):
        row = templated(draw, digits=3)
        if row["prompt"] not in used:
            used.add(row["prompt"])
            held_out.append({**row, "source": "arithmetic"})
    evaluation = [*_limited(_svamp(source), limit, draw), *held_out]
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"train": train, "evaluation": evaluation}).encode()
    (folder / FILE).write_bytes(gzip.compress(content, 9, mtime=0))
    return folder / FILE


def load_data(folder: Path) -> dict:
    """Read the file of `write_data`."""
    return json.loads(gzip.decompress((folder / FILE).read_bytes()))


def _limited(rows: list[dict], limit: int, draw: random.Random) -> list[dict]:
    return sorted(draw.sample(rows, min(limit, len(rows))), key=lambda row: row["prompt"])


def _row(prompt: str, rest: str, answer: float, source: str) -> dict:
    """A text is the prompt, the answer, and the rest of the sentence; the call belongs between prompt and answer."""
    return {"prompt": prompt, "text": f"{prompt} {number(answer)}{rest}", "answer": answer, "source": source}


def number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _mawps(source: Path) -> list[dict]:
    rows = []
    for row in csv.DictReader((source / "mawps_fold0_train.csv").open(encoding="utf-8")):
        question = row["Question"]
        for place, value in reversed(list(enumerate(row["Numbers"].split()))):
            question = re.sub(rf"number{place}\b", number(float(value)), question)
        question = re.sub(r"\s+([.,?!])", r"\1", question).strip()
        rows.append(_row(f"{question} The answer is", ".", float(row["Answer"]), "mawps"))
    return rows


def _gsm8k(source: Path) -> list[dict]:
    """The sentences of solutions with one annotated calculation, such as `48/2 = <<48/2=24>>24 clips`."""
    rows = []
    for line in (source / "gsm8k_train.jsonl").read_text("utf-8").splitlines():
        for sentence in json.loads(line)["answer"].split("\n"):
            found = re.fullmatch(r"([^<]*?) ?<<[^<>=]+=([0-9.]+)>>([0-9.,]+)([^<]*)", sentence)
            if found and found[1].rstrip().endswith("=") and found[2] == found[3].replace(",", "").rstrip("."):
                tail = "." if found[3].endswith(".") else ""
                rows.append(_row(found[1].rstrip(), tail + found[4], float(found[2]), "gsm8k"))
    return rows


def _svamp(source: Path) -> list[dict]:
    rows = []
    for row in json.loads((source / "SVAMP.json").read_text("utf-8")):
        body = row["Body"].strip()
        body += "" if body.endswith((".", "?", "!")) else "."
        rows.append(_row(f"{body} {row['Question'].strip()} The answer is", ".", float(row["Answer"]), "svamp"))
    return rows


def templated(draw: random.Random, digits: int) -> dict:
    operation = draw.choice("+-*")
    low, high = 10 ** (digits - 1), 10**digits - 1
    a, b = draw.randint(low, high), draw.randint(low, high)
    if operation == "*" and digits > 2:
        b = draw.randint(2, 99)
    if operation == "-" and b > a:
        a, b = b, a
    prompt = draw.choice(TEMPLATES[operation]).format(a=a, b=b)
    return _row(prompt, ".", VALUE[operation](a, b), "template")
