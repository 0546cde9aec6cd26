"""Finding wires by name."""

import pkgutil
import tomllib
from importlib import import_module

import pytest
from msgspec.structs import replace

import toolwire
from places import ROOT
from toolwire.ir import ConfigError
from toolwire.wire import get, names


def test_built_in_wires_are_listed():
    assert toolwire.wire.names() == [
        "anthropic",
        "bedrock",
        "cohere",
        "gemini",
        "gemini_interactions",
        "ollama",
        "openai_chat",
        "openai_responses",
    ]


@pytest.mark.parametrize("name", names())
def test_codec_has_its_registered_name(name):
    codec = get(name)
    assert codec.name == name
    assert get(name) is codec


def test_version_can_be_part_of_the_wire_name():
    assert get("anthropic").version == "2026-10-21"
    assert get("anthropic@2026-10-21") is get("anthropic")
    assert get("anthropic@2023-06-01").version == "2023-06-01"
    with pytest.raises(ConfigError, match="no version") as caught:
        get("anthropic@1999-01-01")
    assert "2023-06-01" in caught.value.hint


@pytest.mark.parametrize("name", names())
def test_codec_cannot_be_changed(name):
    codec = get(name)
    with pytest.raises(AttributeError):
        codec.dialect = "other"
    assert replace(codec, dialect="other").dialect == "other"
    assert codec.dialect != "other"


def test_version_is_another_codec_of_the_same_wire():
    new, old = get("anthropic"), get("anthropic@2023-06-01")
    assert new.versions == {"2023-06-01": old, "2026-10-21": new}
    assert (old.headers, new.headers) == (
        {"anthropic-version": "2023-06-01"},
        {"anthropic-version": "2026-10-21"},
    )
    assert get("gemini").versions == {}


def test_unknown_wire_error_suggests_a_similar_name():
    with pytest.raises(ConfigError) as caught:
        get("openai_caht")
    assert "openai_chat" in caught.value.hint


def test_every_wire_package_is_registered():
    packages = [module.name for module in pkgutil.iter_modules(toolwire.wire.__path__) if module.ispkg]
    codecs = {name: getattr(import_module(f"toolwire.wire.{name}"), "CODEC", None) for name in packages}
    assert sorted(name for name, codec in codecs.items() if codec is not None) == names()
    assert all(codec is get(name) for name, codec in codecs.items() if codec is not None)


def test_pyproject_declares_the_entry_point_groups_and_the_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plugin = {"toolwire": "toolwire.adapters.sglang_plugin:load_plugin"}
    assert project["entry-points"] == {
        "toolwire.wire": {},
        "toolwire.text": {},
        "sglang.srt.plugins": plugin,
        "pytest11": {"toolwire": "toolwire.testing.pytest_plugin"},
    }
    assert project["version"] == toolwire.__version__


class _EntryPoint:
    name = "acme"

    def load(self):
        from toolwire.wire.openai_chat import CODEC

        return replace(CODEC, name="acme")


def test_third_party_wire_is_loaded_from_an_entry_point(monkeypatch):
    import toolwire.wire as registry
    from toolwire.testing import wire_checks

    monkeypatch.setattr(registry, "_entry_points", lambda: {"acme": _EntryPoint()})
    monkeypatch.setattr(registry, "_loaded", {})
    assert "acme" in registry.names()
    assert registry.get("acme").name == "acme"
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert toolwire.translate(body, source="acme", target="gemini").body["contents"]
    assert wire_checks("acme", [])
