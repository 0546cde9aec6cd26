"""Reading lists of JSON values."""

import pytest

from toolwire.ir import ProtocolError
from toolwire.ir.pointer import nearest_existing
from toolwire.wire.fields import decode_list, read_string


@pytest.mark.finding("Z3")
def test_an_error_in_a_nested_list_is_located_without_decoding_anything_twice():
    decoded = []

    def leaf(value):
        decoded.append(value)
        return read_string(value, "text")

    good, bad = {"text": "a"}, {"text": 1}
    document = {"rows": [{"cells": [{"parts": [good, good]}]}, {"cells": [{"parts": [good]}, {"parts": [good, bad]}]}]}
    with pytest.raises(ProtocolError, match="expected a string") as caught:
        decode_list(
            document, "rows", lambda row: decode_list(row, "cells", lambda cell: decode_list(cell, "parts", leaf))
        )
    assert caught.value.pointer == "/rows/1/cells/1/parts/1/text"
    assert len(decoded) == 5


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", ""),
        ("/a/0/b~1c", "/a/0/b~1c"),
        ("/a/0/b~1c/x", "/a/0/b~1c"),
        ("/a/7/x", "/a"),
        ("/a/x", "/a"),
        ("/none/0", ""),
    ],
)
def test_pointer_is_shortened_to_the_nearest_existing_value(pointer, found):
    assert nearest_existing({"a": [{"b/c": 1}]}, pointer) == found
