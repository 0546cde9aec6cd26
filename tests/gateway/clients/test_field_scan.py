"""Fields of a JSON object that arrives in pieces."""

import itertools
import json
from itertools import pairwise
from random import Random

import pytest

import tables
from tables import every_case
from toolwire.gateway.request.field_scan import CountedObjects, FieldFound, FieldScan, InvalidPiece
from toolwire.ir.errors import ProtocolError
from toolwire.stream.strict import parse_object
from waiting import cpu_guard

NAMES = ("model", "api_key")
NESTED = rb'{"a":"x\"model\":","t":{"model":1,"q":[{"api_key":2}]},"s":"model","\u00e9":1,"v":"\u0041"'


# of pairs of cuts; every single cut is tried
FIRST_STRIDE, SECOND_STRIDE = (7, 11) if tables.selects else (3, 7)


def scan(body, cuts=()):
    """Feed the pieces between the cuts, which are returned unchanged. Return the first field that was found."""
    field_scan = FieldScan(NAMES)
    try:
        for start, end in pairwise([0, *cuts, len(body)]):
            assert field_scan.feed(body[start:end]) == body[start:end]
    except FieldFound as found:
        return found.name
    return None


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (b"", None),
        (b', "model" \n : "b"', "model"),
        (rb',"mod\u0065l":2', ""),
        (b',"' + b"x" * 300 + b'model":1', None),
        (b',"' + b"x" * 300 + b'":1,"api_key":1', "api_key"),
        (b',"model"' + b" " * 300 + b":1", "model"),
        (rb',"m\u006f' + b"x" * 300 + b'":1', None),
        (rb',"x":"' + rb"\\" * 150 + b'","model":1', "model"),
    ],
)
def test_only_fields_of_the_top_level_are_found_at_any_cut(last, expected):
    body = NESTED + last + b"}"
    for first_cut in range(0, len(body) + 1, FIRST_STRIDE):
        for second_cut in range(first_cut, len(body) + 1, SECOND_STRIDE):
            assert scan(body, (first_cut, second_cut)) == expected
    for cut in range(len(body)):
        assert scan(body, (cut,)) == expected
    assert scan(body, range(1, len(body))) == expected


COUNTED_BODIES = [
    (b'{"tools":%b,"m":[{},{},{},{}]}', b'[{"a":{"b":[{},{}]}},{"c":"{{{"}%b]'),
    (b'{"m":[{"tools":[{},{},{},{}]},{},{}], "tools" : %b}', b' [ {} , {"x":[[{}]]} %b ]'),
]


@pytest.mark.finding("LE1")
@pytest.mark.parametrize(("template", "tools"), COUNTED_BODIES)
def test_objects_of_a_field_are_counted_at_any_cut(template, tools):
    for more, expected in ((b"", None), (b",{}", None), (b",{},{}", "tools")):
        body = template % (tools % more)
        for cuts in [(), *((cut,) for cut in range(len(body))), range(1, len(body))]:
            field_scan = FieldScan(NAMES, None, CountedObjects("tools", 3, 3))
            found = None
            try:
                for start, end in pairwise([0, *cuts, len(body)]):
                    field_scan.feed(body[start:end])
            except FieldFound as error:
                found = error.name
            assert found == expected


@pytest.mark.finding("LE1")
@pytest.mark.parametrize("value", [b"null", b'"x"', b"[]", b"{}", b"1"])
def test_objects_after_an_empty_field_are_not_counted(value):
    field_scan = FieldScan(NAMES, None, CountedObjects("tools", 3, 1))
    field_scan.feed(b'{"tools":%b,"messages":[{},{},{}],"x":{"y":[{},{}]}}' % value)


def random_value(random, depth=0):
    kind = random.randrange(7 if depth < 4 else 4)
    if kind == 0:
        return random.choice(["model", "~", "~/x", "\\", '"', "{", "]:", 'a\\"', "é\n", "x" * 300, "\\u0041"])
    if kind <= 3:
        return random.choice([True, None, -5, 0.5e-7])
    if kind == 6:
        return [random_value(random, depth + 1) for _ in range(3)]
    names = ["model", "api_key", "k", "{", '"', "\\", "y" * 300]
    return {random.choice(names): random_value(random, depth + 1) for _ in range(3)}


