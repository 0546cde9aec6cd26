"""Measure the cost of hostile patterns and documents at three sizes: the time may at most double with the size.

python bench/attack_costs.py             sizes that take some seconds
python bench/attack_costs.py --large     documents of up to 30 MB

The tests count steps. This script shows the time of code without step counters: the engines in Rust and C.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

from measure import best_seconds
from toolwire.ir import ToolwireError
from toolwire.schema import Validator, repair_arguments
from toolwire.schema.validation.patterns import unchecked_patterns
from toolwire.stream.repair import repair_json
from toolwire.stream.strict import parse

NUMBERS = count()
LETTERS = "".join(Random(1).choices("ab", k=50_000))
Attack = tuple[str, tuple[int, int, int], Callable[[int], Callable[[], object]]]


def text(pattern: str) -> dict:
    return {
        "type": "object",
        "properties": {"name": {"anyOf": [{"type": "string", "pattern": pattern}, {"type": "null"}]}},
    }


def validate(pattern: str) -> Callable[[int], Callable[[], object]]:
    check = Validator(text(pattern))
    return lambda n: lambda: check.problems({"name": LETTERS[:n] + "!"})


def repair(pattern: str) -> Callable[[int], Callable[[], object]]:
    schema = text(pattern)
    return lambda n: lambda: repair_arguments({"name": "a" * n + "!"}, schema, policy="aggressive")


def many_patterns(n: int) -> Callable[[], object]:
    """Use different patterns in every round, so that no cached result helps."""
    return lambda: unchecked_patterns([{"pattern": rf"^{next(NUMBERS)}\p{{L}}{{50}}$"} for _ in range(n)])


def pattern_attacks() -> Iterator[Attack]:
    sizes = (10_000, 20_000, 40_000)
    for pattern in ("^(a+)+$", "^(a|aa)+$", "(x+x+)+y", "^(.*a){8}$"):
        yield f"validate {pattern}, characters", sizes, validate(pattern)
        yield f"repair {pattern}, characters", sizes, repair(pattern)
    yield "validate [ab]*a[ab]{300}c, characters", (2_000, 4_000, 8_000), validate("[ab]*a[ab]{300}c")
    yield "validate (?:[ab]*a){2000}c, characters", sizes, validate("(?:[ab]*a){2000}c")
    yield r"read many \p{L}{50}, patterns", (100, 200, 400), many_patterns


DOCUMENTS = {
    "[1,1,…,1e400]": lambda n: b"[" + b"1," * (n // 2) + b"1e400]",
    "bad byte after numbers": lambda n: b"[" + b"1," * (n // 2) + b"\xff]",
    "bad byte after strings": lambda n: b"[" + b'"ab",' * (n // 5) + b"\xff]",
    "bad byte after lines": lambda n: b"[" + b"\n" * n + b"\xff]",
    "bad byte in a long string": lambda n: b'["' + b"a" * n + b'\xff"]',
    "bad byte after escapes": lambda n: b'["' + b"\\n" * (n // 2) + b'\xff"]',
    "duplicate key": lambda n: b'{"a": [' + b"1," * (n // 2) + b'1], "a": 1}',
    "strings with colons": lambda n: b'{"a": 1, "b": [' + b'":",' * (n // 4) + b"x]}",
    "numbers of 1e300": lambda n: b"[" + b"1e300," * (n // 6) + b"1]",
}


def document_attacks(largest: int) -> Iterator[Attack]:
    sizes = (largest // 4, largest // 2, largest)
    for name, document in DOCUMENTS.items():
        yield f"{name}, bytes", sizes, lambda n, document=document: lambda data=document(n): parse(data)
    yield (
        "repair of a broken array, bytes",
        (largest // 40, largest // 20, largest // 10),
        lambda n: lambda broken="[" + "1," * (n // 2) + "{]": repair_json(broken),
    )


def seconds(run: Callable[[], object]) -> float:
    def once() -> None:
        try:
            run()
        except ToolwireError:
            pass  # the attack was handled

    return best_seconds(once, rounds=3)


def main() -> None:
    largest = 30_000_000 if "--large" in sys.argv else 2_000_000
    print(f"{'attack':44} {'n':>12} {'time at n':>12} {'2n':>9} {'4n':>9}")
    for name, sizes, attack in (*pattern_attacks(), *document_attacks(largest)):
        times = [seconds(attack(size)) for size in sizes]
        print(f"{name:44} {sizes[0]:>12,} {times[0]:>10.4f} s {times[1]:>7.4f} s {times[2]:>7.4f} s", flush=True)


if __name__ == "__main__":
    main()
