"""The quick path for the usual parts of Gemini messages reads them as the general one."""

import itertools

from tables import every_case
from toolwire.ir import ProtocolError
from toolwire.wire.gemini.parts import _read_any_part, read_part

CALLS = [
    None,
    3,
    {},
    {"name": "f"},
    {"name": "f", "args": {}},
    {"id": "", "name": "f", "args": {"x": 1}},
    {"id": "a", "name": "f", "args": None},
    {"id": "a", "name": "f", "args": {"x": 1}},
]
RESULTS = [
    None,
    {},
    {"id": "a", "name": "f", "response": {"output": ""}},
    {"id": "a", "name": "f", "response": {"output": "x"}},
]
PARTS = [
    {},
    *({"functionCall": call} for call in CALLS),
    *({"functionResponse": result} for result in RESULTS),
    *({"text": text} for text in ("a", "", None, 3)),
]
SIGNATURES = [{}, *({"thoughtSignature": signature} for signature in ("s", "", None, 3))]


def read(reader, raw):
    try:
        return reader(raw)
    except ProtocolError as error:
        return str(error), error.pointer


@every_case(("part", "signature"), list(itertools.product(PARTS, SIGNATURES)))
def test_usual_parts_are_read_as_any_part(part, signature):
    raw = {**part, **signature}
    assert read(read_part, raw) == read(_read_any_part, raw)
