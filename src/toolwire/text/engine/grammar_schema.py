"""Read a decoding schema for notations that are not JSON: its branches by type, and terminals for values as raw text.

The parser converts raw text by the types of the schema, so a terminal excludes text that would become another value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...ir.errors import SchemaError
from ...ir.pointer import JSON, Object
from ...schema.decoding.limits import DecodingLimits, Residual
from .lark import LarkRules, any_text, quote_regex, union
from .offered_tools import ANY, Types, convert_text, json_type
from .style import write_json

_KEPT = frozenset({"type", "enum", "const", "$ref", "$defs", "anyOf", "allOf", "description", "title", "default"})
_MAX_HOPS = 16  # references that lead to references; a cycle must end


class SchemaBranches:
    """A decoding schema, and the keywords that a notation does not enforce, with the pointers of their schemas."""

    def __init__(self, schema: Object, residual: Iterable[Residual], limits: DecodingLimits) -> None:
        self.root = schema
        self.residual = dict.fromkeys(residual)
        self._limits = {
            "maxLength": limits.max_length,
            "maxItems": limits.max_items,
            "maxProperties": limits.max_properties,
        }

    def leave(self, schema: Object, pointer: str, *enforced: str) -> None:
        """Leave all keywords of a schema except those `enforced` to the validator; not the limits that we added."""
        for keyword, value in schema.items():
            is_added = keyword in self._limits and self._limits[keyword] == value
            if keyword not in _KEPT and keyword not in enforced and not is_added:
                self.residual[Residual(pointer, keyword)] = None

    def resolve(self, schema: JSON) -> Object | None:
        """Follow references, and merge the keywords beside them; None for a schema that accepts nothing."""
        if schema is False:
            return None
        found: Object = schema if isinstance(schema, dict) else {}
        for _ in range(_MAX_HOPS):
            if "$ref" not in found:
                break
            target = self.root.get("$defs", {}).get(str(found["$ref"]).removeprefix("#/$defs/"), {})
            rest = {key: value for key, value in found.items() if key != "$ref"}
            found = {**(target if isinstance(target, dict) else {}), **rest}
        return found

    def branches(self, schema: JSON, pointer: str, depth: int = 0) -> list[Object]:
        """Split a schema into alternatives of one type each: with `type`, with `enum`, or with neither for any type."""
        node = self.resolve(schema)
        if node is None:
            return []
        if "allOf" in node:
            node = self._merge(node, pointer)
        if "anyOf" in node and depth < _MAX_HOPS:
            outer = {key: value for key, value in node.items() if key != "anyOf"}
            merged = [{**outer, **(self.resolve(part) or {})} for part in node["anyOf"] if part is not False]
            return [branch for part in merged for branch in self.branches(part, pointer, depth + 1)]
        kinds = node.get("type")
        allowed = [kinds] if isinstance(kinds, str) else kinds
        if "enum" in node or "const" in node:
            values = [node["const"]] if "const" in node else node["enum"]
            return _by_type([value for value in values if allowed is None or _fits(value, allowed)])
        return [node] if allowed is None else [{**node, "type": kind} for kind in allowed]

    def _merge(self, node: Object, pointer: str) -> Object:
        """Merge the schemas of `allOf`. Where two of them differ in a keyword, one is left to the validator."""
        merged = {key: value for key, value in node.items() if key != "allOf"}
        for part in node["allOf"]:
            for key, value in (self.resolve(part) or {}).items():
                if key == "properties":
                    merged[key] = {**merged.get(key, {}), **value}
                elif key == "required":
                    merged[key] = list(dict.fromkeys((*merged.get(key, ()), *value)))
                elif merged.setdefault(key, value) != value:
                    self.residual[Residual(pointer, "allOf")] = None
        return merged

    def embed(self, schema: JSON) -> Object:
        """Return a schema of its own, with the definitions that it may refer to."""
        alone: Object = dict(schema) if isinstance(schema, dict) else {} if schema is True else {"not": {}}
        return {**alone, "$defs": self.root["$defs"]} if "$defs" in self.root else alone

    def properties(self, schema: Object) -> list[tuple[str, JSON, bool]]:
        """Return the properties of an object, in order: key, schema, and whether it is required.

        An optional property that accepts no value is left out; a required one raises SchemaError.
        """
        required = schema.get("required", ())
        declared = schema.get("properties", {})
        named = []
        for key, value in declared.items():
            if self.branches(value, ""):
                named.append((key, value, key in required))
            elif key in required:
                raise SchemaError(f"the required property {key!r} accepts no value", hint="correct its schema")
        return named + [(key, True, True) for key in required if key not in declared]


def _fits(value: JSON, kinds: Sequence[str]) -> bool:
    kind = json_type(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _by_type(values: list[JSON]) -> list[Object]:
    groups: dict[str, list[JSON]] = {}
    for value in values:
        groups.setdefault(json_type(value), []).append(value)
    return [{"enum": group, "type": kind} for kind, group in groups.items()]


def exclusion_pattern(forbidden: Sequence[str], banned: str = "") -> str:
    """Return a regular expression for texts that contain none of `forbidden` and no `banned` character.

    It needs no negation, which is expensive in combination with other conditions. Only the beginning of a forbidden text
    up to the second occurrence of its first character is looked at. All of them must begin with the same character;
    otherwise their first characters are excluded.
    """
    heads = {text[0] for text in forbidden}
    outside = "".join(map(_in_class, banned))
    if len(heads) != 1:
        return f"[^{outside}{''.join(map(_in_class, sorted(heads)))}]*"
    head = heads.pop()
    trie: dict[str, object] = {}
    for text in forbidden:
        node = trie
        cut = text.find(head, 1)
        for character in text[1:cut] if cut > 0 else text[1:]:
            node = node.setdefault(character, {})  # type: ignore[assignment]  # the tree contains only dictionaries
        node.clear()
        node[""] = None
    plain = f"[^{_in_class(head)}{outside}]*"
    return f"{plain}(?:{quote_regex(head)}{_mismatch(trie, head, outside)})*"


def _mismatch(node: dict[str, object], head: str, outside: str) -> str:
    """Return a pattern for the text after `head`, up to the next `head`, that completes no path of the tree."""
    children = {key: child for key, child in node.items() if key}
    options = [f"[^{''.join(map(_in_class, (head, *children)))}{outside}][^{_in_class(head)}{outside}]*"]
    for key, child in children.items():
        if isinstance(child, dict) and "" not in child:
            options.append(f"{quote_regex(key)}{_mismatch(child, head, outside)}")
    return f"(?:{'|'.join(options)})?"


def _in_class(character: str) -> str:
    escaped = f"\\{character}" if character in "\\]^-[&~/" else character
    return {"\n": "\\n", "\r": "\\r"}.get(character, escaped)


def guard_text(schema: JSON, forbidden: Sequence[str]) -> Object:
    """Restrict all strings and undeclared keys of a JSON schema to text that contains none of `forbidden`."""
    return _TextGuard(f"^{exclusion_pattern(forbidden)}$").apply_root(schema)


class _TextGuard:
    """The rewriting of one schema."""

    def __init__(self, pattern: str) -> None:
        self.string: Object = {"type": "string", "pattern": pattern}
        self.free: Object = {"$ref": "#/$defs/free-value"}
        scalars: list[JSON] = [{"type": "null"}, {"type": "boolean"}, {"type": "number"}, self.string]
        entries: Object = {"patternProperties": {pattern: self.free}, "additionalProperties": False}
        nested: list[JSON] = [{"type": "array", "items": self.free}, {"type": "object", **entries}]
        self.definition: Object = {"anyOf": scalars + nested}
        self.pattern = pattern
        self.uses_free = False

    def apply_root(self, schema: JSON) -> Object:
        guarded = self.apply(schema)
        root: Object = guarded if isinstance(guarded, dict) else {}
        if self.uses_free:
            root = {**root, "$defs": {**root.get("$defs", {}), "free-value": self.definition}}
        return root

    def apply(self, schema: JSON) -> JSON:
        """Return the schema with the pattern on all strings and keys; a schema without a shape becomes a free value.

        Constants stay as they are. Set `uses_free` for a free value.
        """
        if schema is False or (isinstance(schema, dict) and ("enum" in schema or "const" in schema)):
            return schema
        if schema is True or not isinstance(schema, dict) or not (schema.keys() & _SHAPING):
            self.uses_free = True
            extra = (
                {"$defs": self._apply_all(schema["$defs"])} if isinstance(schema, dict) and "$defs" in schema else {}
            )
            return {**self.free, **extra}
        node = {key: self._apply_keyword(key, value) for key, value in schema.items()}
        kinds = node.get("type", ())
        if kinds == "string" or "string" in kinds:
            node = self._guard_string(node)
        if kinds == "object" or "object" in kinds:
            self._guard_keys(node)
        if (kinds == "array" or "array" in kinds) and "items" not in node and "prefixItems" not in node:
            node["items"] = self.apply(True)
        return node

    def _apply_keyword(self, keyword: str, value: JSON) -> JSON:
        if keyword in ("properties", "patternProperties", "$defs"):
            return self._apply_all(value)
        if keyword in ("items", "additionalProperties"):
            return self.apply(value)
        if keyword in ("anyOf", "allOf", "prefixItems"):
            return [self.apply(part) for part in value]
        return value

    def _apply_all(self, schemas: Object) -> Object:
        return {key: self.apply(part) for key, part in schemas.items()}

    def _guard_string(self, node: Object) -> Object:
        if "pattern" in node or "format" in node:
            return {**node, "allOf": [*node.get("allOf", ()), self.string]}
        return {**node, "pattern": self.pattern}

    def _guard_keys(self, node: Object) -> None:
        """Allow undeclared keys only in an object that declares none: a pattern also applies to declared keys."""
        others = node.get("additionalProperties", True)
        if others is False or "patternProperties" in node:
            return
        if not node.get("properties"):
            node["patternProperties"] = {self.pattern: self.apply(True) if others is True else others}
        node["additionalProperties"] = False


_SHAPING = frozenset({"type", "anyOf", "allOf", "$ref"})


TEXT_TYPES: Types = frozenset({"string"})
_NUMBER = r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?([eE][+\-]?[0-9]{1,2})?"
SCALARS = {
    "null": '"null"',
    "boolean": '("true" | "false")',
    "integer": r"/-?(0|[1-9][0-9]{0,15})/",
    "number": f"/{_NUMBER}/",
}
_SPACE = r"[\s\x1c-\x1f]*"
_LOOKALIKES = {
    "null": "(?i:null)|NONE|[nN][oO][nN][eE]",
    "boolean": "(?i:true|false)",
    "integer": r"-?[0-9]+",
    "number": r"-?[0-9]+(\.[0-9]+)?([eE][+\-]?[0-9]+)?",
    "array": r"\[(?s:.*)",
    "object": r"\{(?s:.*)",
}
"""Text that the parser may convert to a value of the type."""


class RawText:
    """The text that raw values must not contain, and the edges that belong to their tags."""

    def __init__(self, forbidden: Sequence[str], *, trims_lines: bool = False, drops_return: bool = False) -> None:
        self.forbidden = tuple(forbidden)
        self.trims_lines = trims_lines
        self.banned = "\r" if drops_return else ""
        heads = {text[0] for text in self.forbidden}
        self.is_simple = len(heads) == 1 and all(text.find(text[0], 1) < 0 for text in self.forbidden)

    def terminal(self, rules: LarkRules, least: int, most: int | None) -> tuple[str, bool]:
        """Return a terminal for text, and whether it enforces the length.

        A count in combination with a negation is too expensive for the engine.
        """
        if not self.is_simple:
            return rules.without(any_text(), self.forbidden), False
        pattern = f"/{exclusion_pattern(self.forbidden, self.banned)}/"
        if self.trims_lines:
            return rf"{pattern} & ~/\n(?s:.*)|(?s:.*)\n/", False
        return (f"{any_text(least, most)} & {pattern}" if least or most is not None else pattern), True

    def admits(self, text: str) -> bool:
        """Return whether a constant may be written as a raw value."""
        at_edge = self.trims_lines and (text.startswith("\n") or text.endswith("\n"))
        return not at_edge and not any(piece in text for piece in (*self.forbidden, *self.banned))


def raw_terminal(
    rules: LarkRules, reader: SchemaBranches, branches: Sequence[Object], pointer: str, raw: RawText, types: Types
) -> str:
    """Return a terminal for all `branches` that are text or scalars, or an empty string if there is none.

    `types` are those by which the parser converts the text; a text that it would convert to another type is excluded.
    """
    options = [_option(rules, reader, branch, pointer, raw, types) for branch in branches]
    written = list(filter(None, options))
    return union(written) if written else ""


def _option(rules: LarkRules, reader: SchemaBranches, branch: Object, pointer: str, raw: RawText, types: Types) -> str:
    """Return a regular expression for the raw text of one branch; unenforced keywords are left to the validator.

    A string must not look like a value of another type in `types`, because the parser would read it as that.
    """
    if "enum" in branch:
        return _constants(branch["enum"], raw, types)
    kind = branch.get("type")
    if kind is None:
        reader.leave(branch, pointer)
        return f"({raw.terminal(rules, 0, None)[0]})"
    if kind == "string":
        lookalikes = _without_lookalikes(types)
        bounds = (0, None) if lookalikes else (branch.get("minLength", 0), branch.get("maxLength"))
        text, is_exact = raw.terminal(rules, *bounds)
        reader.leave(branch, pointer, *(() if lookalikes or not is_exact else ("minLength", "maxLength")))
        return f"({text}{lookalikes})"
    reader.leave(branch, pointer)
    return SCALARS.get(str(kind), "")


def _constants(values: Sequence[JSON], raw: RawText, types: Types) -> str:
    """Return the constants that the parser reads back unchanged."""
    kept = []
    for value in values:
        text = value if isinstance(value, str) else write_json(value)
        back = convert_text(text, types)
        if raw.admits(text) and json_type(back) == json_type(value) and back == value:
            kept.append(f"/{quote_regex(text)}/" if text else '""')
    return union(kept) if kept else ""


def _without_lookalikes(types: Types) -> str:
    """Exclude text that the parser would convert to another type than a string."""
    kinds = types - TEXT_TYPES if types != ANY else frozenset(_LOOKALIKES)
    if not kinds:
        return ""
    patterns = "|".join(pattern for kind, pattern in _LOOKALIKES.items() if kind in kinds)
    return f" & ~/{_SPACE}({patterns}){_SPACE}/"
