"""The ledger and the tests agree, both ways."""

import ast
from collections.abc import Iterator
from functools import cache

import ledger
from places import TESTS

MARKERS = ("case", "bad_input", "gateway_bad_input", "pain", "failure", "ambiguity", "parser_bug", "finding")


@cache
def _decorators() -> list[tuple[str, str, ast.Call]]:
    """Name, test and call of every decorator with arguments. Reading all files takes seconds, so it is done once."""
    found = []
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if not any(f"pytest.mark.{marker}" in text for marker in MARKERS):
            continue
        for node in _definitions(ast.parse(text)):
            calls = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
            found += [(ast.unparse(call.func), f"{path.name}::{node.name}", call) for call in calls]
    return found


def _definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions in a node. Expressions contain none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _definitions(child)


def _marked(marker: str) -> dict[object, list[str]]:
    """number → tests that carry `@pytest.mark.<marker>(number)`"""
    found: dict[object, list[str]] = {}
    for name, test, call in _decorators():
        if name == f"pytest.mark.{marker}":
            for argument in call.args:
                found.setdefault(ast.literal_eval(argument), []).append(test)
    return found


def _check(entries: dict[object, ledger.Entry], marker: str) -> None:
    assert marker in MARKERS
    marked = _marked(marker)
    unknown = sorted(map(str, set(marked) - set(entries)))
    assert not unknown, f"tests name {marker}s that the ledger does not have: {unknown}"
    orphans = [number for number, entry in entries.items() if not entry.deferred and number not in marked]
    assert not orphans, f"{marker}s without a test: {orphans}"
    early = [number for number, entry in entries.items() if entry.deferred and number in marked]
    assert not early, f"{marker}s that are deferred and have a test: {early}"


def test_every_case_has_a_test():
    _check(dict(ledger.CASES), "case")


def test_every_bad_input_has_a_test():
    _check(dict(ledger.BAD_INPUTS), "bad_input")


def test_every_bad_input_is_sent_to_a_gateway():
    assert sorted(ledger.GATEWAY_BAD_INPUTS) == list(range(1, 96))
    _check(dict(ledger.GATEWAY_BAD_INPUTS), "gateway_bad_input")


def test_every_pain_has_a_test():
    _check(dict(ledger.PAINS), "pain")


def test_every_failure_has_a_test():
    _check(dict(ledger.FAILURES), "failure")


def test_no_entry_is_both_deferred_and_partial():
    tables = (
        ledger.CASES,
        ledger.BAD_INPUTS,
        ledger.GATEWAY_BAD_INPUTS,
        ledger.PAINS,
        ledger.FAILURES,
        ledger.FINDINGS,
        ledger.FINDINGS_2,
    )
    for entry in (entry for table in tables for entry in table.values()):
        assert not (entry.deferred and entry.later)


def test_every_ambiguity_has_a_test():
    _check(dict(ledger.AMBIGUITIES), "ambiguity")


def test_every_bug_of_a_parser_has_a_test():
    _check(dict(ledger.PARSER_BUGS), "parser_bug")


def test_every_finding_has_a_test():
    _check(dict(ledger.FINDINGS | ledger.FINDINGS_2), "finding")
