"""One suite over all text formats; it names none of them."""

import pytest

from places import TESTS
from tables import every_case
from toolwire.ir import ConfigError
from toolwire.testing import load_text_vectors, text_checks
from toolwire.text import names

VECTORS = TESTS / "vectors" / "text"


def _vectors(name):
    path = VECTORS / f"{name}.json"
    return load_text_vectors(path) if path.exists() else []


@pytest.mark.finding("TX4", "TX9")
@pytest.mark.one_in(7)
@every_case("name", names())
def test_text_format_passes_the_suite(name):
    failed = []
    for check in text_checks(name, _vectors(name)):
        try:
            check()
        except AssertionError as error:
            failed.append(f"{check}: {error}")
    assert not failed, "\n".join(failed)


def test_a_format_without_vectors_fails_the_suite():
    with pytest.raises(AssertionError, match="too few vectors"):
        for check in text_checks("hermes", []):
            check()


def test_every_vector_file_belongs_to_a_format():
    assert sorted(path.stem for path in VECTORS.glob("*.json")) == names()


def test_a_vector_without_a_source_is_refused(tmp_path):
    path = tmp_path / "v.json"
    path.write_text('{"tools": {}, "vectors": [{"name": "x", "source": " ", "text": ""}]}')
    with pytest.raises(ConfigError, match="has no source"):
        load_text_vectors(path)


@pytest.mark.parametrize("fault", ["content", "calls", "diagnostics"])
def test_wrong_expectation_fails_the_suite(fault):
    right = next(vector for vector in _vectors("hermes") if vector.calls)
    wrong = {"content": "x", "calls": (), "diagnostics": ("malformed",)}
    import msgspec

    vector = msgspec.structs.replace(right, **{fault: wrong[fault]})
    with pytest.raises(AssertionError, match=fault if fault != "calls" else "call"):
        for check in text_checks("hermes", [vector] * 10):
            check()
