"""Suggestions for unknown names come from an index whose queries cost the same for any number of names (X8)."""

import threading
from difflib import get_close_matches
from functools import cache

import pytest

import toolwire
from tables import every_case
from toolwire import Runner, Toolbox, ToolCall
from toolwire.ir.tools import Tool
from toolwire.run.tools.suggestions import NameIndex
from toolwire.run.tools.toolbox import Entry
from work_counter import count_work

VERBS = ("get", "list", "create", "delete", "update", "search")
NOUNS = ("weather", "order", "invoice", "customer", "message", "folder")


def make_names(count):
    return [f"{VERBS[n % 6]}_{NOUNS[n // 6 % 6]}_{n}" for n in range(count)]


@cache
def index_of(count):
    return NameIndex(make_names(count))


@pytest.mark.finding("X8")
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("get_wether_36", "get_weather_36"),
        ("list_folder_3061", "list_folder_3061"[:-1] + "1"),
        ("crate_invoice_7", "create_invoice_7"),
        ("updateorder_4000", "update_order_4000"),
        ("DELETE_CUSTOMER_2001", "delete_customer_2001"),
    ],
)
def test_a_name_with_an_error_is_found_among_many(given, wanted):
    wanted_number = int(wanted.rpartition("_")[2])
    names = make_names(5000)
    names[wanted_number] = wanted
    assert wanted in NameIndex(names).similar(given)


@pytest.mark.finding("LE8")
def test_names_are_found_in_any_case_and_the_exact_case_comes_first():
    for others in ([], make_names(5000)):
        assert NameIndex(["send", *others]).similar("SEND")[0] == "send"
        assert NameIndex(["GetWeather", *others]).similar("getweather")[0] == "GetWeather"
        assert NameIndex(["send", "Send", "SEND", *others]).similar("SEND", 2) == ["SEND", "send"]
        assert NameIndex(["send", "Send", *others]).similar("Sned", 2) == ["send", "Send"]


@pytest.mark.finding("X8")
def test_few_names_give_the_suggestions_of_difflib():
    names = ["get_weather", "send_mail", "edit", "add", "exit"]
    for given in ("get_wether", "mail", "eidt", "ad", "zzz", ""):
        assert NameIndex(names).similar(given) == get_close_matches(given, names, 3, 0.4)


@pytest.mark.finding("X8")
@every_case("given", ["get_wether_36", "get_order_", "x" * 100_000, "get_" * 25_000, "", "\ud800"])
def test_the_work_of_a_query_does_not_grow_with_the_number_of_names(given):
    small, large = map(index_of, (2_000, 40_000))
    small.similar("warm up the imports")
    assert count_work(lambda: large.similar(given)) <= 2 * count_work(lambda: small.similar(given)) + 200


@pytest.mark.finding("X8")
def test_a_query_reads_a_bounded_part_of_the_index(monkeypatch):
    read = []

    class Counting(toolwire.run.tools.suggestions.Counter):
        def update(self, numbers=()):
            numbers = list(numbers or ())
            read.append(len(numbers))
            super().update(numbers)

    index = NameIndex(f"aaaa_{n % 7}" for n in range(50_000))
    monkeypatch.setattr(toolwire.run.tools.suggestions, "Counter", Counting)
    assert index.similar("aaaa_9")
    assert 0 < sum(read) <= 4_000


def test_a_long_name_is_suggested_in_full():
    name = "get_" + "weather_" * 12 + "report"
    assert NameIndex([name, "other"]).similar(name[:-1]) == [name]


@pytest.mark.finding("X8")
def test_the_index_is_built_by_the_first_unknown_name_and_off_the_event_loop(monkeypatch):
    threads, similar_names = [], Toolbox.similar_names

    def recording(box, name):
        threads.append(threading.current_thread().name)
        return similar_names(box, name)

    monkeypatch.setattr(Toolbox, "similar_names", recording)
    runner = Runner(*(Entry(Tool(name, effect="read"), print) for name in make_names(1000)))
    assert runner.box._index is None
    (result,) = runner.run_sync([ToolCall("1", "get_wether_36", {})])
    runner.close()
    assert "Did you mean get_weather_36" in result.text
    assert [name.startswith("toolwire_") for name in threads] == [True]


def test_only_one_thread_builds_the_index_and_others_do_not_wait():
    box = Toolbox(*(Entry(Tool(name, effect="read"), print) for name in make_names(100)))
    box._index_builds["build"] = object()  # another thread is building it
    assert box.similar_names("get_wether_36") == []
