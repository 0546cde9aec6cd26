"""The names that are relied on from outside, and what importing them costs."""

import subprocess
import sys

import pytest

import toolwire


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_all_is_complete_and_sorted():
    assert toolwire.__all__ == sorted(toolwire.__all__)
    assert len(toolwire.__all__) <= 30
    for name in toolwire.__all__:
        assert getattr(toolwire, name) is not None
    assert set(toolwire.__all__) <= set(dir(toolwire))


def test_unknown_attribute_raises():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        toolwire.nope


@pytest.mark.parametrize("name", sorted(set(toolwire.__all__) - {"wire"}))
def test_every_public_name_has_a_docstring(name):
    assert getattr(toolwire, name).__doc__


def test_import_loads_no_heavy_modules():
    heavy = "asyncio msgspec pydantic jiter typing re httpx numpy torch importlib.metadata".split()
    program = f"import sys, toolwire; print([m for m in {heavy} if m in sys.modules])"
    bare = f"import sys; print([m for m in {heavy} if m in sys.modules])"
    assert run(program) == run(bare)


def test_translation_loads_only_needed_modules():
    program = """
import sys, toolwire
toolwire.translate({"model": "m", "messages": [{"role": "user", "content": "x"}]}, source="openai_chat", target="anthropic")
print([m for m in ("asyncio", "pydantic", "socket", "importlib.metadata", "toolwire.wire.gemini", "toolwire.testing") if m in sys.modules])
"""
    assert run(program) == "[]\n"
