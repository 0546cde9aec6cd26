"""Wrong arguments of an index are reported, and no tool is lost without a report."""

import numpy as np
import pytest

from toolwire import Tool
from toolwire.ir.errors import ConfigError
from toolwire.retrieve import ToolIndex

MAIL, WEATHER = Tool("send_mail", "Send a mail"), Tool("get_weather", "Return the weather", effect="read")


class ConstantEncoder:
    """Returns the same vector for every text, so that everything is similar."""

    name, dimensions = "constant", 2

    def encode(self, texts, progress=None):
        return np.full((len(texts), 2), 0.5**0.5, np.float32)


@pytest.fixture
def index():
    index = ToolIndex()
    index.add([MAIL, WEATHER])
    return index


@pytest.mark.parametrize(
    ("method", "arguments", "options", "message"),
    [
        ("search", ("mail",), {"k": 1.5}, "k must be an integer of at least 1, got 1.5"),
        ("search", ("mail",), {"k": 0}, "k must be an integer of at least 1, got 0"),
        ("search", (None,), {}, "the query must be a text, got None"),
        ("search", ("mail",), {"servers": "shop"}, "servers must be a list, got the text 'shop'"),
        ("search", ("mail",), {"tags": "shop"}, "tags must be a list, got the text 'shop'"),
        ("search", ("mail",), {"effects": ["reed"]}, "effects contains the unknown effect 'reed'"),
        ("remove", ("send_mail",), {}, "names must be a list, got the text 'send_mail'"),
        ("add", (MAIL,), {}, "tools must be a list, got the tool 'send_mail'"),
        ("add", ([print],), {}, "tools must be values of Tool, got <built-in function print>"),
        ("add", ([MAIL],), {"tags": "mail"}, "tags must be a list, got the text 'mail'"),
    ],
)
def test_wrong_arguments_are_refused(index, method, arguments, options, message):
    with pytest.raises(ConfigError) as caught:
        getattr(index, method)(*arguments, **options)
    assert message in str(caught.value)
    assert len(index) == 2


def test_two_tools_with_one_name_are_reported_and_the_first_is_kept():
    index = ToolIndex()
    one, two = Tool("d", "one"), Tool("d", "two", namespace="other")
    change = index.add([one, two, one])
    assert change.added == ("d",)
    assert change.refused == (("d", "an earlier tool of the same list has this name"),)
    assert index.find("d") == one
    change = index.replace_server([one, two])
    assert (change.unchanged, change.removed, len(index)) == (1, (), 1)


@pytest.mark.parametrize("query", ["", " \n"])
def test_empty_query_finds_nothing_with_an_encoder_too(query):
    index = ToolIndex(ConstantEncoder())
    index.add([MAIL, WEATHER])
    assert len(index.search("anything")) == 2
    assert index.search(query) == []


def test_text_in_place_of_an_encoder_is_refused():
    with pytest.raises(ConfigError, match="an encoder has name, dimensions and encode; got 'minilm'"):
        ToolIndex(encoder="minilm")
