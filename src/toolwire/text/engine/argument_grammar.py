"""Grammars of arguments in each notation: JSON, raw text in tags, literals of a language, nested tags.

All of them write arguments in the order of the schema, as `Style.write` does for arguments in that order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

from ...ir.errors import SchemaError
from ...ir.pointer import JSON, Object, child_pointer
from ...ir.tools import Tool
from .grammar_schema import SCALARS, TEXT_TYPES, RawText, SchemaBranches, guard_text, raw_terminal
from .lark import LarkRules, union
from .literal import LiteralSyntax, write_literal
from .offered_tools import ANY, OfferedTools, Types
from .style import ArgumentNotation, JsonArguments, LiteralArguments, NestedArguments, TagArguments

_MAX_DEPTH = 24  # levels of a schema; deeper values are free JSON, since each level is a rule of the grammar
_FREE_DEPTH = 4  # levels of a value without a schema; a grammar without recursion must end somewhere
_FREE_ITEMS = 16  # of a list or map without a limit; more is most likely a loop of the model
_TYPE_NAMES = {"integer": "number"}
_ALL_TYPES = ("null", "boolean", "number", "object", "array")
_PLAIN_KEY = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
_KEYWORD = re.compile(r"[^\W\d][\w\-]*").fullmatch
_BARE_KEY = re.compile(r"[A-Za-z_][\w.-]*").fullmatch


def argument_grammar(rules: LarkRules, notation: ArgumentNotation, tool: Tool, reader: SchemaBranches) -> str:
    """Return an expression for the arguments of a tool, whose decoding schema is in `reader`."""
    if isinstance(notation, JsonArguments):
        return rules.json(reader.root)
    root = next(iter(reader.branches(reader.root, "")), {})
    reader.leave(root, "", "properties", "required", "additionalProperties")
    members = reader.properties(root)
    if isinstance(notation, TagArguments):
        tags = _Tags(rules, reader, notation, tool)
        return " ".join(_optional(tags.argument(*member[:2]), member[2]) for member in members)
    if isinstance(notation, LiteralArguments):
        literals = _Literals(rules, reader, notation.language)
        return literals.members(members, "") if notation.braces else literals.keywords(members)
    nested = _Nested(rules, reader, notation)
    return " ".join(
        _optional(nested.tag(key, schema, child_pointer("", "properties", key)), required)
        for key, schema, required in members
    )


def _optional(expression: str, required: bool) -> str:
    return expression if required else f"({expression})?"


class _Tags:
    """Arguments in tags, with raw text or JSON between them."""

    def __init__(self, rules: LarkRules, reader: SchemaBranches, notation: TagArguments, tool: Tool) -> None:
        self.rules = rules
        self.reader = reader
        self.notation = notation
        self.name = tool.name
        self.offered = OfferedTools([tool])

    def argument(self, key: str, schema: JSON) -> str:
        """Add a rule for one argument with its tags, and return its name."""
        pointer = child_pointer("", "properties", key)
        branches = self.reader.branches(schema, pointer)
        raw = RawText(
            [self._fill(text, key) for text in self.notation.forbidden],
            trims_lines=self.notation.trims_lines,
            drops_return=self.notation.drops_return,
        )
        write = self._typed if self.notation.types else self._untyped
        return self.rules.add("argument", union(write(key, schema, branches, pointer, raw)))

    def _untyped(self, key: str, schema: JSON, branches: list[Object], pointer: str, raw: RawText) -> list[str]:
        """Return the spellings of a value whose type the parser knows only from the schema."""
        types = self.offered.types(self.name, key)
        is_any = any("type" not in branch and "enum" not in branch for branch in branches)
        if not is_any and not any(branch.get("type") == "string" for branch in branches):
            return [self._json(key, "", self.reader.embed(schema), raw)]
        options = []
        text = raw_terminal(self.rules, self.reader, branches, pointer, raw, ANY if is_any else types)
        if text:
            options.append(f"{self._open(key)} {self.rules.until(text, self._close(key))}")
        containers = [
            branch for branch in branches if branch.get("type") in ("array", "object") and "enum" not in branch
        ]
        if containers and not is_any:
            options.append(self._json(key, "", self.reader.embed({"anyOf": containers}), raw))
        return options

    def _typed(self, key: str, schema: JSON, branches: list[Object], pointer: str, raw: RawText) -> list[str]:
        """Return the spellings of a value whose tag has the type as an attribute."""
        options = []
        free = [branch for branch in branches if "type" not in branch]
        strings = [branch for branch in branches if branch.get("type") == "string"]
        if free or strings:
            text = raw_terminal(self.rules, self.reader, [*free, *strings], pointer, raw, TEXT_TYPES)
            label = "true" if self.notation.types == "string" else "string"  # string="true", or type="string"
            options += [f"{self._open(key, label)} {self.rules.until(text, self._close(key))}"] if text else []
        others = [branch for branch in branches if branch.get("type") not in (None, "string")]
        others += [{"type": kind} for kind in _ALL_TYPES] if free else []
        if others and self.notation.types == "string":
            options.append(self._json(key, "false", self.reader.embed({"anyOf": others}), raw))
        elif others:
            kinds = dict.fromkeys(str(branch["type"]) for branch in others)
            options += [
                self._json(
                    key,
                    _TYPE_NAMES.get(kind, kind),
                    self.reader.embed({"anyOf": [branch for branch in others if branch["type"] == kind]}),
                    raw,
                )
                for kind in kinds
            ]
        return options

    def _json(self, key: str, said: str, schema: Object, raw: RawText) -> str:
        """Return a value as JSON, whose strings contain none of the tags."""
        value = self.rules.json(guard_text(schema, raw.forbidden))
        return f"{self._open(key, said)} {value} {self.rules.literal(self._close(key))}"

    def _open(self, key: str, said: str = "") -> str:
        return self.rules.literal(self._fill(self.notation.opening, key).replace("{type}", said))

    def _close(self, key: str) -> str:
        return self._fill(self.notation.closing, key)

    def _fill(self, text: str, key: str) -> str:
        return text.replace("{key}", escape(key) if self.notation.is_attribute else key).replace("{name}", self.name)


class _Literals:
    """Values in the notation of a language: Python's, or Gemma's."""

    def __init__(self, rules: LarkRules, reader: SchemaBranches, language: LiteralSyntax) -> None:
        self.rules = rules
        self.reader = reader
        self.language = language
        self.raw = RawText(language.quotes[:1])
        self.comma, self.colon = (",", ":") if language.bare_words else (", ", ": ")
        self.known: dict[str, str] = {}  # references that a rule exists for

    def keywords(self, members: Sequence[tuple[str, JSON, bool]]) -> str:
        """Return the arguments of a Python call. A key that is no identifier needs a dictionary with two asterisks."""
        plain = [member for member in members if _KEYWORD(member[0])]
        options = []
        if all(_KEYWORD(key) for key, _, required in members if required):
            options.append(self._sequence(plain, "", lambda key: f"{key}="))
        if len(plain) < len(members):
            options.append(f'"**" {self.members(members, "")}')
        return self.rules.add("arguments", union(options))

    def members(self, members: Sequence[tuple[str, JSON, bool]], pointer: str, depth: int = 0) -> str:
        """Return an object with these properties, in braces."""
        inner = self._sequence(members, pointer, self._key, depth)
        return f'"{{" {inner} "}}"'

    def _key(self, key: str) -> str:
        bare = self.language.bare_words and _BARE_KEY(key)
        return f"{key if bare else write_literal(key, self.language)}{self.colon}"

    def _sequence(
        self,
        members: Sequence[tuple[str, JSON, bool]],
        pointer: str,
        write_key: Callable[[str], str],
        depth: int = 0,
    ) -> str:
        """Return an expression for members with commas between the present ones.

        The first member that is present is the first required one, or an optional one before it. Built from the end:
        each rule `rest` has the members after one of them.
        """
        written = [
            self.value(schema, child_pointer(pointer, "properties", key), depth + 1) for key, schema, _ in members
        ]
        rest = ""
        starts: list[str] = []
        for (key, _, required), value in reversed(list(zip(members, written, strict=True))):
            head = self.rules.literal(write_key(key))
            start = f"{head} {value} {rest}".rstrip()
            starts = [start] if required else [start, *starts]
            following = f"{self.rules.literal(self.comma + write_key(key))} {value}"
            rest = self.rules.add("rest", f"{_optional(following, required)} {rest}".rstrip())
        is_optional = not any(required for _, _, required in members)
        if not starts:
            return ""
        return f"({union(starts)})?" if is_optional else union(starts)

    def value(self, schema: JSON, pointer: str, depth: int = 0) -> str:
        """Return an expression for a value. A reference becomes a rule, so that schemas may be recursive."""
        ref = schema.get("$ref") if isinstance(schema, dict) else None
        if ref is not None and len(schema) == 1:
            if ref not in self.known:
                self.known[ref] = self.rules.reserve("value")
                at = str(ref).removeprefix("#")
                self.rules.rule(self.known[ref], self._value(self.reader.resolve(schema), at, 0))
            return self.known[ref]
        if depth > _MAX_DEPTH:
            return self._any(0)
        return self.rules.add("value", self._value(schema, pointer, depth))

    def _value(self, schema: JSON, pointer: str, depth: int) -> str:
        branches = self.reader.branches(schema, pointer)
        if not branches:
            raise SchemaError("the schema accepts no value", pointer=pointer, hint="correct the schema at this pointer")
        return union(self._branch(branch, pointer, depth) for branch in branches)

    def _branch(self, branch: Object, pointer: str, depth: int) -> str:
        """Return the notation of a value of one type; keywords that it does not enforce are left to the validator."""
        if "enum" in branch:
            return union(self.rules.literal(write_literal(value, self.language)) for value in branch["enum"])
        kind = branch.get("type")
        if kind is None:
            self.reader.leave(branch, pointer)
            return self._any(_FREE_DEPTH)
        if kind == "string":
            counts = self.language.escapes or self.raw.is_simple
            self.reader.leave(branch, pointer, *(("minLength", "maxLength") if counts else ()))
            return self._string(branch.get("minLength", 0), branch.get("maxLength"))
        if kind in ("integer", "number"):
            return self._number(branch)
        if kind == "array":
            return self._array(branch, pointer, depth)
        if kind == "object":
            return self._object(branch, pointer, depth)
        return self._constant(kind)

    def _number(self, branch: Object) -> str:
        """Return a number as in JSON; without declared bounds, within the range of floats."""
        declared = {key: value for key, value in branch.items() if key not in ("$defs", "title", "description")}
        if len(declared) > 1:
            return self.rules.json(declared)
        return self.rules.add("NUMBER", SCALARS[str(branch["type"])])

    def _constant(self, kind: JSON) -> str:
        values: tuple[JSON, ...] = (None,) if kind == "null" else (True, False)
        return union(self.rules.literal(write_literal(value, self.language)) for value in values)

    def _string(self, least: int, most: int | None) -> str:
        """Return a string: with escapes in single quotes, or as raw text between the language's own quotes."""
        if self.language.escapes:
            bounds = f"{{{least},{'' if most is None else most}}}"
            character = r"""[^'\\\x00-\x1f\x7f]|\\['\\nrt]|\\x[01][0-9a-f]"""
            return self.rules.add("STRING", f"/'({character}){bounds}'/")
        quote = self.language.quotes[0]
        text, _ = self.raw.terminal(self.rules, least, most)
        return f"{self.rules.literal(quote)} {self.rules.until(text, quote)}"

    def _array(self, branch: Object, pointer: str, depth: int) -> str:
        """Return the notation of an array: its first items by position, then others, within its bounds."""
        self.reader.leave(branch, pointer, "items", "prefixItems", "minItems", "maxItems")
        first = branch.get("prefixItems", [])
        least, most = branch.get("minItems", 0), branch.get("maxItems", _FREE_ITEMS)
        items = [
            self.value(node, child_pointer(pointer, "prefixItems", at), depth + 1) for at, node in enumerate(first)
        ]
        more = branch.get("items", True)
        if not self.reader.branches(more, pointer):
            most = min(most, len(items))
        item = self.value(more, child_pointer(pointer, "items"), depth + 1) if most > len(items) else ""
        return f'"[" {self._items(items, item, least, most)} "]"'

    def _items(self, first: list[str], item: str, least: int, most: int) -> str:
        """Return between `least` and `most` items with commas: the items `first`, then any number of `item`."""
        comma = self.rules.literal(self.comma)
        body = ""
        for index in reversed(range(min(len(first), most))):
            is_last = index + 1 == min(len(first), most)
            tail = self._more(item, max(least - len(first), 0), most - len(first)) if is_last else f"{comma} {body}"
            must_continue = index + 1 < least
            rest = tail if is_last or must_continue else f"({tail})?"
            body = f"{first[index]} {rest}".rstrip()
        if not first:
            if most <= 0:
                return ""
            body = f"{item} {self._more(item, max(least - 1, 0), most - 1)}".rstrip()
        return body if least > 0 or not body else f"({body})?"

    def _more(self, item: str, least: int, most: int) -> str:
        if most <= 0 or not item:
            return ""
        return f"({self.rules.literal(self.comma)} {item}){{{least},{most}}}"

    def _object(self, branch: Object, pointer: str, depth: int) -> str:
        self.reader.leave(branch, pointer, "properties", "required", "additionalProperties")
        members = self.reader.properties(branch)
        others = branch.get("additionalProperties", True)
        if members or others is False:
            return self.members(members, pointer, depth)
        self.reader.leave({"additionalProperties": others}, pointer)  # a key may be repeated
        return self._entries(self.value(others, child_pointer(pointer, "additionalProperties"), depth + 1))

    def _entries(self, value: str) -> str:
        key = self.rules.add("KEY", f"/{_PLAIN_KEY}/" if self.language.bare_words else f"/'{_PLAIN_KEY}'/")
        entry = f"{key} {self.rules.literal(self.colon)} {value}"
        return f'"{{" ({entry} ({self.rules.literal(self.comma)} {entry}){{0,{_FREE_ITEMS}}})? "}}"'

    def _any(self, depth: int) -> str:
        """Return any value, nested up to `depth` levels."""
        scalars = [self._string(0, 1000), self._number({"type": "number"})]
        options = [*scalars, self._constant("null"), self._constant("boolean")]
        if depth > 0:
            inner = self._any(depth - 1)
            options += [f'"[" {self._items([], inner, 0, _FREE_ITEMS)} "]"', self._entries(inner)]
        return self.rules.add("any", union(options))


