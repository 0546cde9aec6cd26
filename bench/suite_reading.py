"""Name the documented readings that make a valid instance inexpressible, without using the code under test.

`toolwire.schema.parsing.parser` reads some schemas more narrowly than JSON Schema does (see its docstring). A bench that used the
same code to decide whether an instance is intended could not find a defect in it, so this module applies the documented rules again, to an
instance and a schema document, in the simplest way that works:

- a key that no applicable schema mentions is not meant, unless one of them opens the object;
- a schema with the keywords of one type, and no `type`, means that type, unless a combinator beside them names another;
- the arguments of a tool are an object, and an object at the root without properties has none.

`Reading.explain` returns the reasons and the instance without the keys that are not meant, so that the caller can check that
nothing else is wrong with it.
"""

import re
from itertools import product

import jsonschema_rs

from toolwire.ir.pointer import join, resolve

__all__ = ["Reading"]

UNMENTIONED = "a key that the schema does not mention"
OUTSIDE_CONDITION = "a key outside of the condition that describes it"
IMPLIED_TYPE = "another type than the one that the keywords imply"
ROOT_OBJECT = "arguments that are not an object"

_MOST_ALTERNATIVES = 256
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")
_COMBINED = frozenset({"$ref", "$recursiveRef", "$dynamicRef", "allOf", "anyOf", "oneOf"})
_CONDITIONS = ("if", "then", "else", "dependentSchemas", "dependentRequired", "dependencies")
_KEYWORDS = {
    "object": "properties required additionalProperties patternProperties propertyNames minProperties maxProperties "
    "dependentRequired dependentSchemas unevaluatedProperties",
    "array": "items prefixItems additionalItems minItems maxItems uniqueItems contains minContains maxContains "
    "unevaluatedItems",
    "string": "minLength maxLength pattern format contentEncoding contentMediaType",
    "number": "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf",
}
_KINDS = {dict: "object", list: "array", str: "string", int: "number", float: "number"}


class Reading:
    """The documented readings of one schema document."""

    def __init__(self, document: object) -> None:
        self.document = document
        declared = document.get("$schema") if type(document) is dict else None
        self._ref_alone = type(declared) is str and any(draft in declared for draft in _OLD_DRAFTS)
        self._id = document.get("$id") if type(document) is dict else None
        self._validators: dict[str, object] = {}

    def explain(self, value: object) -> tuple[frozenset[str], object]:
        """Return the reasons why the instance is not intended, and the instance without the unintended keys."""
        return self._judge(("",), value, 0)

    def _judge(self, pointers: tuple[str, ...], value: object, depth: int) -> tuple[frozenset[str], object]:
        best = None
        for flat in self._alternatives(pointers, value):
            found = self._judge_one(flat, value, depth)
            if best is None or len(found[0]) < len(best[0]):
                best = found
            if not best[0]:
                break
        return best or (frozenset(), value)

    def _alternatives(self, pointers: tuple[str, ...], value: object) -> list[tuple[str, ...]]:
        """Return the alternatives, each a set of schemas without combinators that apply together."""
        return _joined([self._expand(pointer, value, frozenset()) for pointer in pointers])

    def _expand(self, pointer: str, value: object, seen: frozenset[str]) -> list[tuple[str, ...]]:
        schema = self._at(pointer)
        if type(schema) is not dict or pointer in seen:
            return [()]
        seen |= {pointer}
        target = self._target(schema)
        if target is not None and self._ref_alone:
            return self._expand(target, value, seen)
        parts = [[(pointer,)]]
        if target is not None:
            parts.append(self._expand(target, value, seen))
        parts += [self._expand(part, value, seen) for part in _members(schema, pointer, "allOf")]
        for keyword in ("anyOf", "oneOf"):
            branches = [part for part in _members(schema, pointer, keyword) if self._accepts(part, value)]
            if branches:
                parts.append([flat for branch in branches for flat in self._expand(branch, value, seen)])
        return _joined(parts)

    def _judge_one(self, flat: tuple[str, ...], value: object, depth: int) -> tuple[frozenset[str], object]:
        schemas = [(pointer, self._at(pointer)) for pointer in flat]
        alone = {kind for _, schema in schemas if _COMBINED.isdisjoint(schema) for kind in _implied(schema)}
        kinds = {kind for _, schema in schemas for kind in _implied(schema)}
        kind = _KINDS.get(type(value), "other")
        said = any(not {"type", "enum", "const"}.isdisjoint(schema) for _, schema in schemas)
        if alone - {kind} or (kinds - {kind} and not said):
            return frozenset({IMPLIED_TYPE}), value
        if depth == 0 and not said and not kinds and kind != "object":
            return frozenset({ROOT_OBJECT}), value
        if type(value) is dict:
            return self._judge_object(schemas, value, depth)
        if type(value) is list:
            inner = [self._judge(_item_pointers(schemas, index), one, depth + 1) for index, one in enumerate(value)]
            return frozenset().union(*(reasons for reasons, _ in inner)), [one for _, one in inner]
        return frozenset(), value

    def _judge_object(self, schemas: list, value: dict, depth: int) -> tuple[frozenset[str], object]:
        mentions = {"properties", "required", "patternProperties"}
        is_open = any(
            schema.get("additionalProperties", schema.get("unevaluatedProperties", False)) is not False
            for _, schema in schemas
        )
        at_root = depth == 0 and any(pointer == "" for pointer, _ in schemas)
        listed = any(schema.get(word) for _, schema in schemas for word in mentions)
        forbidden = any(schema.get("additionalProperties") is False for _, schema in schemas)
        is_open = is_open or not (listed or at_root or forbidden)
        reasons: set[str] = set()
        kept = {}
        for key, one in value.items():
            inside, required = _member_pointers(schemas, key)
            if not inside and not required and not is_open:
                conditional = [place for pointer, _ in schemas for place in self._conditional(pointer, key)]
                fitting = [place for place in conditional if self._accepts(place, one)]
                if not fitting:
                    reasons.add(OUTSIDE_CONDITION if conditional else UNMENTIONED)
                    continue
                inside = tuple(place for place in fitting if place != "any")
            found, kept[key] = self._judge(inside, one, depth + 1)
            reasons |= found
        return frozenset(reasons), kept

    def _conditional(self, pointer: str, key: str) -> list[str]:
        """Return the schemas of property `key` in the conditions of a schema; a mere mention of its name is the empty schema."""
        found: list[str] = []
        pending = [(f"{pointer}/{word}", word) for word in _CONDITIONS]
        seen = set()
        while pending:
            place, word = pending.pop()
            schema = self._find(place)
            if schema is None or place in seen:
                continue
            seen.add(place)
            if word in ("dependentSchemas", "dependencies", "dependentRequired"):
                if key in schema or any(type(names) is list and key in names for names in schema.values()):
                    found.append("any")
                pending += [(f"{place}{join(name)}", "then") for name in schema]
                continue
            if type(schema) is not dict:
                continue
            if key in schema.get("required", ()) or (word == "if" and key in schema.get("properties", ())):
                found.append("any")
            elif key in schema.get("properties", ()):
                found.append(f"{place}/properties{join(key)}")
            if schema.get("patternProperties") or schema.get("additionalProperties"):
                found.append("any")
            pending += [
                (part, word)
                for combinator in ("allOf", "anyOf", "oneOf")
                for part in _members(schema, place, combinator)
            ]
            pending += [(f"{place}/{inner}", word if word == "if" else inner) for inner in _CONDITIONS]
            target = self._target(schema)
            pending += [(target, word)] if target is not None else []
        return found

    def _find(self, pointer: str) -> object:
        try:
            return resolve(self.document, pointer)
        except (KeyError, IndexError, TypeError, ValueError):
            return None

    def _at(self, pointer: str) -> object:
        return resolve(self.document, pointer)

    def _target(self, schema: dict) -> str | None:
        ref = next((schema[word] for word in ("$ref", "$recursiveRef", "$dynamicRef") if word in schema), None)
        if type(ref) is not str:
            return None
        if ref == self._id:
            return ""
        if not (ref == "#" or ref.startswith("#/")):
            return None
        pointer = re.sub("%([0-7][0-9a-fA-F])", lambda found: chr(int(found[1], 16)), ref[1:])
        try:
            resolve(self.document, pointer)
        except (KeyError, IndexError, TypeError, ValueError):
            return None
        return pointer

    def _accepts(self, pointer: str, value: object) -> bool:
        """True if the schema at `pointer` accepts the value, or cannot be compiled."""
        if pointer == "any":
            return True
        if pointer not in self._validators:
            try:
                draft = self.document.get("$schema") if type(self.document) is dict else None
                asked = {"$ref": f"urn:document#{pointer}", **({"$schema": draft} if draft else {})}
                registry = jsonschema_rs.Registry([("urn:document", self.document)])
                self._validators[pointer] = jsonschema_rs.validator_for(asked, registry=registry, offline=True)
            except Exception:
                self._validators[pointer] = None
        validator = self._validators[pointer]
        return validator is None or validator.is_valid(value)


