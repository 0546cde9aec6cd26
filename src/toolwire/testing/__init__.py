"""Test agents, clients, tools and codecs: scripted models, servers, assertions, checks.

from toolwire.testing import load_vectors, same, wire_checks

@pytest.mark.parametrize("check", wire_checks(my_codec, load_vectors("vectors.json")), ids=str)
def test_conformance(check):
    check()
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .assertions import (
        ExpectedToolCall,
        assert_called,
        assert_calls,
        assert_lossless,
        assert_not_called,
        assert_same,
        differences,
        plain,
        same,
    )
    from .bodies import Violation, check_body
    from .conformance import Check, text_checks, wire_checks
    from .models import ScriptedModel, says
    from .preservation import check_preservation
    from .stream_checks import bytewise, every_split, random_chunks
    from .tool_tests.cases import CallCase, generate_cases, generate_invalid
    from .tool_tests.checks import TOOL_CHECKS, FaultCheck, ToolFinding
    from .tool_tests.mcp_tests import check_server_tools
    from .tool_tests.python_tests import check_python_tools
    from .tool_tests.report import ToolTestReport, ToolTestResult
    from .tool_tests.settings import ToolTestSettings
    from .traces import ExchangeTrace, ReplayDifference, RunTrace, load_run, load_trace, replay_run, script_of
    from .upstream import PartialReply, RawReply, Recorded, Upstream
    from .vectors import ExpectedCall, TextVector, Vector, load_text_vectors, load_vectors
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "assertions": (
                "ExpectedToolCall",
                "assert_called",
                "assert_calls",
                "assert_lossless",
                "assert_not_called",
                "assert_same",
                "differences",
                "plain",
                "same",
            ),
            "bodies": ("Violation", "check_body"),
            "stream_checks": ("bytewise", "every_split", "random_chunks"),
            "models": ("ScriptedModel", "says"),
            "conformance": ("Check", "text_checks", "wire_checks"),
            "vectors": ("ExpectedCall", "TextVector", "Vector", "load_text_vectors", "load_vectors"),
            "tool_tests.cases": ("CallCase", "generate_cases", "generate_invalid"),
            "tool_tests.checks": ("FaultCheck", "TOOL_CHECKS", "ToolFinding"),
            "tool_tests.mcp_tests": ("check_server_tools",),
            "tool_tests.python_tests": ("check_python_tools",),
            "tool_tests.report": ("ToolTestReport", "ToolTestResult"),
            "tool_tests.settings": ("ToolTestSettings",),
            "preservation": ("check_preservation",),
            "traces": (
                "ExchangeTrace",
                "ReplayDifference",
                "RunTrace",
                "load_run",
                "load_trace",
                "replay_run",
                "script_of",
            ),
            "upstream": ("PartialReply", "RawReply", "Recorded", "Upstream"),
        },
    )

__all__ = [
    "CallCase",
    "Check",
    "ExchangeTrace",
    "ExpectedCall",
    "ExpectedToolCall",
    "FaultCheck",
    "PartialReply",
    "RawReply",
    "Recorded",
    "ReplayDifference",
    "RunTrace",
    "ScriptedModel",
    "TOOL_CHECKS",
    "TextVector",
    "ToolFinding",
    "ToolTestReport",
    "ToolTestResult",
    "ToolTestSettings",
    "Upstream",
    "Vector",
    "Violation",
    "assert_called",
    "assert_calls",
    "assert_lossless",
    "assert_not_called",
    "assert_same",
    "bytewise",
    "check_body",
    "check_preservation",
    "check_python_tools",
    "check_server_tools",
    "differences",
    "every_split",
    "generate_cases",
    "generate_invalid",
    "load_run",
    "load_text_vectors",
    "load_trace",
    "load_vectors",
    "plain",
    "random_chunks",
    "replay_run",
    "same",
    "says",
    "script_of",
    "text_checks",
    "wire_checks",
]
