"""Measure the incremental JSON scanner: microseconds for one more fragment of four characters, after ever more of them.

The peers parse the whole text again for every fragment, because their interfaces require it.
"""

import json
import time

from toolwire.stream.scanner import Scanner

SIZES = (100, 1_000, 10_000, 50_000)
PIECE = "abc "


def main() -> dict:
    rows = []
    for size in SIZES:
        rows.append(
            {
                "size": size,
                "toolwire": _ours(size),
                "jiter partial": _jiter(size),
                "partial-json-parser": _partial(size),
            }
        )
    return {"rows": rows}


def _ours(size: int) -> float:
    best = float("inf")
    for _ in range(5):
        scanner = Scanner()
        scanner.feed('{"text": "')
        for _ in range(size):
            scanner.feed(PIECE)
        started = time.process_time()
        for _ in range(2000):
            scanner.feed(PIECE)
        best = min(best, (time.process_time() - started) / 2000 * 1e6)
    return best


def _jiter(size: int) -> float:
    from jiter import from_json

    text = ('{"text": "' + PIECE * size).encode()
    return _best(lambda: from_json(text, partial_mode="trailing-strings"), 200 if size < 10_000 else 20)


def _partial(size: int) -> float:
    from partial_json_parser import loads

    text = '{"text": "' + PIECE * size
    return _best(lambda: loads(text), 50 if size < 10_000 else 5)


def _best(run, calls: int) -> float:
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        for _ in range(calls):
            run()
        best = min(best, (time.process_time() - started) / calls * 1e6)
    return best


if __name__ == "__main__":
    print(json.dumps(main()))
