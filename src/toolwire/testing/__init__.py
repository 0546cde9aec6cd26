"""Test support: compare canonical values, cut streams, check a wire or a text format.

from toolwire.testing import load_vectors, same, wire_checks

@pytest.mark.parametrize("check", wire_checks(my_codec, load_vectors("vectors.json")), ids=str)
def test_conformance(check):
    check()
"""

from typing import TYPE_CHECKING

from .chunks import bytewise, every_split, random_chunks
from .compare import differences, plain, same
from .models import ScriptedModel, says
from .text_suite import text_checks
from .text_vectors import ExpectedCall, TextVector, load_text_vectors
from .vectors import Vector, load_vectors
from .wire_suite import Check, wire_checks

__all__ = [
    "Check",
    "ExpectedCall",
    "PartialReply",
    "RawReply",
    "Recorded",
    "ScriptedModel",
    "TextVector",
    "Trace",
    "Upstream",
    "Vector",
    "bytewise",
    "differences",
    "every_split",
    "load_text_vectors",
    "load_trace",
    "load_vectors",
    "plain",
    "random_chunks",
    "same",
    "says",
    "script_of",
    "text_checks",
    "wire_checks",
]

if TYPE_CHECKING:
    from .traces import Trace, load_trace, script_of
    from .upstream import PartialReply, RawReply, Recorded, Upstream


def __getattr__(name: str) -> object:
    """Load the scripted provider, which needs an event loop, and the recordings on first use."""
    if name in ("PartialReply", "RawReply", "Recorded", "Upstream"):
        from . import upstream

        return getattr(upstream, name)
    if name in ("Trace", "load_trace", "script_of"):
        from . import traces

        return getattr(traces, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
