"""The cost of locating an error is bounded, and the error is still located where that is cheap."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.ir import ProtocolError
from toolwire.ir.pointer import join
from toolwire.stream import strict
from toolwire.stream import strict as locate
from toolwire.stream.repair import repair_json
from work_counter import count_work

BUDGET = 1_000
SIZE = 40_000  # items: more than the budget of a search, so that its cost no longer grows


@pytest.fixture
def small_budget(monkeypatch):
    monkeypatch.setattr(locate, "BUDGET", BUDGET)
    monkeypatch.setattr(strict, "MAX_MEMBERS", BUDGET)
    monkeypatch.setattr(strict, "_FEW_MEMBERS", 4 * BUDGET)


def refused(text):
    with pytest.raises(ProtocolError):
        strict.parse(text)


BOUNDED = {
    "bad byte after numbers": lambda n: b"[" + b"1," * n + b"\xff]",
    "bad byte after strings": lambda n: b"[" + b'"a",' * n + b"\xff]",
    "bad byte after escapes": lambda n: b"[" + b'"\\"",' * n + b"\xff]",
    "bad byte after containers": lambda n: b"[" + b"[]," * n + b"\xff]",
    "bad byte after lines": lambda n: b"[1,\n" + b"\n" * n + b"\xff]",
    "bad byte after spaces": lambda n: b"[" + b" " * n + b"\xff]",
    "bad byte in a long string": lambda n: b'["' + b"a" * n + b'\xff"]',
    "bad byte in a long escaped string": lambda n: b'["' + b"\\n" * n + b'\xff"]',
    "lone surrogate": lambda n: b"[" + b"1," * n + b'"\\ud800"]',
    "control character": lambda n: b"[" + b"1," * n + b'"\x00"]',
    "duplicate key": lambda n: b'{"a": [' + b"1," * n + b'1], "a": 1}',
    "too deep": lambda n: b"[" + b"1," * n + b"[" * 300,
    "long integer": lambda n: b"[" + b"1," * n + b"1" * 5000 + b"]",
    "text after the document": lambda n: b"[" + b"1," * n + b"1] x",
    "end of the document": lambda n: b"[" + b"1," * n,
    "members after strings": lambda n: b"[" + b'":",' * n + b'{"a": 1, "a": 2}]',
}


@pytest.mark.one_in(17)
@pytest.mark.finding("Z3")
@pytest.mark.parametrize("document", BOUNDED.values(), ids=BOUNDED)
@pytest.mark.usefixtures("small_budget")
def test_steps_to_report_an_error_do_not_grow_with_a_large_document(document):
    small, double, fourfold = (count_work(lambda n=n: refused(document(n))) for n in (SIZE, 2 * SIZE, 4 * SIZE))
    assert max(double, fourfold) <= small + 2 * locate._WINDOW, (small, double, fourfold)


@pytest.mark.finding("Z3")
def test_bytes_scanned_for_a_pointer_are_read_once(monkeypatch):
    scanned = 0
    next_token = locate._next_token

    def counting(data, position, end):
        nonlocal scanned
        found = next_token(data, position, end)
        scanned += (end if found is None else found.end()) - position
        return found

    monkeypatch.setattr(locate, "_next_token", counting)
    counts = []
    for n in (5_000, 10_000, 20_000):
        scanned = 0
        refused(b"[" + b'"\\"ab", {"x": [1, 2]},' * n + b"\xff]")
        counts.append(scanned)
    assert counts[1] <= 2 * counts[0] + 100 and counts[2] <= 2 * counts[1] + 100, counts


@pytest.mark.finding("Z3")
def test_bytes_scanned_to_count_members_are_read_once(monkeypatch):
    monkeypatch.setattr(strict, "MAX_MEMBERS", BUDGET)
    monkeypatch.setattr(strict, "_FEW_MEMBERS", 4 * BUDGET)
    scanned = 0
    next_key = strict._next_key

    def counting(data, position):
        nonlocal scanned
        found = next_key(data, position)
        scanned += (len(data) if found is None else found.end()) - position
        return found

    monkeypatch.setattr(strict, "_next_key", counting)
    for document in (b'{"a": 1, "b": [' + b'":",' * 9_000 + b"1]}", b"[" + b'":",' * 9_000 + b'{"a": 1}]'):
        scanned = 0
        strict.parse(document)
        assert scanned <= len(document)
    with pytest.raises(ProtocolError, match="more than 1,000 members"):
        strict.parse(b"[" + b'{"a": ":"},' * 1_001 + b"1]")


@pytest.mark.one_in(5)
@pytest.mark.finding("Z3")
@pytest.mark.parametrize("item", [b"1,", b'"1e400",', b"[],", b"1e300,"])
def test_a_number_out_of_range_is_found_in_linear_time_at_any_distance(item):
    def document(n):
        return b"[" + item * n + b"1e400]"

    counts = [count_work(lambda n=n: refused(document(n))) for n in (5_000, 10_000, 20_000)]
    assert counts[1] <= 2 * counts[0] + 100 and counts[2] <= 2 * counts[1] + 100, counts
    with pytest.raises(ProtocolError, match="out of range") as caught:
        strict.parse(document(20_000))
    assert caught.value.pointer == "/20000"


@pytest.mark.finding("Z3")
def test_an_error_after_the_budget_has_line_and_column_but_no_pointer(monkeypatch):
    monkeypatch.setattr(strict, "BUDGET", 10_000)
    with pytest.raises(ProtocolError, match=r"line 2, column 45002\)") as caught:
        strict.parse(b"[\n" + b"[]," * 15_000 + b" \xff]")
    assert caught.value.pointer == ""
    with pytest.raises(ProtocolError, match=r'duplicate key "a" \(line 1, column 45016\)') as caught:
        strict.parse(b'{"a": [' + b"[]," * 15_000 + b'1], "a": 1}')
    assert caught.value.pointer == ""


def test_an_error_in_a_long_flat_array_or_object_has_a_pointer():
    for items in (b"1," * 300_000, b'"a, \\\\",' * 300_000):
        with pytest.raises(ProtocolError) as caught:
            strict.parse(b'{"x": [' + items + b"?]}")
        assert caught.value.pointer == "/x/300000"
    members = b"".join(b'"k%d": "a, \\\\", "n%d": 1.5,' % (n, n) for n in range(20_000))
    with pytest.raises(ProtocolError) as caught:
        strict.parse(b"[0, {" + members + b'"last": ?}]')
    assert caught.value.pointer == "/1/last"


@pytest.mark.finding("Z3")
@pytest.mark.usefixtures("small_budget")
def test_repair_of_a_large_broken_text_locates_its_error_within_the_budget():
    def broken(n):
        with pytest.raises(ProtocolError):
            repair_json("[" + "1," * n + "{]")

    small, double, fourfold = (count_work(lambda n=n: broken(n)) for n in (SIZE, 2 * SIZE, 4 * SIZE))
    assert max(double, fourfold) <= small + 100


@pytest.mark.one_in(5)
@pytest.mark.parametrize("line", [1, 2, 4096, 4097, 100_000])
@pytest.mark.parametrize("column", [1, 2, 5])
def test_the_offset_of_a_line_is_exact(line, column):
    rows = [b"%d" % (number % 7) * (number % 11) for number in range(100_000)]
    data = b"\n".join(rows)
    expected = sum(len(row) + 1 for row in rows[: line - 1]) + column - 1
    assert locate.byte_offset(data, line, column) == expected


@pytest.mark.parametrize(
    ("prefix", "pointer"),
    [
        (b'{"a\\"b": [1, "x\\\\", {"c": ', '/a"b/2/c'),
        (b'{"\\\\": 1, "\\u0061": ', "/a"),
        (b'{"a": {"b": 1}, "c": [[], [1, ', "/c/1/1"),
        (b'{"a": "x, {[\\"", "b": ', "/b"),
        (b'{"a": 1, "cut', "/cut"),
        (b"[1, 2", "/1"),
        (b"", ""),
        (b'"x', ""),
    ],
)
def test_pointer_leads_to_the_value_in_which_a_prefix_ends(prefix, pointer):
    assert locate.pointer_at(prefix) == pointer


@pytest.mark.parametrize("text", ['{"a": [1, {"b": -1e400}]}', '{"x": 1e308, "a": [0, {"b": 1e999, "c": 1e999}]}'])
def test_the_first_number_out_of_range_is_reported(text):
    with pytest.raises(ProtocolError, match="out of range") as caught:
        strict.parse(text)
    assert caught.value.pointer == "/a/1/b"


TEXTS = st.text(alphabet='ab"\\/~,:{}[]\n é', max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)
BAD = "the bad value"


def with_bad_value(value, random):
    """Replace a random leaf by BAD; return the value and the pointer of the leaf."""
    if type(value) in (list, dict) and value:
        key = random.choice(list(value) if type(value) is dict else range(len(value)))
        inner, pointer = with_bad_value(value[key], random)
        changed = dict(value) if type(value) is dict else list(value)
        changed[key] = inner
        return changed, join(key) + pointer
    return BAD, ""


@given(VALUES, st.randoms(use_true_random=False), st.sampled_from([None, 2]))
def test_the_pointer_of_any_syntax_error_is_exact(value, random, indent):
    changed, pointer = with_bad_value(value, random)
    with pytest.raises(ProtocolError) as caught:
        strict.parse(json.dumps(changed, indent=indent, ensure_ascii=False).replace(f'"{BAD}"', "?"))
    assert caught.value.pointer == pointer


@given(VALUES, st.randoms(use_true_random=False))
def test_the_pointer_of_any_number_out_of_range_is_exact(value, random):
    changed, pointer = with_bad_value(value, random)
    with pytest.raises(ProtocolError, match="out of range") as caught:
        strict.parse(json.dumps(changed).replace(f'"{BAD}"', "-1e999"))
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("rest", [b"}0", b"]0", b",0", b"}}", b"]"])
@pytest.mark.parametrize("start", [b"", b"[1,", b'{"a":'])
def test_error_that_is_reported_behind_its_place_has_no_pointer_beyond_the_document(start, rest):
    """The parser reports a truncated escape sequence after the end of its string."""
    with pytest.raises(ProtocolError, match="not JSON"):
        strict.parse(start + b'"\\u"' + rest)