@every_case("seed", range(10))
def test_random_documents_in_random_pieces(seed):
    random = Random(seed)
    for _ in range(100):
        names = ["k", "{", '"', "\\", "z" * 300, "q", "model"]
        document = {random.choice(names): random_value(random) for _ in range(3)}
        indent, is_ascii = random.choice([None, 1]), random.random() < 0.5
        body = json.dumps(document, indent=indent, ensure_ascii=is_ascii).encode()
        cuts = sorted(random.randrange(len(body) + 1) for _ in range(random.randrange(6)))
        assert scan(body, cuts) == ("model" if "model" in document else None), (body, cuts)


RENAMED = {"max_completion_tokens": "max_tokens"}


def rename(body, cuts=()):
    """Feed the pieces between the cuts, and return the bytes that the scan passes on."""
    field_scan, sent = FieldScan(NAMES, RENAMED), []
    for start, end in pairwise([0, *cuts, len(body)]):
        sent.append(field_scan.feed(body[start:end]))
        assert len(field_scan.held) <= 256
    return b"".join(sent) + field_scan.held


@pytest.mark.parametrize("gap", [b"", b" \n"])
def test_fields_of_the_top_level_are_renamed_at_any_cut(gap):
    start = rb'{"a":"\"max_completion_tokens\":","t":{"max_completion_tokens":1},"s":"max_completion_tokens","long":"'
    start += b"x" * 300 + b'",'
    body = start + b'"max_completion_tokens"' + gap + b':5,"u":["max_completion_tokens"]}'
    expected = start + b'"max_tokens"' + b" " * 11 + gap + b':5,"u":["max_completion_tokens"]}'
    assert len(body) == len(expected)
    for first_cut in range(0, len(body) + 1, FIRST_STRIDE):
        for second_cut in range(first_cut, len(body) + 1, SECOND_STRIDE):
            assert rename(body, (first_cut, second_cut)) == expected
    assert rename(body, range(1, len(body))) == expected


@pytest.mark.parametrize("text", ["~/notes", "~", "~~~ x", "~" + " " * 300, "~" * 300, "x" + " " * 300])
def test_no_byte_of_a_string_is_moved_or_lost_at_any_cut(text):
    body = json.dumps({"a": text, "b": [text, {"c": text}], text: 1, "d": "~"}).encode()
    for first_cut in range(0, len(body) + 1, 1 if len(body) < 200 else 17):
        for second_cut in range(first_cut, len(body) + 1, 1 if len(body) < 200 else 23):
            assert rename(body, (first_cut, second_cut)) == body
    assert rename(body, range(1, len(body))) == body


def test_forbidden_field_after_a_tilde_is_found_at_any_cut():
    body = b'{"x":[{"c":"~1}],","z":1}],"model":"other"}'
    for first_cut in range(len(body)):
        for second_cut in range(first_cut, len(body)):
            with pytest.raises(FieldFound, match="model"):
                rename(body, (first_cut, second_cut))


def test_name_with_many_spaces_before_its_colon_is_renamed_at_any_cut():
    body = b'{"a":1,"max_completion_tokens"' + b" " * 300 + b': 5, "b":2}'
    for cut in range(len(body)):
        sent = rename(body, (cut,))
        assert len(sent) == len(body)
        assert json.loads(sent) == {"a": 1, "max_tokens": 5, "b": 2}


def test_cost_of_escaped_quotes_is_linear_and_names_with_them_are_allowed():
    name = json.dumps('"' * 200_000 + "model")
    body = f'{{"a":{{"model":1,{name}:2,"x\\"model":3}},"b":4}}'.encode()
    with cpu_guard(60):
        assert scan(body) is None
        assert rename(body) == body


@every_case("seed", range(10))
def test_random_documents_are_renamed_in_random_pieces(seed):
    random = Random(seed)
    for _ in range(100):
        document = {random.choice(["k", "{", '"', "z" * 300, "q", "~"]): random_value(random) for _ in range(3)}
        document["max_completion_tokens"] = random_value(random)
        document["u"] = {"max_completion_tokens": "max_completion_tokens"}
        indent, is_ascii = random.choice([None, 1]), random.random() < 0.5
        body = json.dumps(document, indent=indent, ensure_ascii=is_ascii).encode()
        cuts = sorted(random.randrange(len(body) + 1) for _ in range(random.randrange(6)))
        sent = rename(body, cuts)
        assert len(sent) == len(body)
        expected = {RENAMED.get(name, name): value for name, value in document.items()}
        assert json.loads(sent) == expected, (body, cuts)


@pytest.mark.parametrize("names", list(itertools.product(["max_tokens", "max_completion_tokens"], repeat=2)))
def test_two_names_of_one_field_are_refused(names):
    body = f'{{"{names[0]}":1,"x":2,"{names[1]}":3}}'.encode()
    with pytest.raises(FieldFound, match=names[1]):
        rename(body)
    with pytest.raises(FieldFound, match=names[1]):
        rename(body, range(1, len(body)))


