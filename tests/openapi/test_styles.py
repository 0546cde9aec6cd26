"""The styles of parameters, after the table of the OpenAPI Specification (3.1.1, "Style Examples")."""

import pytest

from tables import every_case
from toolwire.ir import EncodeError
from toolwire.openapi.encoding import cookie_pairs, header_text, path_text, query_pairs

ARRAY = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}


@pytest.mark.parametrize(
    ("style", "explode", "text", "array", "mapping"),
    [
        ("matrix", False, ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"),
        ("matrix", True, ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"),
        ("label", False, ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
        ("label", True, ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
        ("simple", False, "blue", "blue,black,brown", "R,100,G,200,B,150"),
        ("simple", True, "blue", "blue,black,brown", "R=100,G=200,B=150"),
    ],
)
def test_path_styles(style, explode, text, array, mapping):
    assert [path_text("color", value, style, explode=explode) for value in ("blue", ARRAY, OBJECT)] == [
        text,
        array,
        mapping,
    ]


@pytest.mark.parametrize(
    ("style", "explode", "array", "mapping"),
    [
        ("form", False, "color=blue,black,brown", "color=R,100,G,200,B,150"),
        ("form", True, "color=blue&color=black&color=brown", "R=100&G=200&B=150"),
        ("spaceDelimited", False, "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"),
        ("pipeDelimited", False, "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"),
        (
            "deepObject",
            True,
            "color%5B0%5D=blue&color%5B1%5D=black&color%5B2%5D=brown",
            "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150",
        ),
    ],
)
def test_query_styles(style, explode, array, mapping):
    for value, expected in ((ARRAY, array), (OBJECT, mapping)):
        pairs = query_pairs("color", value, style, explode=explode)
        assert "&".join(f"{key}={text}" for key, text in pairs) == expected


def test_nested_deep_object():
    pairs = list(query_pairs("f", {"a": {"b": [1, 2]}, "c": True, "d": None}, "deepObject", explode=True))
    assert pairs == [("f%5Ba%5D%5Bb%5D%5B0%5D", "1"), ("f%5Ba%5D%5Bb%5D%5B1%5D", "2"), ("f%5Bc%5D", "true")]
    deep = {}
    for _ in range(30):
        deep = {"a": deep or 1}
    with pytest.raises(EncodeError, match="nested"):
        list(query_pairs("f", deep, "deepObject", explode=True))


def test_delimiters_inside_values_are_encoded():
    assert path_text("c", ["a,b", "c"], "simple", explode=False) == "a%2Cb,c"
    assert list(query_pairs("c", ["a,b|c d", "e&f"], "form", explode=False)) == [("c", "a%2Cb%7Cc%20d,e%26f")]


def test_allow_reserved_never_permits_characters_that_end_a_value():
    ((_, text),) = query_pairs("q", "a/b:c?d&e=f#g+h[i]", "form", explode=True, allow_reserved=True)
    assert text == "a/b:c?d%26e%3Df%23g%2Bh%5Bi%5D"


@every_case("value", [None, "", [], {}, ["a", ""], "..", ".", "a/..", "..\\a", "/", "%2e%2e", "..;/a"])
def test_path_values_that_change_the_path_are_refused(value):
    with pytest.raises(EncodeError):
        path_text("id", value, "simple", explode=False)


def test_header_styles():
    assert header_text(ARRAY, explode=False) == "blue,black,brown"
    assert header_text(OBJECT, explode=False) == "R,100,G,200,B,150"
    assert header_text(OBJECT, explode=True) == "R=100,G=200,B=150"
    for value in (["a,b", "c"], "a\r\nb", "a\x00", " a", "ä"):
        with pytest.raises(EncodeError):
            header_text(value, explode=False)


def test_cookie_values_cannot_end_their_cookie():
    assert list(cookie_pairs("c", "a; admin=1", explode=True)) == [("c", "a%3B%20admin%3D1")]


def test_numbers_and_booleans():
    values = [(1.0, "1"), (1.5, "1.5"), (10**20, "100000000000000000000"), (True, "true"), (1e300, "1e300")]
    for value, expected in values:
        assert list(query_pairs("n", value, "form", explode=True)) == [("n", expected)]
