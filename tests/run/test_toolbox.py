"""Toolboxes."""

from __future__ import annotations

import types

import pytest

from toolwire import tool
from toolwire.ir.errors import ConfigError
from toolwire.run.tools.toolbox import Entry, Toolbox


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def shout(text: str) -> str:
    """Say it loud."""
    return text.upper()


def test_toolbox_from_functions_and_tools():
    box = Toolbox(add, shout)
    assert [entry.name for entry in box] == ["add", "shout"]
    assert box.find("shout").function("a") == "A"
    assert box.tools[0].effect == "pure"
    assert box.tools[1].effect == "write"


def test_toolbox_can_be_filtered_prefixed_renamed_and_wrapped():
    box = Toolbox(add, shout)
    assert [entry.name for entry in box.filter(lambda one: one.effect == "pure")] == ["add"]
    assert [entry.name for entry in box.prefix("x_")] == ["x_add", "x_shout"]
    assert [entry.name for entry in box.rename({"add": "plus"})] == ["plus", "shout"]
    wrapped = box.wrap(lambda function: lambda **given: ["wrapped", function(**given)])
    assert wrapped.find("add").function(a=1, b=2) == ["wrapped", 3]


def test_duplicate_tool_name_is_rejected():
    with pytest.raises(ConfigError, match="two tools"):
        Toolbox(add, add)
    assert len(Toolbox(add, Toolbox(add).prefix("other_"))) == 2


def test_toolbox_from_a_module():
    module = types.ModuleType("mine")
    shouting = types.FunctionType(shout.__code__, {"__name__": "mine"}, "shout")
    shouting.__module__ = "mine"
    shouting.__annotations__ = {"text": str}
    module.shout = shouting
    assert [entry.name for entry in Toolbox(module)] == ["shout"]
    module.add = add
    assert [entry.name for entry in Toolbox(module)] == ["add"], "once tools are marked, only they count"
    with pytest.raises(ConfigError, match="no functions"):
        Toolbox(types.ModuleType("empty"))


def test_invalid_tools_and_names_are_rejected():
    from toolwire import Tool

    with pytest.raises(ConfigError, match="has no function"):
        Toolbox(Tool("x"))
    with pytest.raises(ConfigError, match="made of functions"):
        Toolbox(3)
    assert len(Toolbox(Entry(Tool("x"), shout))) == 1
    with pytest.raises(ConfigError, match="no tool has the name"):
        Toolbox(add).rename({"nope": "x"})


def test_nearest_returns_similar_names():
    assert Toolbox(add, shout).similar_names("shuot") == ["shout"]
