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
    from .assertions import ExpectedToolCall as ExpectedToolCall
    from .assertions import assert_called as assert_called
    from .assertions import assert_calls as assert_calls
    from .assertions import assert_lossless as assert_lossless
    from .assertions import assert_not_called as assert_not_called
    from .assertions import assert_same as assert_same
    from .assertions import differences as differences
    from .assertions import plain as plain
    from .assertions import same as same
    from .bodies import Violation as Violation
    from .bodies import check_body as check_body
    from .conformance import Check as Check
    from .conformance import text_checks as text_checks
    from .conformance import wire_checks as wire_checks
    from .models import ScriptedModel as ScriptedModel
    from .models import says as says
    from .preservation import check_preservation as check_preservation
    from .stream_checks import bytewise as bytewise
    from .stream_checks import every_split as every_split
    from .stream_checks import random_chunks as random_chunks
    from .tool_tests.cases import CallCase as CallCase
    from .tool_tests.cases import generate_cases as generate_cases
    from .tool_tests.cases import generate_invalid as generate_invalid
    from .tool_tests.checks import TOOL_CHECKS as TOOL_CHECKS
    from .tool_tests.checks import FaultCheck as FaultCheck
    from .tool_tests.checks import ToolFinding as ToolFinding
    from .tool_tests.mcp_tests import check_server_tools as check_server_tools
    from .tool_tests.python_tests import check_python_tools as check_python_tools
    from .tool_tests.report import ToolTestReport as ToolTestReport
    from .tool_tests.report import ToolTestResult as ToolTestResult
    from .tool_tests.settings import ToolTestSettings as ToolTestSettings
    from .traces import ExchangeTrace as ExchangeTrace
    from .traces import ReplayDifference as ReplayDifference
    from .traces import RunTrace as RunTrace
    from .traces import load_run as load_run
    from .traces import load_trace as load_trace
    from .traces import replay_run as replay_run
    from .traces import script_of as script_of
    from .upstream import PartialReply as PartialReply
    from .upstream import RawReply as RawReply
    from .upstream import Recorded as Recorded
    from .upstream import Upstream as Upstream
    from .vectors import ExpectedCall as ExpectedCall
    from .vectors import TextVector as TextVector
    from .vectors import Vector as Vector
    from .vectors import load_text_vectors as load_text_vectors
    from .vectors import load_vectors as load_vectors
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "assertions": (
                "ExpectedToolCall assert_called assert_calls assert_lossless assert_not_called assert_same "
                "differences plain same"
            ),
            "bodies": "Violation check_body",
            "conformance": "Check text_checks wire_checks",
            "models": "ScriptedModel says",
            "preservation": "check_preservation",
            "stream_checks": "bytewise every_split random_chunks",
            "tool_tests.cases": "CallCase generate_cases generate_invalid",
            "tool_tests.checks": "TOOL_CHECKS FaultCheck ToolFinding",
            "tool_tests.mcp_tests": "check_server_tools",
            "tool_tests.python_tests": "check_python_tools",
            "tool_tests.report": "ToolTestReport ToolTestResult",
            "tool_tests.settings": "ToolTestSettings",
            "traces": "ExchangeTrace ReplayDifference RunTrace load_run load_trace replay_run script_of",
            "upstream": "PartialReply RawReply Recorded Upstream",
            "vectors": "ExpectedCall TextVector Vector load_text_vectors load_vectors",
        },
    )
