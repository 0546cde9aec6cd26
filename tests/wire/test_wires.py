"""One suite over all wires; it names none of them."""

import pytest

from places import TESTS
from tables import every_case
from toolwire.testing import load_vectors, wire_checks
from toolwire.wire import names

VECTORS = TESTS / "vectors" / "wire"


def _checks():
    checks = []
    for name in names():
        path = VECTORS / f"{name}.json"
        vectors = load_vectors(path) if path.exists() else []
        checks += [pytest.param(check, id=f"{name}: {check}") for check in wire_checks(name, vectors)]
    return checks


@pytest.mark.one_in(5)
@every_case("check", _checks())
def test_wire_passes_the_suite(check):
    check()


def test_a_wire_without_vectors_fails_the_suite():
    checks = wire_checks("gemini", [])
    with pytest.raises(AssertionError, match="no vectors"):
        for check in checks:
            check()


def test_a_vector_without_a_source_is_refused(tmp_path):
    from toolwire.ir import ConfigError

    path = tmp_path / "v.json"
    path.write_text('[{"name": "x", "source": " ", "kind": "request", "body": {}}]')
    with pytest.raises(ConfigError, match="has no source"):
        load_vectors(path)
