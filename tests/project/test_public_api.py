"""The public names, the packages that export them, and the cost of importing them."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import toolwire
from places import ROOT
from tables import every_case

PACKAGES = ["", *"asgi audit bridge gateway ir local mcp net openapi run schema stream testing text wire".split()]
REQUIRED = {
    "": "Agent Runner Toolbox ModelClient Policy ToolError open_store",
    "run": "Toolbox Entry Options Policy deny hosts path_jail at_most Budget Session Approve current_call GATES ToolError Transient",
    "net": "Agent Answer Runner ModelClient open_store disk_jail OtelObserver",
    "gateway": "Gateway Settings load_settings parse_settings",
    "mcp": "Server HttpApp McpClient McpServers ServerSpec Login prompt resource",
    "testing": "Upstream ScriptedModel says same load_trace script_of text_checks wire_checks",
    "schema": "lower validator repair_arguments infer_tool",
    "openapi": "toolbox ApiToolbox read_operations load_document",
    "text": "get detect formats",
    "bridge": "prepare translate translate_stream emulate",
}
DEEP_IMPORT = re.compile(r"^\s*(?:from|import) toolwire\.\w+\.[\w.]+", re.MULTILINE)


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def load(package: str):
    return importlib.import_module(f"toolwire.{package}" if package else "toolwire")


@every_case("package", PACKAGES)
def test_all_is_complete_and_sorted(package):
    module = load(package)
    assert list(module.__all__) == sorted(module.__all__)
    assert dir(module) == module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None


@every_case("package", PACKAGES)
def test_type_checkers_see_every_exported_name(package):
    """An import `as` the same name is exported for strict type checkers, which cannot evaluate `__all__`."""
    module = load(package)
    tree = ast.parse(Path(module.__file__).read_text())
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    imported = {alias.name for alias in aliases if alias.asname == alias.name}
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert imported <= set(module.__all__) <= imported | defined


@every_case("package", REQUIRED)
def test_required_names_are_exported(package):
    assert set(REQUIRED[package].split()) <= set(load(package).__all__)


def test_exports_are_not_shadowed_by_modules():
    """Importing a module must not replace an exported function of the same name."""
    for package in PACKAGES:
        folder = Path(load(package).__file__).parent
        modules = {path.stem for path in folder.glob("*.py")}
        assert not modules & set(load(package).__all__), package


def test_unknown_attribute_raises():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        toolwire.nope


@every_case("name", sorted(set(toolwire.__all__) - {"wire"}))
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


@every_case(
    "path",
    [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.py"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_docs_and_examples_import_public_names_only(path):
    """Pages and examples import from `toolwire` or one package level, never from a module below."""
    assert DEEP_IMPORT.findall(path.read_text()) == []
