"""The methods that vLLM calls: those of its classes, of the recording, and of the parsers have the same parameters."""

import json
from pathlib import Path

import pytest

from places import TESTS
from serving_stacks import VLLM_SOURCE, load_vllm, parameters_of
from tables import every_case

load_vllm()
from vllm.parser.engine.parser_engine import ParserEngine  # noqa: E402 - the modules of `load_vllm`
from vllm.reasoning import ReasoningParser  # noqa: E402
from vllm.tool_parsers import ToolParser  # noqa: E402

from toolwire.adapters.vllm_parsers import (  # noqa: E402
    ToolwireParser,
    ToolwireReasoningParser,
    ToolwireToolParser,
)

RECORDED = json.loads((TESTS / "vectors" / "serving_stacks.json").read_text())["vllm"]["classes"]
OWN = {ToolParser: ToolwireToolParser, ReasoningParser: ToolwireReasoningParser, ParserEngine: ToolwireParser}
METHODS = [(base, method) for base in OWN for method in RECORDED[base.__name__]]


@every_case(("base", "method"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_base_class_has_the_recorded_parameters(base, method):
    """With TOOLWIRE_VLLM_SOURCE this compares vLLM itself, else the base classes of the other tests."""
    assert parameters_of(getattr(base, method)) == RECORDED[base.__name__][method]


@every_case(("base", "method"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_parser_accepts_what_vllm_passes(base, method):
    own = parameters_of(getattr(OWN[base], method))
    if method == "__init__":
        assert own.startswith("self, tokenizer, ")
        assert own.endswith("**kwargs")
    else:
        assert own == RECORDED[base.__name__][method]


@pytest.mark.parametrize("base", OWN, ids=lambda base: base.__name__)
def test_every_overridden_method_is_recorded(base):
    overridden = {name for name, value in vars(OWN[base]).items() if callable(value) and hasattr(base, name)}
    public = {name for name in overridden if not name.startswith("_") or name == "__init__"}
    assert public == set(RECORDED[base.__name__])


@pytest.mark.skipif(not VLLM_SOURCE, reason="TOOLWIRE_VLLM_SOURCE does not name a source tree of vLLM")
def test_real_classes_are_compared():
    assert Path(__import__("vllm").__file__).is_relative_to(Path(VLLM_SOURCE).resolve())