@pytest.mark.parametrize(
    "body", [rb'{"a":"\ ","model":1}', b"{'a':1,'model':2}", b'{"a":1/*"*/,"model":1/*"*/}', rb'{"x":\"a\"}']
)
def test_text_that_is_not_json_is_refused(body):
    with pytest.raises(InvalidPiece):
        scan(body)


def test_second_document_is_at_the_top_level():
    assert scan(b'{"a":1} "model":2') == "model"


def check(body, cuts=()):
    """Return whether a whole document is accepted, fed in the pieces between the cuts."""
    field_scan = FieldScan(NAMES)
    try:
        for start, end in pairwise([0, *cuts, len(body)]):
            field_scan.feed(body[start:end])
        field_scan.close()
    except InvalidPiece:
        return False
    return True


def nested(depth):
    return b'{"x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


LONG = b"x" * 300
INVALID = {
    "bracket kinds": b'{"x":[1,2},"y":{"z":1]}',
    "bracket of another kind at the end": b'{"x":[{"y":1}]]',
    "closed too often": b'{"x":1}}',
    "not closed": b'{"x":[{"y":1}]',
    "string not closed": b'{"x":"y}',
    "long string not closed": b'{"x":"' + LONG,
    "control character": b'{"x":"a\x01b"}',
    "line break in a string": b'{"x":"a\nb"}',
    "control character in a long string": b'{"x":"' + LONG + b"\x00" + LONG + b'"}',
    "control character between values": b'{"x":1,\x0b"y":2}',
    "not UTF-8": b'{"x":"a\xffb"}',
    "not UTF-8 in a long string": b'{"x":"' + LONG + b"\xc3" + LONG + b'"}',
    "half a character at the end": b'{"x":1}\xc3',
    "overlong character": b'{"x":"\xc0\x80"}',
    "surrogate as UTF-8": b'{"x":"\xed\xa0\x80"}',
    "escape": rb'{"x":"\q"}',
    "escape of a number": rb'{"x":"\u12g4"}',
    "too deep": nested(202),
    "much too deep": nested(5000),
    "too deep in another piece": b'{"a":' + b"[" * 150 + b'"s",' + b"[" * 60 + b"]" * 60 + b"]" * 150 + b"}",
    "second document": b'{"x":1}{"y":2}',
    "second document inside": b'{"x":{"model":1}}{"y":{}}',
    "text after the document": b'{"x":1} true',
    "string after the document": b'{"x":1} "y"',
    "string after a document with a name": b'{"x":{"model":1}} "y"',
    "array": b'[{"x":1}]',
    "nothing": b"",
    "spaces": b"  ",
}


@pytest.mark.finding("SE8")
@every_case("body", INVALID.values(), ids=INVALID)
def test_invalid_documents_are_refused_at_any_cut_as_by_the_parser(body):
    with pytest.raises(ProtocolError):
        parse_object(body)
    stride = max(1, len(body) // 200)
    assert not check(body)
    assert not check(body, range(1, len(body), stride))
    for cut in range(0, len(body), stride):
        assert not check(body, (cut,)), cut


@pytest.mark.finding("SE8")
@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b' \n{"x" : [ {} , [ ] , {"y":[[1,-2.5e+3]]} ] , "z":null}\r\n ',
        nested(201),
        '{"é":"ü日本\U0001f600' .encode() + LONG + '日"}'.encode(),
        rb'{"x":"\u12aF\\\"","y":"' + LONG + rb'\u12aF\n"}',
        b'{"x":[' + b",".join([b'{"a":[{"b":"c"}]}'] * 500) + b"]}",
    ],
)  # fmt: skip
def test_valid_documents_are_accepted_at_any_cut(body):
    parse_object(body)
    stride = max(1, len(body) // 300)
    for cut in range(0, len(body), stride):
        assert check(body, (cut,)), cut
    assert check(body, range(1, len(body)))


@pytest.mark.finding("SE8")
def test_cost_of_the_checks_is_linear_for_brackets_and_multibyte_characters():
    with cpu_guard(60):
        for unit in (b'{"a":' * 100 + b"1" + b"}" * 100, b"[" * 150 + b"]" * 150, '"日本"'.encode()):
            body = b'{"x":[' + b",".join([unit] * (2_000_000 // len(unit))) + b"]}"
            assert check(body, range(0, len(body), 65_536))
