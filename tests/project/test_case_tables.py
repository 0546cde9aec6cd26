"""A table in one test runs every case and reports every failure."""

import inspect

import pytest

import tables
from tables import every_case


@every_case("a", [1, 2, 3])
@every_case(("b", "c"), [(10, 20), pytest.param(30, 40, id="named")])
def run_cases(a, b, c, seen):
    seen.append((a, b, c))
    assert a != 2 or c != 40


def test_every_combination_runs_and_every_failure_is_reported():
    seen = []
    with pytest.raises(BaseExceptionGroup, match="1 of 6 cases fail") as failure:
        run_cases(seen=seen)
    assert sorted(seen) == [(a, b, b + 10) for a in (1, 2, 3) for b in (10, 30)]
    (failed,) = failure.value.exceptions
    assert failed.__notes__ == ["in case named-2"]


def test_only_fixtures_are_left_in_the_signature():
    assert list(inspect.signature(run_cases).parameters) == ["seen"]


@pytest.mark.parametrize(("selects", "count"), [(True, 2), (False, 10)])
def test_make_test_runs_one_case_in_a_stride(selects, count, monkeypatch):
    monkeypatch.setattr(tables, "selects", selects)
    seen = []

    @pytest.mark.one_in(5)
    @every_case("value", range(10))
    def test(value):
        seen.append(value)

    test()
    assert len(seen) == count


def test_skipped_cases_do_not_skip_the_others():
    @every_case("value", [0, 1])
    def some(value):
        if value == 0:
            pytest.skip("absent")

    some()

    @every_case("value", [0, 1])
    def none(value):
        pytest.skip("absent")

    with pytest.raises(pytest.skip.Exception):
        none()
