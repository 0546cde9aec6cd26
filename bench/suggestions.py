"""Measure suggestions for an unknown tool name: the index of all names, built once, and a query, compared with difflib.

The names are built from words of real tools, the queries are names with a typing error, and hostile ones.
"""

import random
import time
from difflib import get_close_matches

from toolwire.run.tools.suggestions import NameIndex

VERBS = "get list create delete update search find send fetch read write open close add remove set check run stop start".split()
NOUNS = "weather order invoice user customer message file folder issue branch commit ticket account payment event calendar".split()
HOSTILE = ("a" * 100_000, "get_" * 1000, "_", "", "get_order_", "\U0001f600" * 50)


def make_names(count: int) -> list[str]:
    rng = random.Random(1)
    names = {f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}_{number}" for number in range(count)}
    return sorted(names)


def slip(rng: random.Random, name: str) -> str:
    place = rng.randrange(1, len(name) - 1)
    return rng.choice([name[:place] + name[place + 1 :], name[:place] + name[place] + name[place:]])


def main() -> None:
    for count in (100, 1_000, 10_000, 100_000):
        names = make_names(count)
        started = time.process_time()
        index = NameIndex(names)
        built = time.process_time() - started
        rng = random.Random(2)
        wanted = [rng.choice(names) for _ in range(200)]
        queries = [slip(rng, name) for name in wanted]
        times, right = [], 0
        for name, query in [*zip(wanted, queries, strict=True), *((None, each) for each in HOSTILE)]:
            started = time.process_time()
            found = index.similar(query)
            times.append(time.process_time() - started)
            right += name is not None and name in found
        started = time.process_time()
        if count <= 10_000:
            get_close_matches(queries[0], names, 3, 0.4)
        before = f"{(time.process_time() - started) * 1e3:8.1f} ms" if count <= 10_000 else "        —"
        times.sort()
        print(
            f"{count:7,} names: built in {built * 1e3:7.1f} ms, a query {times[len(times) // 2] * 1e3:5.2f} ms, at most "
            f"{times[-1] * 1e3:5.2f} ms, {right / 2:.0f} % right; difflib {before}"
        )


if __name__ == "__main__":
    main()
