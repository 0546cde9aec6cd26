"""The error tree, and what every error carries."""

import inspect

import toolwire
from tables import every_case
from toolwire.ir import errors
from toolwire.ir.errors import ConfigError, ProtocolError, ToolwireError, TruncatedStream
from toolwire.ir.losses import LossError
from toolwire.ir.response import UpstreamError

DEFINED = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
ERRORS = [*DEFINED, LossError, UpstreamError]


def test_module_docstring_names_every_error():
    drawn = errors.__doc__
    for error in ERRORS:
        assert error.__name__ in drawn


def test_every_error_is_a_toolwire_error():
    for error in ERRORS:
        assert issubclass(error, ToolwireError)


def test_error_message_has_pointer_and_hint():
    error = ProtocolError("expected a string", pointer="/name", hint="quote it")
    assert str(error.within("tools", 0)) == "expected a string at /tools/0/name (quote it)"
    assert error.status == 400
    assert TruncatedStream("x").status == 502


def test_pointer_escapes_slash_and_tilde():
    assert ConfigError("x").within("a/b", "c~d").pointer == "/a~1b/c~0d"


def test_a_loss_error_lists_all_losses():
    losses = [toolwire.Loss("/a", "x", "dropped", "warning", "why"), toolwire.Loss("/b", "y", "moved", "error", "why")]
    error = LossError(losses)
    assert error.losses == tuple(losses)
    assert "and 1 more" in str(error)


def test_upstream_error_has_the_fault_and_its_status():
    fault = toolwire.ir.Fault("rate_limit", "slow down", 429)
    error = UpstreamError(fault)
    assert (error.fault, error.status) == (fault, 429)


@every_case("error", ERRORS)
def test_every_error_has_a_docstring(error):
    assert inspect.getdoc(error)
