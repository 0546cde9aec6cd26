"""For tests, ours and yours: compare canonical values, cut streams, check a wire.

from toolwire.testing import load_vectors, same, wire_checks

@pytest.mark.parametrize("check", wire_checks(my_codec, load_vectors("vectors.json")), ids=str)
def test_conformance(check):
    check()
"""

from .chunks import bytewise, every_split, random_chunks
from .compare import differences, plain, same
from .upstream import Partly, Raw, Upstream
from .vectors import Vector, load_vectors
from .wire_suite import Check, wire_checks

__all__ = [
    "Check",
    "Partly",
    "Raw",
    "Upstream",
    "Vector",
    "bytewise",
    "differences",
    "every_split",
    "load_vectors",
    "plain",
    "random_chunks",
    "same",
    "wire_checks",
]
