"""Lock files: record the reviewed state of tools, so that a later change is detected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from ..ir.pointer import JSON, Object
from ..ir.text import dumps, shorten, to_bytes
from ..ir.tools import Tool

VERSION = 1  # of the lock file; raise it when an older reader would compare it wrongly


def lock(tools: Sequence[Tool]) -> Object:
    """Record name, description and schema of every tool, with a hash over them."""
    return {"version": VERSION, "tools": {tool.name: _tool_entry(tool) for tool in tools}}


def _tool_entry(tool: Tool) -> Object:
    seen: Object = {"description": tool.description, "input_schema": tool.input_schema}
    return {"sha256": sha256(to_bytes(_sort_keys({"name": tool.name, **seen}))).hexdigest(), **seen}


def _sort_keys(value: JSON) -> JSON:
    if type(value) is dict:
        return {key: _sort_keys(value[key]) for key in sorted(value)}
    return [_sort_keys(one) for one in value] if type(value) is list else value


def changes(locked: Object, tools: Sequence[Tool]) -> list[str]:
    """Return the differences between the locked tools and `tools` as texts: duplicate, new, gone, changed."""
    locked_tools = locked.get("tools")
    locked_tools = locked_tools if type(locked_tools) is dict else {}
    now = {tool.name: _tool_entry(tool) for tool in tools}
    names = [tool.name for tool in tools]
    out = [f"{name}: {names.count(name)} tools have this name" for name in now if names.count(name) > 1]
    out += [f"{name}: new" for name in now if name not in locked_tools]
    out += [f"{name}: gone" for name in locked_tools if name not in now]
    for name, entry in now.items():
        if name in locked_tools and entry["sha256"] != locked_tools[name].get("sha256"):
            details = list(_differences(locked_tools[name], entry, "")) or ["changed"]
            out += [f"{name}: {detail}" for detail in details]
    return out


def _differences(old: JSON, new: JSON, path: str) -> Iterator[str]:
    """Yield each changed value below `path`; the hash is skipped, because it changes with every other value."""
    if path == "/sha256":
        return
    if type(old) is dict and type(new) is dict:
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}/{key}")
    elif old != new:
        yield f"{path}: {shorten(dumps(old), 80)} → {shorten(dumps(new), 80)}"
