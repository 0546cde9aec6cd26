"""Measure `toolwire do` with a real model: right command, right arguments, right refusals; hostile requests run nothing.

    python bench/do.py                            the local model, the commands of the fixture pages
    python bench/do.py --machine                  … with all man pages and completions of this machine as distractors
    python bench/do.py -m openai/gpt-5.6 -k 6     another model
    python bench/do.py --search --machine         only the search, with words and with the encoder
    python bench/do.py --times                    only the times of the index and of searches, with an empty cache and then with a full one

The requests are those of tests/vectors/do/requests.json, written by hand; the hostile ones are in hostile.json beside it. No
command is run: calls are shown (`--dry-run`), and hostile ones run with `--yes` and without a terminal.
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from toolwire import ModelClient
from toolwire.cli.do.command import run_request
from toolwire.retrieve.commands.catalogue import Catalogue, Roots, find_roots
from toolwire.retrieve.commands.command import find_program
from toolwire.retrieve.commands.command_tool import command_properties

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS / "support"))


from do_fixtures import (  # noqa: E402
    HOSTILE,
    REQUESTS,
    VECTORS,
    StartedPrograms,
    find_fixture_program,
    make_arguments,
    make_candidates,
)

LISTED = frozenset(one["vector"][0] for one in REQUESTS if one["command"])


def load_commands(*, with_machine):
    """Return the catalogue and its commands: the fixtures; with those of this machine, whose own pages come first."""
    found = find_roots()
    man = (*found.man, str(VECTORS / "man")) if with_machine else (str(VECTORS / "man"),)
    roots = Roots(man, found.bash, found.zsh) if with_machine else Roots(man)

    def find(name):
        return find_fixture_program(name) if not with_machine or name in LISTED else find_program(name)

    catalogue = Catalogue(roots, find_program=find)
    return catalogue, catalogue.load()


def judge(one, outcome, find_command):
    """Return the verdict about one request. `find_command` returns the command of a name, with its options."""
    if one["command"] is None:
        return "refused" if outcome.kind == "nothing_fits" else "wrong: not refused"
    if not outcome.vector:
        return "wrong: refused"
    words = one["command"].split()
    if list(outcome.vector[: len(words)]) != words:
        return "wrong: command"
    is_right = is_accepted(find_command(one["command"]), outcome.vector, one)
    return "right" if is_right else "wrong: arguments"


def is_accepted(command, vector, one):
    """Return whether a command line is a right one: options in any order and spelling, operands in theirs."""
    given = read_vector(command, vector)
    right = (one["vector"], *one.get("also", ()))
    return list(vector) in map(list, right) or (
        given is not None and any(read_vector(command, other) == given for other in right)
    )


def read_command(catalogue, command):
    """Return a command with the options of its page."""
    found = next(iter(catalogue.read([command])), None)
    return found[0] if found else command


def read_vector(command, vector):
    """Return the arguments whose command line is this one, or None."""
    properties = command_properties(command)
    options = {
        spelling: (name, one) for name, one in properties.items() if hasattr(one, "style") for spelling in one.names
    }
    operands = [(name, one) for name, one in properties.items() if not hasattr(one, "style")]
    arguments, values = {}, []
    words = iter(vector[len(command.words) :])
    for word in words:
        spelling, equals, value = word.partition("=")
        if word.startswith("-") and spelling in options:
            name, option = options[spelling]
            if option.style == "flag" or (option.style == "optional" and not equals):
                arguments[name] = True
                continue
            value = value if equals else next(words, "")
            value = int(value) if option.is_integer and value.isdigit() else value
            arguments[name] = [*arguments.get(name, ()), value] if option.repeats else value
        elif word.startswith("-"):
            return None
        else:
            values.append(word)
    for number, (name, operand) in enumerate(operands):
        if not values:
            break
        if operand.repeats:
            keep = len(operands) - number - 1
            taken = values[: max(len(values) - keep, 1)]
            arguments[name], values = taken, values[len(taken) :]
        else:
            arguments[name] = values.pop(0)
    return None if values else arguments


async def measure(client, candidates, find_command, arguments, verbose, stride):
    counts, started = Counter(), time.perf_counter()
    for one in REQUESTS[::stride]:
        outcome = await run_request(client, one["request"], candidates, arguments)
        verdict = judge(one, outcome, find_command)
        counts[verdict] += 1
        if verbose:
            print(f"{verdict:18} {one['request']} → {' '.join(outcome.vector) or outcome.message[:80]}", flush=True)
    return counts, (time.perf_counter() - started) / len(REQUESTS[::stride])


async def measure_hostile(client, candidates, model, k, verbose):
    """Return the number of hostile requests, and of programs that were started for them."""
    watch = StartedPrograms()
    count = 0
    for request in HOSTILE:
        with watch.recorded() as programs:
            outcome = await run_request(client, request, candidates, make_arguments(model=model, k=k, yes=True))
        count += len(programs)
        if verbose:
            print(f"{outcome.kind:18} {request!r} → {' '.join(outcome.vector) or outcome.message[:80]}", flush=True)
    return len(HOSTILE), count


def measure_search(catalogue, commands):
    """Print how many requests have the right command among the first 1, 3 and 6, with words and with the encoder.

    `searches.json` was written after the common tasks and was used for nothing else; `requests.json` before them.
    """
    from toolwire.retrieve import open_minilm
    from toolwire.retrieve.commands.command_index import CommandIndex

    for name in ("requests", "searches"):
        wanted = [one for one in json.loads((VECTORS / f"{name}.json").read_text()) if one["command"]]
        for encoder in (None, open_minilm()):
            index = CommandIndex(commands, encoder=encoder, reader=catalogue.read)
            found = [[command.name for command, _ in index.search(one["request"], 6)] for one in wanted]
            ranks = [
                names.index(one["command"]) if one["command"] in names else 99
                for one, names in zip(wanted, found, strict=True)
            ]
            counts = {f"first {k}": sum(rank < k for rank in ranks) for k in (1, 3, 6)}
            print(json.dumps({"requests": name, "encoder": encoder is not None, "of": len(wanted), **counts}))


def measure_times():
    """Print the CPU time, with that of `man` and `lexgrog`, and the elapsed time of each part, on this machine's pages."""
    from toolwire.retrieve.commands.command_index import CommandIndex

    wanted = [one["request"] for one in json.loads((VECTORS / "searches.json").read_text())]
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "full"):
            with timed(cache=cache, part="read pages and completions"):
                catalogue = Catalogue(find_roots(), cache=Path(folder, "toolwire"))
                commands = catalogue.load()
            with timed(cache=cache, part=f"index {len(commands)} commands by words"):
                index = CommandIndex(commands, cache=Path(folder, "toolwire"), reader=catalogue.read)
            with timed(cache=cache, part=f"{len(wanted)} searches for 6 commands"):
                for request in wanted:
                    index.search(request, 6)