class _Nested:
    """Values in tags named after their keys; members and items are nested tags."""

    def __init__(self, rules: LarkRules, reader: SchemaBranches, notation: NestedArguments) -> None:
        self.rules = rules
        self.reader = reader
        self.mark = notation.mark
        self.item = notation.item
        self.raw = RawText((notation.mark,))
        self.known: dict[tuple[str, str], str] = {}

    def tag(self, key: str, schema: JSON, pointer: str, depth: int = 0) -> str:
        """Return a rule for a value with its tags. A reference becomes a rule of its own, per key."""
        ref = str(schema["$ref"]) if isinstance(schema, dict) and schema.keys() == {"$ref"} else ""
        if ref and (key, ref) in self.known:
            return self.known[key, ref]
        name = self.rules.reserve("tag")
        if ref:
            self.known[key, ref] = name
        opening = self.rules.literal(f"{self.mark}<{key}>")
        branches = self.reader.branches(schema, pointer)
        return self.rules.rule(name, f"{opening} {union(self._values(key, branches, pointer, depth))}")

    def _values(self, key: str, branches: list[Object], pointer: str, depth: int) -> list[str]:
        """Return the spellings of a value with its closing tag: raw text for scalars, nested tags for containers."""
        closing = f"{self.mark}</{key}>"
        kinds: Types = frozenset(str(branch.get("type", "")) for branch in branches)
        is_any = "" in kinds or depth > _MAX_DEPTH
        types = ANY if is_any else kinds
        scalars: list[Object] = [{}] if is_any else [own for own in branches if own["type"] not in ("array", "object")]
        text = raw_terminal(self.rules, self.reader, scalars, pointer, self.raw, types) if scalars else ""
        options = [self.rules.until(text, closing)] if text else []
        for branch in () if is_any else branches:
            if branch["type"] in ("array", "object"):
                inner = self._container(branch, pointer, depth, may_be_empty="string" not in kinds)
                options.append(f"{inner} {self.rules.literal(closing)}".lstrip())
        return options

    def _container(self, branch: Object, pointer: str, depth: int, *, may_be_empty: bool) -> str:
        """Return the items of an array, the members of an object, or JSON for an object without declared members."""
        members = self.reader.properties(branch)
        if "enum" in branch or (branch["type"] == "object" and not members):
            return self.rules.json(guard_text(self.reader.embed(branch), self.raw.forbidden))
        if branch["type"] == "object":
            self.reader.leave(branch, pointer, "properties", "required", "additionalProperties")
            return " ".join(
                _optional(self.tag(key, schema, child_pointer(pointer, "properties", key), depth + 1), required)
                for key, schema, required in members
            )
        self.reader.leave(branch, pointer, "items", "minItems", "maxItems")
        least, most = branch.get("minItems", 0), branch.get("maxItems", _FREE_ITEMS)
        item = self.tag(self.item, branch.get("items", True), child_pointer(pointer, "items"), depth + 1)
        return f"({item}){{{least if may_be_empty else max(least, 1)},{most}}}"
