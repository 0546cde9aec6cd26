"""The model in a multipart body: found under every chunking; a body with two readings is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.gateway.relay.multipart import InvalidMultipart, MultipartScan, find_boundary

BODY = (
    b'--bnd\r\ncontent-disposition: form-data; name="file"; filename="a.bin"\r\ncontent-type: x/y\r\n\r\n'
    b"ab\r\n--bn\r\ncd\n--bn\r\n"
    b'--bnd\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
    b'--bnd\r\nContent-Disposition: form-data; name="empty"\r\n\r\n\r\n--bnd--\r\n'
)
AMBIGUOUS = {
    "a delimiter after a bare line feed": BODY.replace(b"cd\n", b"cd\n--bnd\r\n"),
    "a second model": BODY.replace(b'"empty"', b'"model"'),
    "text before the first delimiter": b"x" + BODY,
    "no last delimiter": BODY[:-6],
    "a part without content": BODY.replace(b"whisper-1\r\n", b""),
    "a name without quotation marks": BODY.replace(b'name="empty"', b"name=empty"),
    "an escaped name": BODY.replace(b'name="empty"', b'name="mode\\l"'),
    "two dispositions": BODY.replace(b"content-type: x/y", b'content-disposition: form-data; name="model"'),
    "a folded header": BODY.replace(b"content-type: x/y", b'x: y\r\n name="model"'),
    "a forbidden field": BODY.replace(b'"empty"', b'"api_base"'),
    "a field that may choose a model": BODY.replace(b'"empty"', b'"Model"'),
    "a name after the file's": BODY.replace(b'"a.bin"', b'"a.bin"; name="model"'),
    "a name after the file's in one word": BODY.replace(b'"a.bin"', b"a.bin; name=model"),
    "a name in the file's for parsers of escapes": BODY.replace(b'"a.bin"', rb'"\"; filename="; name=model; x="'),
    "an escaped quotation mark at the end": BODY.replace(b'"a.bin"', rb'"a.bin\\"'),
    "three names of a file": BODY.replace(b'"a.bin"', b'"a"; filename="b"; filename="c"'),
    "a transfer encoding": BODY.replace(b"content-type: x/y", b"Content-Transfer-Encoding: base64"),
    "a field in another charset": BODY.replace(b'"model"', b'"model"\r\ncontent-type: text/plain; charset=UTF-7'),
    "a model that is a file in another charset": BODY.replace(
        b'"model"', b'"model"; filename="m"\r\ncontent-type: text/plain; Charset="utf-16"'
    ),
    "an extended charset": BODY.replace(b'"model"', b"\"model\"\r\ncontent-type: text/plain; charset*=''utf-7"),
    "a field with the charset of all others": BODY.replace(b'"empty"', b'"_charset_"'),
    "other bytes after a delimiter": BODY.replace(b"--bnd\r\nContent-Disposition", b"--bndX\r\nContent-Disposition", 1),
    "a long name of a model": BODY.replace(b"whisper-1", b"w" * 10_000),
    "a long head": BODY.replace(b"x/y", b"x/" + b"y" * 10_000),
}


def scan(pieces, *, may_route=False):
    """Return the model and its span, or the message of the error."""
    reading = MultipartScan(b"bnd", may_route=may_route)
    try:
        for piece in pieces:
            reading.feed(piece)
        reading.close()
    except InvalidMultipart as error:
        return error.message
    return reading.model, reading.span


def pieces_of(body, cuts):
    ends = sorted({*(cut % (len(body) + 1) for cut in cuts), len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


cuts = st.lists(st.integers(min_value=0), max_size=30)


@given(cuts)
def test_model_is_found_under_every_chunking(cut_list):
    model, span = scan(pieces_of(BODY, cut_list))
    assert model == "whisper-1"
    assert BODY[slice(*span)] == b"whisper-1"


def test_model_is_found_byte_by_byte():
    assert scan([BODY[i : i + 1] for i in range(len(BODY))]) == scan([BODY])


@pytest.mark.parametrize("body", AMBIGUOUS.values(), ids=AMBIGUOUS)
@given(cuts)
def test_ambiguous_body_is_refused_under_every_chunking(body, cut_list):
    message = scan(pieces_of(body, cut_list))
    assert isinstance(message, str)
    assert message == scan([body])


@pytest.mark.parametrize(
    "head",
    [
        b"filename=a.bin",
        b"filename=\"a; b.bin\"; filename*=utf-8''a%20b.bin",
        rb'filename="C:\a\b.bin"',
        b'filename=""',
        b'filename="a.csv"\r\nContent-Transfer-Encoding: Binary',
        b'filename="a.csv"\r\ncontent-type: text/csv; charset=windows-1252',
    ],
)
def test_heads_of_files_are_read(head):
    model, span = scan([BODY.replace(b'filename="a.bin"', head)])
    assert model == "whisper-1" and span is not None


def test_field_in_utf_8_is_read():
    model, _ = scan([BODY.replace(b'"model"', b'"model"\r\ncontent-type: text/plain; charset="UTF-8"')])
    assert model == "whisper-1"


def test_every_prefix_is_truncated():
    for end in range(BODY.rindex(b"--")):
        assert isinstance(scan([BODY[:end]]), str)


@given(st.integers(min_value=0, max_value=len(BODY) - 1), st.binary(min_size=1, max_size=3))
def test_mutated_body_is_read_or_refused(place, replacement):
    mutated = BODY[:place] + replacement + BODY[place + 1 :]
    assert scan([mutated]) == scan([mutated[i : i + 1] for i in range(len(mutated))])


def test_files_are_not_held():
    reading = MultipartScan(b"bnd", may_route=True)
    reading.feed(BODY[:100])
    for _ in range(100):
        reading.feed(b"x" * 10_000)
        assert len(reading._rest) < 100


def test_boundary_of_a_content_type():
    assert find_boundary("application/json") is None
    assert find_boundary('Multipart/Form-Data; charset=UTF-8; Boundary="a b"') == b"a b"
    for invalid in (
        "multipart/form-data",
        "multipart/mixed; boundary=x",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=a; boundary*0=b",
        "multipart/form-data; boundary=a; charset=utf-7",
        "multipart/form-data; boundary=a; x=y",
    ):
        with pytest.raises(InvalidMultipart):
            find_boundary(invalid)