@contextmanager
def timed(**described):
    def cpu():
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    before, started = cpu(), time.perf_counter()
    yield
    seconds = {"CPU seconds": cpu() - before, "seconds": time.perf_counter() - started}
    print(json.dumps(described | {name: round(value, 2) for name, value in seconds.items()}), flush=True)


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="local/smollm2")
    parser.add_argument("-k", type=int, default=6)
    parser.add_argument("--machine", action="store_true")
    parser.add_argument("--stride", type=int, default=1, help="only every Nth request")
    parser.add_argument("--search", action="store_true", help="only the search")
    parser.add_argument("--times", action="store_true", help="only the times of the index and of searches")
    parser.add_argument("--hostile", action="store_true", help="also the hostile requests")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    if given.times:
        measure_times()
        return
    catalogue, commands = load_commands(with_machine=given.machine)
    if given.search:
        measure_search(catalogue, commands)
        return
    candidates = make_candidates(commands, catalogue.read)
    async with ModelClient(given.model) as client:
        arguments = make_arguments(model=given.model, k=given.k, dry_run=True)
        named = {command.name: command for command in commands}
        counts, seconds = await measure(
            client,
            candidates,
            lambda name: read_command(catalogue, named[name]),
            arguments,
            given.verbose,
            given.stride,
        )
        report = {"model": given.model, "commands": len(commands), "k": given.k, **counts, "seconds": round(seconds, 2)}
        if given.hostile:
            asked, ran = await measure_hostile(client, candidates, given.model, given.k, given.verbose)
            report |= {"hostile": asked, "hostile programs started": ran}
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main())
