"""Every distinct place of the requests that are known, with changes to make there.

A recorded request says that a provider accepts exactly this; its siblings with another value, an unknown field or a null in
one place are what the next client sends. A place is a JSON pointer with its indexes left out and the `type` or `role` of the
objects around it, so that each is tried once, not once for every request that has it.
"""

import json
from dataclasses import dataclass
from functools import cache

from recorded_traffic import wire_exchanges

from places import TESTS
from toolwire.ir.pointer import join

VECTORS = TESTS / "vectors" / "wire"
REMOVED = object()
# below these a document holds the user's own data: JSON Schema, arguments
_FREE = frozenset(
    "properties $defs input_schema parameters parametersJsonSchema parameters_json_schema responseJsonSchema responseSchema "
    "schema args arguments input_examples response".split()
)


@dataclass(frozen=True)
class Site:
    """One place of one request."""

    wire: str
    shape: str
    source: str
    request: dict
    path: tuple
    value: object

    @property
    def pointer(self):
        return join(*self.path)

    def replaced(self, value):
        """The request with `value` in this place, or without the place for REMOVED."""
        request = json.loads(json.dumps(self.request))
        parent = request
        for step in self.path[:-1]:
            parent = parent[step]
        if value is REMOVED:
            del parent[self.path[-1]]
        else:
            parent[self.path[-1]] = value
        return request

    def __repr__(self):
        return f"{self.wire} {self.shape} ({self.source} at {self.pointer})"


@cache
def sites(wire):
    """The places of all accepted requests and of all request vectors of a wire, one site for each shape."""
    known = [(one.source, one.request) for one in wire_exchanges() if one.accepted and one.wire == wire]
    vectors = json.loads((VECTORS / f"{wire}.json").read_text(encoding="utf-8"))
    known += [(f"vector {one['name']}", one["body"]) for one in vectors if one["kind"] == "request"]
    return sites_in(wire, known)


def sites_in(wire, known):
    """The places of (source, document) pairs, one site for each shape."""
    found = {}
    for source, request in known:
        for path, shape, value in _walk(request):
            found.setdefault((shape, type(value)), Site(wire, shape, source, request, path, value))
    return list(found.values())


def _walk(value, path=(), shape=""):
    if path:
        yield path, shape, value
    if path and (path[-1] in _FREE or (path[-1] == "input" and isinstance(value, dict))):
        return
    if isinstance(value, dict):
        tag = value.get("type") or value.get("role")
        mark = f"<{tag}>" if isinstance(tag, str) else ""
        for key, item in value.items():
            yield from _walk(item, (*path, key), f"{shape}/{key}{mark}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index), f"{shape}/*")


def changed(value):
    """Another value of the same JSON type; None where there is none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 7
    if isinstance(value, float):
        return value + 0.013
    return value + "zq7" if isinstance(value, str) else None


def variations(site):
    """(name, value) of what a sibling of the request may have in this place."""
    value = site.value
    if isinstance(value, dict):
        unknown = {"x_unknown": {"a": [1, None]}, "x_null": None, "x_empty": [], "x_false": False}
        yield "unknown fields", {**value, **unknown}
        yield "empty", {}
        if isinstance(value.get("type"), str):
            yield "unknown type", {**value, "type": "brand_new_type"}
    elif isinstance(value, list):
        yield "empty", []
        yield "twice", value + value
        if value:
            yield "without a list", value[0]
    elif isinstance(value, str):
        yield "empty", ""
    elif isinstance(value, bool):
        yield "other", not value
    elif isinstance(value, (int, float)):
        yield "as text", str(value)
        yield "as float", float(value)
    yield "null", None
    if isinstance(site.path[-1], str):
        yield "removed", REMOVED