def _joined(parts: list[list[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    out: list[tuple[str, ...]] = []
    for chosen in product(*parts):
        out.append(tuple(pointer for flat in chosen for pointer in flat))
        if len(out) == _MOST_ALTERNATIVES:
            break
    return out


def _members(schema: dict, pointer: str, keyword: str) -> list[str]:
    parts = schema.get(keyword)
    return [f"{pointer}/{keyword}/{index}" for index in range(len(parts))] if type(parts) is list else []


def _implied(schema: dict) -> list[str]:
    """Return the type that the keywords of a schema without `type` imply."""
    if not {"type", "enum", "const"}.isdisjoint(schema):
        return []
    return [kind for kind, words in _KEYWORDS.items() if not schema.keys().isdisjoint(words.split())][:1]


def _member_pointers(schemas: list, key: str) -> tuple[tuple[str, ...], bool]:
    """Return the schemas of the value under `key`, and whether `key` is required by name."""
    found: list[str] = []
    required = False
    for pointer, schema in schemas:
        names = schema.get("required")
        required = required or (type(names) is list and key in names)
        properties, patterns, rest = (
            schema.get(w) for w in ("properties", "patternProperties", "additionalProperties")
        )
        here = [f"{pointer}/properties{join(key)}"] if type(properties) is dict and key in properties else []
        for pattern in patterns if type(patterns) is dict else ():
            try:
                if re.search(pattern, key):
                    here.append(f"{pointer}/patternProperties{join(pattern)}")
            except re.error:
                continue
        if not here and type(rest) is dict:
            here = [f"{pointer}/additionalProperties"]
        found += here
    return tuple(found), required


def _item_pointers(schemas: list, index: int) -> tuple[str, ...]:
    found: list[str] = []
    for pointer, schema in schemas:
        items, first = schema.get("items"), schema.get("prefixItems")
        if type(items) is list:
            rest = [f"{pointer}/additionalItems"] if type(schema.get("additionalItems")) is dict else []
            found += [f"{pointer}/items/{index}"] if index < len(items) else rest
        elif type(first) is list and index < len(first):
            found.append(f"{pointer}/prefixItems/{index}")
        elif type(items) is dict:
            found.append(f"{pointer}/items")
    return tuple(found)
