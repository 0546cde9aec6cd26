"""Media in a tool's return value is media on every wire, wherever it is in the value."""

from collections import deque, namedtuple
from dataclasses import dataclass
from types import MappingProxyType

import msgspec
import pytest

from tables import every_case
from toolwire import Media, Message, Request, Runner, Text, ToolCall, tool
from toolwire.run import Toolbox
from toolwire.run.values.results import result_code, value_result
from toolwire.wire import get, names

CAT = Media("image", "image/png", "aGVsbG8h" * 20)
DOG = Media("image", "image/jpeg", "d29ybGQh" * 20)
CALL = ToolCall("c1", "look", {})
Pair = namedtuple("Pair", "note image")


@dataclass
class Photo:
    title: str
    image: Media


class Album(msgspec.Struct):
    photos: list[Media]


def returned(value):
    return value_result(CALL, value).parts


@pytest.mark.finding("LE2")
@every_case(
    ("value", "parts"),
    [
        (["see", CAT], (Text("see"), CAT)),
        (("see", CAT, "and", DOG), (Text("see"), CAT, Text("and"), DOG)),
        ([Text("see"), CAT], (Text("see"), CAT)),
        (["one", 2, {"three": 3}, CAT], (Text('one\n2\n{"three":3}'), CAT)),
        ([Text("a"), Text("b")], (Text("a"), Text("b"))),
        ((Text("a"), "b"), (Text("a"), Text("b"))),
        (Text("a"), (Text("a"),)),
        (CAT, (CAT,)),
        ([Text("a"), "b", CAT], (Text("a"), Text("b"), CAT)),
        ([None, CAT, True], (Text("null"), CAT, Text("true"))),
        ([["a", CAT], ["b", DOG]], (Text('["a","[image 1]"]'), CAT, Text('["b","[image 2]"]'), DOG)),
        ({"note": "see", "image": CAT}, (Text('{"note":"see","image":"[image 1]"}'), CAT)),
        ([CAT, {"of": [Text("x"), DOG]}], (CAT, Text('{"of":["x","[image 2]"]}'), DOG)),
        (Photo("Tom", CAT), (Text('{"title":"Tom","image":"[image 1]"}'), CAT)),
        (Album([CAT, DOG]), (Text('{"photos":["[image 1]","[image 2]"]}'), CAT, DOG)),
        (Pair("see", CAT), (Text("see"), CAT)),
        (["\udc80", CAT], (Text("?"), CAT)),
        ([{"\udc80": "\udc80"}, CAT], (Text(r"{'\udc80': '\udc80'}"), CAT)),
    ],
)
def test_media_anywhere_in_a_value_becomes_a_part(value, parts):
    assert returned(value) == parts


@pytest.mark.finding("LE2")
@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (deque(["see", CAT]), (Text("see"), CAT)),
        ({"a": "see", "b": CAT}.values(), (Text("see"), CAT)),
        ({"b": CAT}.items(), (Text('["b","[image 1]"]'), CAT)),
        ({"all": deque(["see", CAT])}, (Text('{"all":["see","[image 1]"]}'), CAT)),
        ([{"a": CAT}.values(), DOG], (Text('["[image 1]"]'), CAT, DOG)),
        ({"all": MappingProxyType({"a": CAT})}, (Text('{"all":{"a":"[image 1]"}}'), CAT)),
    ],
)
def test_media_in_a_deque_or_a_view_becomes_a_part(value, parts):
    assert returned(value) == parts


def test_deque_and_views_without_media_are_json():
    value = {"queue": deque([1, "a"]), "keys": {"b": 1}.keys(), "map": MappingProxyType({"c": deque()})}
    assert value_result(CALL, value).structured == {"queue": [1, "a"], "keys": ["b"], "map": {"c": []}}


@pytest.mark.finding("LE2")
def test_media_in_a_pydantic_model_becomes_a_part():
    pydantic = pytest.importorskip("pydantic")

    class Picture(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        title: str
        image: Media

    class Pictures(pydantic.BaseModel):
        pictures: list[Picture]

    cat = Picture(title="Tom", image=CAT)
    text = '{"title":"Tom","image":"[image 1]"}'
    assert returned(cat) == returned([cat]) == (Text(text), CAT)
    assert returned({"cat": cat}) == (Text(f'{{"cat":{text}}}'), CAT)
    assert returned(Pictures(pictures=[cat])) == (Text(f'{{"pictures":[{text}]}}'), CAT)


@pytest.mark.finding("LE2")
def test_media_in_an_attrs_object_becomes_a_part():
    attrs = pytest.importorskip("attrs")

    @attrs.define
    class Frame:
        title: str
        image: Media

    assert returned([Frame("Tom", CAT)]) == (Text('{"title":"Tom","image":"[image 1]"}'), CAT)


def test_pydantic_model_that_cannot_be_serialised_is_an_error():
    pydantic = pytest.importorskip("pydantic")

    class Holder(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        value: object

    with pytest.raises(ValueError, match="Unable to serialize"):
        value_result(CALL, Holder(value=object()))


@pytest.mark.parametrize("value", [["see", {"part": "media"}], {"part": "media", "kind": "image", "data": "aGk="}])
def test_json_that_looks_like_media_stays_json(value):
    assert value_result(CALL, value).structured == value


def show_list() -> list:
    """Show."""
    return ["see", CAT]


def show_generator():
    """Show."""
    yield "see"
    yield CAT


async def show_async_generator():
    """Show."""
    yield "see"
    yield CAT


@pytest.mark.finding("LE2")
@every_case("function", [show_list, show_generator, show_async_generator])
@every_case("wire", names())
def test_media_of_a_function_is_sent_as_on_the_wire(function, wire):
    runner = Runner(Toolbox(tool(effect="read")(function)))
    (result,) = runner.run_sync([ToolCall("c1", function.__name__, {})])
    assert result_code(result) == "ok"
    explicit = msgspec.structs.replace(result, parts=(Text("see"), CAT), structured=None)

    def encode(result):
        call = ToolCall("c1", function.__name__, {})
        messages = (Message("user", (Text("Hi"),)), Message("assistant", (call,)), Message("user", (result,)))
        return get(wire).encode_request(Request("m", messages))

    body = encode(result).body
    assert body == encode(explicit).body
    texts = [text for text in strings(body) if CAT.data in text]
    assert all(text.endswith(CAT.data) and not text.startswith(("[", "{")) for text in texts)


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)
