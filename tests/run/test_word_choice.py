"""Select tools by words: the user's last texts decide, at a bounded cost."""

import random

import pytest

from toolwire import Request, Tool
from toolwire.ir import Message, Text, ToolCall
from toolwire.run import choose_by_words
from toolwire.run.tools import words as word_choice
from toolwire.run.tools.words import rank_by_words

TOOLS = (
    Tool("getWeather", "Forecast for a city."),
    Tool("send_mail", "Send a message to a person."),
    Tool("files.delete", "Remove a file."),
    Tool("convert", "Change units.", {"type": "object", "properties": {"currency": {"description": "such as EUR"}}}),
    Tool("misc", "Anything else."),
)


def ask(*texts, tools=TOOLS, count=1):
    messages = tuple(Message("user", (Text(text),)) for text in texts)
    return [tool.name for tool in choose_by_words(Request("m", messages), tools, count)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("What is the weather like?", "getWeather"),
        ("please mail my boss", "send_mail"),
        ("delete both files", "files.delete"),
        ("the currency, in EUR", "convert"),
    ],
)
def test_words_of_names_descriptions_and_parameters_decide(text, name):
    for _ in range(5):
        tools = random.sample(TOOLS, len(TOOLS))
        assert ask(text, tools=tools) == [name]


def test_last_text_has_more_weight_than_earlier_ones():
    assert ask("the weather", "send a mail") == ["send_mail"]
    assert ask("the weather", "and now?") == ["getWeather"]


def test_results_and_answers_are_not_part_of_the_query():
    call = ToolCall("c", "getWeather", {})
    messages = (
        Message("user", (Text("delete the file"),)),
        Message("assistant", (Text("mail mail mail"), call)),
        Message("user", (call.result("mail mail mail"),)),
    )
    assert [tool.name for tool in choose_by_words(Request("m", messages), TOOLS, 1)] == ["files.delete"]


@pytest.mark.finding("G23")
def test_chosen_tools_keep_their_order():
    assert ask("mail the weather", count=2) == ["getWeather", "send_mail"]
    assert ask("mail the weather", tools=TOOLS[::-1], count=2) == ["send_mail", "getWeather"]


@pytest.mark.finding("G23")
def test_without_common_words_the_names_decide():
    for text in ("", "hm", "你好"):
        assert set(ask(text, count=2)) == set(ask(text, tools=TOOLS[::-1], count=2)) == {"convert", "files.delete"}


def test_every_tool_fits_or_none_does():
    assert ask("mail", count=5) == [tool.name for tool in TOOLS]
    assert ask("mail", count=0) == []


def test_long_declarations_are_read_up_to_a_budget(monkeypatch):
    read = []
    monkeypatch.setattr(word_choice, "split_words", lambda text: read.append(len(text)) or [])
    tools = [Tool(f"t{number}", f"{number} " + "word " * 4_000) for number in range(2_000)]
    assert len(ask("word", tools=tools, count=10)) == 10
    assert sum(read) <= 900_000
    read.clear()
    assert len(ask("word", tools=tools, count=10)) == 10
    assert sum(read) == len("word"), "the words of the declarations are cached"


def test_search_returns_only_tools_with_a_common_word_the_best_first():
    tools = [Tool("send_mail", "Send an e-mail"), Tool("list_files", "List files"), Tool("mail_rules", "Rules")]
    assert [tool.name for tool in rank_by_words("send a mail to Bob", tools, 5)] == ["send_mail", "mail_rules"]
    assert [tool.name for tool in rank_by_words("send a mail to Bob", tools, 1)] == ["send_mail"]
    assert rank_by_words("weather", tools, 5) == rank_by_words("", tools, 5) == rank_by_words("mail", [], 5) == []


def test_repeated_words_do_not_dominate():
    stuffed = Tool("helper", "refund payment " * 500)
    assert rank_by_words("refund a payment", [stuffed, Tool("refund_payment", "Refund one payment.")], 2)[1] is stuffed
