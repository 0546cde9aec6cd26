"""Tables of pure cases: `every_case` runs a whole table in one test, and reports every case that fails.

It is written like `pytest.mark.parametrize`, and several of them multiply. pytest spends about 3 ms on every test it
collects and runs, more than most pure cases need. A case shares the fixtures of its test with all others, so a test that
changes its fixtures uses `parametrize`.
"""

import functools
import inspect
import itertools
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

_PARAMETERS = type(pytest.param())

selects = False
"""True if `make test` runs, which skips the cases that `pytest.mark.one_in` leaves out of a table; set by conftest.py."""


class Case(NamedTuple):
    name: Callable[[], str]
    """Names it in the report of failures; most names are never needed."""
    arguments: dict[str, Any]


def every_case(
    names: str | Sequence[str], cases: Iterable[Any], *, ids: Iterable[str] | Callable[[Any], object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test once per case. `ids` names the cases in the report of failures."""
    names = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    table = _read(names, list(cases), ids)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        inner, tables = getattr(test, "table_of", (test, []))

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            _run(inner, list(_selected([table, *tables], run)), fixtures)

        parameters = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature([p for p in parameters if p.name not in names])  # type: ignore[attr-defined]
        run.table_of = (inner, [table, *tables])  # type: ignore[attr-defined]
        return run

    return decorate


def _read(names: list[str], cases: list[Any], ids: Iterable[str] | Callable[[Any], object] | None) -> list[Case]:
    labels = [ids] * len(cases) if callable(ids) or ids is None else list(ids)
    table = []
    for case, label in zip(cases, labels, strict=True):
        if isinstance(case, _PARAMETERS):
            assert not case.marks, "a case of a table has no marks"
            label, values = case.id or label, case.values
        else:
            values = tuple(case) if len(names) > 1 else (case,)
        table.append(Case(functools.partial(_label, values, label), dict(zip(names, values, strict=True))))
    return table


def _label(values: Sequence[Any], label: Any) -> str:
    named = label is not None and not callable(label)
    return str(label) if named else "-".join(_name(value, label) for value in values)


def _name(value: object, label: Callable[[Any], object] | None) -> str:
    name = label(value) if label else None
    return re.sub(r"\s+", " ", reprlib.repr(value)) if name is None else str(name)


def _selected(tables: list[list[Case]], test: Callable[..., None]) -> Iterator[Case]:
    strides = [mark.args[0] for mark in getattr(test, "pytestmark", ()) if mark.name == "one_in"]
    combinations = itertools.product(*reversed(tables))
    for combination in itertools.islice(combinations, None, None, strides[0] if strides and selects else 1):
        arguments = {name: value for case in combination for name, value in case.arguments.items()}
        yield Case(functools.partial(_joined, combination), arguments)


def _joined(combination: Iterable[Case]) -> str:
    return "-".join(case.name() for case in combination)


def _run(test: Callable[..., None], cases: list[Case], fixtures: dict[str, Any]) -> None:
    failures, skips = [], []
    for case in cases:
        try:
            test(**case.arguments, **fixtures)
        except pytest.skip.Exception as skip:
            skips.append(f"{case.name()}: {skip}")
        except (Exception, pytest.fail.Exception) as failure:
            failure.add_note(f"in case {case.name()}")
            failures.append(failure)
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(cases)} cases fail", failures)
    if len(skips) == len(cases):
        pytest.skip(skips[0] if skips else "the table is empty")
