"""Break the decisions about leases, fencing, limits and take-over on purpose, and count what the simulator finds.

    python tests/sim/mutants.py            # three old defects and 30 random mutants: some minutes
    python tests/sim/mutants.py --only 12  # one of them

SE3, Z17 and X4 are defects that were fixed (tests/support/ledger.py). A random mutant changes one place of a function in
`TARGETS`: an operator, a condition, a constant, or it leaves out a statement. `<` is not changed to `<=`: two times are
never equal, so that no behaviour would differ. Each runs on a copy of the package, and is found if a schedule, or the
comparison of the fake stores with the real ones, fails.

Survivors of 33: numbers 18 (a cache is filled again) and 27 (a listing loads outputs, which are not used) change no decision. 28
(heartbeats are not distrusted after a failed round) is made up for by the failed renewal at the same time. 3 (a lease is
released before a save in progress) leaves a lease until it expires, which no schedule has shown.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "toolwire"
SEED = 37
LEASES = {
    "net/stores/rules.py": "effective_state is_lease_over may_claim new_record may_complete existing_run"
    " is_leased_to_another may_append is_repeated_append next_version ExpiryClock",
    "net/stores/memory.py": "claim renew complete release resolve append lease _change_lease delete _find_running",
    "run/calls/claims.py": "needs_claim make_claim acquire_claim record_result _await_earlier_run",
    "net/tools/steps.py": "StoreSteps.perform StoreSteps.await_call StoreSteps._renew StoreSteps._claim",
    "net/agent/checkpoints.py": "load save _append_pending _adopt _start_renewal _renew close",
}
LIMITS = {
    "gateway/keys.py": "admit spend admit_request LimitWindow.add LimitWindow.refund LimitWindow.wait_seconds"
    " LimitWindow.__init__ LimitWindow._drop_expired",
    "gateway/state/file_limits.py": "encode FileLimiter.admit FileLimiter.spend _admit _change _load",
    "gateway/state/sql_stores.py": "SqlLimiter.admit SqlLimiter.spend _submit _decide apply _window amounts",
    "gateway/state/shared.py": "SharedLimiter.admit SharedLimiter.spend",
}
TAKE_OVER = {
    "durable/take_over.py": "begin_heartbeat renew_heartbeat perform _put_back_unstarted _is_alive is_in_progress"
    " _make_claim _take_over _resume _wake",
    "durable/worker.py": "_perform_round _execute _continue_run _retry_later _enqueue_next",
}
TARGETS = {"leases and fencing": (LEASES, 14), "limits": (LIMITS, 9), "take-over": (TAKE_OVER, 7)}
"""By group: the functions, and the number of random mutants."""
# The scenarios that drive a file, with the number of schedules that may find a mutant.
SCHEDULES = {
    "net/stores": (("calls", 40), ("runs", 30)),
    "run/calls": (("calls", 60), ("runs", 30)),
    "net/tools": (("calls", 60), ("runs", 30)),
    "net/agent": (("runs", 80),),
    "gateway": (("limits", 120),),
    "durable": (("runs", 80),),
}
_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


class Mutant(NamedTuple):
    """A change of some files. `sources`: the new text by path below the package."""

    name: str
    group: str
    sources: dict[str, str]


def old_defects() -> Iterator[Mutant]:
    """Re-introduce SE3, Z17 and X4."""
    yield _replaced(
        "SE3: amounts of a clock that was ahead count where they are",
        "limits",
        ("gateway/keys.py", "number = min(slice_number, newest)", "number = slice_number"),
    )
    yield _replaced(
        "Z17: records expire by the clock alone",
        "leases and fencing",
        ("net/stores/rules.py", "return min(self._wall(), self._ticks() + self._offset)", "return self._wall()"),
        (
            "net/stores/rules.py",
            "return max(self._wall(), self._ticks() + self._offset) + ttl",
            "return self._wall() + ttl",
        ),
    )
    yield _replaced(
        "X4: the time to live is fixed",
        "leases and fencing",
        ("run/calls/claims.py", "entry.options.ttl or settings.ttl,", "86_400.0,"),
    )


def _replaced(name: str, group: str, *changes: tuple[str, str, str]) -> Mutant:
    sources: dict[str, str] = {}
    for path, old, new in changes:
        source = sources.get(path) or (PACKAGE / path).read_text("utf-8")
        assert source.count(old) == 1, f"{path} has changed: {old}"
        sources[path] = source.replace(old, new)
    return Mutant(name, group, sources)


def random_mutants() -> Iterator[Mutant]:
    """Draw the mutants of each group. The draw is that of `SEED`, so it changes only with the code."""
    draw = random.Random(SEED)
    for group, (targets, count) in TARGETS.items():
        places = [(path, number) for path, names in targets.items() for number in range(_count(path, names))]
        for path, number in sorted(draw.sample(places, count)):
            name, source = _mutate(path, targets[path], number)
            yield Mutant(name, group, {path: source})


def _count(path: str, names: str) -> int:
    return sum(1 for _ in _places(ast.parse((PACKAGE / path).read_text("utf-8")), set(names.split())))


def _mutate(path: str, names: str, number: int) -> tuple[str, str]:
    """Change the place with this number, and return a description and the new source."""
    tree = ast.parse((PACKAGE / path).read_text("utf-8"))
    for index, (owner, node) in enumerate(_places(tree, set(names.split()))):
        if index == number:
            before = ast.unparse(node)
            after = _change(node)
            what = f"{path}:{getattr(node, 'lineno', 0)} {owner}: {before}  →  {after}".replace("\n", " ")
            return what, ast.unparse(ast.fix_missing_locations(tree))
    raise AssertionError(number)


def _places(tree: ast.Module, names: set[str]) -> Iterator[tuple[str, ast.AST]]:
    """Iterate over the nodes of the named functions that can be changed. A class stands for all of its methods."""
    for function, qualified in _functions(tree, ""):
        parts = {qualified, qualified.rpartition(".")[2], qualified.partition(".")[0]}
        if parts & names:
            for node in ast.walk(function):
                if node is not function and _is_place(node):
                    yield qualified, node


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, f"{prefix}{child.name}"


def _is_place(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and type(node.ops[0]) in _SWAPPED
    if isinstance(node, ast.BoolOp):
        return True
    if isinstance(node, ast.BinOp):
        return type(node.op) in _SWAPPED
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await) and "_log." not in ast.unparse(node)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.AugAssign)


def _change(node: ast.AST) -> str:
    """Change a node in place, and describe the result."""
    if isinstance(node, ast.Compare):
        node.ops = [_SWAPPED[type(node.ops[0])]()]  # type: ignore[list-item]
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        node.op = _SWAPPED[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.UnaryOp):
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant):
        node.value = not node.value
    elif isinstance(node, ast.Expr):
        node.value = ast.Constant(None)
    elif isinstance(node, ast.Assign):
        node.targets = [ast.Name("_left_out", ast.Store())]
    else:
        assert isinstance(node, ast.AugAssign)
        node.target, node.op = ast.Name("_left_out", ast.Store()), ast.Add()
        node.__class__ = ast.Assign  # type: ignore[assignment]
        node.targets = [node.target]  # type: ignore[attr-defined]
    return ast.unparse(ast.fix_missing_locations(node))


def find(mutant: Mutant, copy: Path) -> str | None:
    """Run the simulator on a copy of the package with the mutant. Return what found it, or None."""
    for path, source in mutant.sources.items():
        target = copy / "toolwire" / path
        target.write_text(source, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        first = next(iter(mutant.sources))
        for scenario, seeds in next(found for folder, found in SCHEDULES.items() if first.startswith(folder)):
            command = [sys.executable, "tests/sim/run.py", "--stop", "--scenario", scenario, "--seeds", str(seeds)]
            if found := _run(command, environment):
                return found
        if first.startswith("net/stores"):
            test = "tests/sim/test_fake_stores.py::test_memory_store_answers_as_the_real_ones"
            return _run([sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", test], environment)
        return None
    finally:
        for path in mutant.sources:
            shutil.copy(PACKAGE / path, copy / "toolwire" / path)


def _run(command: list[str], environment: dict[str, str]) -> str | None:
    """Run a command, and return the line that shows its failure; None if it succeeds."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return "no end: a schedule that never ends"
    if not done.returncode:
        return None
    lines = [line for line in done.stdout.splitlines() if "seed" in line or "Error" in line]
    return (lines or done.stderr.splitlines() or ["failed"])[0][:150]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=int, action="append", help="the number of a mutant; may be repeated")
    options = parser.parse_args()
    mutants = [*old_defects(), *random_mutants()]
    survivors = tried = 0
    with tempfile.TemporaryDirectory(prefix="toolwire-mutants-") as folder:
        copy = Path(folder)
        shutil.copytree(PACKAGE, copy / "toolwire", ignore=shutil.ignore_patterns("__pycache__"))
        for number, mutant in enumerate(mutants):
            if options.only and number not in options.only:
                continue
            started = time.perf_counter()
            found = find(mutant, copy)
            tried, survivors = tried + 1, survivors + (found is None)
            seconds = time.perf_counter() - started
            print(f"{number:2} {'SURVIVED' if found is None else 'found'} ({seconds:.0f} s) {mutant.name}", flush=True)
            print(f"      {found}" if found else "", flush=True)
    print(f"{tried - survivors} of {tried} found")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
