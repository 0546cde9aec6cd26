"""Build JSON values from YAML events, with the types of YAML 1.2 and within limits.

The loaders of PyYAML have the types of YAML 1.1 (`no` is false, `12:30` a number), expand merge keys without a limit
and recurse. Only its scanner is used here. Aliases share one value, so that they cost nothing.
"""

from __future__ import annotations

import re
from typing import Any

from ..ir.errors import MissingExtra, SchemaError
from ..ir.pointer import JSON

_STANDARD_TAG = "tag:yaml.org,2002:"
# A float has at most 309 digits before the point; `int` refuses more than 4,300, after quadratic work.
_MAX_DIGITS = 400
_BLANK_LINES = re.compile(r"^ *+\t[ \t]*+$", re.MULTILINE)  # libyaml refuses the tab in a block scalar
_CONSTANTS: dict[str, JSON] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_is_decimal = re.compile(r"[-+]?[0-9]+").fullmatch
_is_prefixed = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+").fullmatch
_is_float = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,2})?").fullmatch


def parse_yaml(text: str, *, max_nodes: int, max_depth: int) -> JSON:
    """Parse one YAML document; SchemaError if it is invalid, has values that JSON lacks, or exceeds a limit.

    MissingExtra without pyyaml.
    """
    try:
        import yaml
    except ImportError:
        raise MissingExtra(
            "OpenAPI documents in YAML need the package pyyaml", hint="pip install pyyaml, or convert the file to JSON"
        ) from None
    builder = _ValueBuilder(max_nodes, max_depth)
    text = _BLANK_LINES.sub("", text)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.receive(event)
    except yaml.YAMLError as error:
        raise SchemaError(f"the document is not valid YAML: {' '.join(str(error).split())[:300]}") from None
    return builder.root


class _OpenContainer:
    """A list or an object under construction. `key` is the key that waits for its value."""

    __slots__ = ("anchor", "key", "merges", "value")

    def __init__(self, value: dict[str, JSON] | list[JSON], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: str | None = None
        self.merges: list[JSON] = []  # the values of `<<`


class _ValueBuilder:
    """Builds values from events, without recursion."""

    def __init__(self, max_nodes: int, max_depth: int) -> None:
        self.root: JSON = None
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self._nodes = 0
        self._documents = 0
        self._open: list[_OpenContainer] = []
        self._anchors: dict[str, JSON] = {}

    def receive(self, event: Any) -> None:
        """Handle one event of the parser; SchemaError for an undefined alias, a second document or an invalid value."""
        kind = type(event).__name__
        if kind == "ScalarEvent":
            self._receive_scalar(event)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._begin(event, {} if kind == "MappingStartEvent" else [])
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._end()
        elif kind == "AliasEvent":
            if event.anchor not in self._anchors:
                raise SchemaError(f"the YAML alias *{event.anchor[:40]} is undefined or contains itself")
            self._add(self._anchors[event.anchor], None)
        elif kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise SchemaError("the file contains several YAML documents", hint="pass one of them")

    def _receive_scalar(self, event: Any) -> None:
        """Add a scalar, or keep it as the next key; SchemaError for a key that occurs twice.

        A key is always text, as it is written: `200` is "200".
        """
        self._count(1)
        top = self._open[-1] if self._open else None
        if top is not None and type(top.value) is dict and top.key is None:
            top.key = event.value
            if event.value in top.value:
                raise SchemaError(f"the key {event.value[:80]!r} occurs twice in one YAML mapping")
            return
        self._add(_scalar_value(event), event.anchor)

    def _begin(self, event: Any, value: dict[str, JSON] | list[JSON]) -> None:
        """Open a container; SchemaError if it is nested too deeply, has an unknown tag, or is used as a key."""
        self._count(1)
        if len(self._open) >= self._max_depth:
            raise SchemaError(f"the document is nested more than {self._max_depth} levels deep")
        if event.tag not in (None, "!", f"{_STANDARD_TAG}map", f"{_STANDARD_TAG}seq"):
            raise SchemaError(f"the YAML tag {event.tag[:80]!r} is not supported")
        top = self._open[-1] if self._open else None
        if top is not None and type(top.value) is dict and top.key is None:
            raise SchemaError("a key of a YAML mapping must be a scalar")
        self._open.append(_OpenContainer(value, event.anchor))

    def _end(self) -> None:
        """Close a container, merge the mappings of `<<` into it, and add it to the outer one.

        Its own keys win over merged ones. SchemaError if `<<` has no mapping.
        """
        closed = self._open.pop()
        for merged in closed.merges:
            for source in merged if type(merged) is list else [merged]:
                if type(source) is not dict or type(closed.value) is not dict:
                    raise SchemaError("the YAML merge key << needs a mapping or a list of mappings")
                self._count(len(source))
                for key, value in source.items():
                    closed.value.setdefault(key, value)
        self._add(closed.value, closed.anchor)

    def _add(self, value: JSON, anchor: str | None) -> None:
        """Add a value to the innermost open container, or make it the root, and store it under its anchor.

        Raise SchemaError for a key that is not a scalar.
        """
        if anchor is not None:
            self._anchors[anchor] = value
        if not self._open:
            self.root = value
            return
        top = self._open[-1]
        if type(top.value) is list:
            top.value.append(value)
            return
        if top.key is None:
            raise SchemaError("a key of a YAML mapping must be a scalar")
        assert type(top.value) is dict
        if top.key == "<<":
            top.merges.append(value)
        else:
            top.value[top.key] = value
        top.key = None

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > self._max_nodes:
            raise SchemaError(f"the document has more than {self._max_nodes:,} nodes")


def _scalar_value(event: Any) -> JSON:
    """Return the value of a scalar: quoted ones are text, plain ones follow the core schema of YAML 1.2.

    SchemaError for an unknown tag. A number with too many digits stays text.
    """
    tag, text = event.tag, event.value
    if tag is not None and tag not in (
        "!",
        *(_STANDARD_TAG + name for name in ("str", "int", "float", "bool", "null")),
    ):
        raise SchemaError(f"the YAML tag {tag[:80]!r} is not supported")
    if (event.style and tag is None) or tag in ("!", f"{_STANDARD_TAG}str"):
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= _MAX_DIGITS:
        if _is_decimal(text):
            return int(text)
        if _is_prefixed(text):
            return int(text, 0)
        if _is_float(text):
            return float(text)
    return text
