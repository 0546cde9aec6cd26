r"""Superfluous layers around arguments: text, lists with a single item, the name of a parameter object, a whole call.

Unwrapping is lossless: a layer is removed only where the wrapped form does not fit the schema and exactly one unwrapped
form does.

Layers that models put around arguments: text, lists of one, the name of a parameter object, a whole call.

    "{\"city\": \"Paris\"}"                                 unwrapped_text
    [{"city": "Paris"}]                                       unwrapped_list
    {"arguments": {"city": "Paris"}}                          unwrapped_alias
    {"type": "object", "properties": {"city": "Paris"}}       unwrapped_alias
    {"name": "get_weather", "arguments": {"city": "Paris"}}   unwrapped_call
    {"get_weather": {"city": "Paris"}}                        unwrapped_call, if the name of the tool is known

A layer is removed only by `unwrap_arguments`, and only where the schema rejects the text with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from ...ir.errors import BrokenJSON
from ...ir.pointer import JSON, Object, child_pointer, join
from ...stream.repair import repair_json
from ..bounds import StepBudget
from ..parsing.membership import RefResolver, fits
from ..parsing.nodes import ArrayNode, Node, ObjectNode, TupleNode, UnionNode
from .coercion import RepairStep, coercion_budget, resolve_refs
from .spellings import find_branches, find_spellings, parse_as_written

_ALIASES = frozenset(
    "arguments parameters args input params kwargs properties tool_input action_input tool_arguments tool_args"
    " function_arguments function_args".split()
)
_NAMES = frozenset("name tool tool_name function function_name action recipient_name".split())
_METADATA = frozenset("type id call_id tool_call_id index thought thoughts reasoning explanation".split())
_CALLS = frozenset("function tool function_call tool_call tool_use tool_calls function_calls calls call".split())
_QUALIFIER = re.compile(r"[.:/]")
_MAX_ENVELOPES = 4  # objects and lists of one item around a call; bounds the loop. Not measured
_SCHEMA_KEYWORDS = frozenset("anyOf oneOf allOf $ref".split())
_SCHEMA_TYPES = frozenset("string integer number boolean object array null".split())


def remove_layer(value: JSON, declared: AbstractSet[str], names: Collection[str]) -> tuple[JSON, RepairStep] | None:
    """Remove the outermost layer; None if there is none. `declared`: parameters; `names`: of the tool, if known."""
    if type(value) is str:
        inner = parse_container(value)
        return None if inner is None else (inner, RepairStep("unwrapped_text"))
    if type(value) is list:
        return (value[0], RepairStep("unwrapped_list")) if len(value) == 1 else None
    if type(value) is not dict or not value:
        return None
    return _remove_alias(value, declared) or _remove_call(value, declared, names)


def _remove_alias(value: Object, declared: AbstractSet[str]) -> tuple[JSON, RepairStep] | None:
    """Remove `{"arguments": …}`, or `{"type": "object", "properties": …}` unless that is the schema itself.

    Return the content and the step, or None if the value has no such wrapper.
    """
    members = dict(value)
    if "properties" in members and members.get("type") == "object" and "type" not in declared:
        del members["type"]
        if type(members.get("required")) is list and "required" not in declared:
            del members["required"]
    if len(members) != 1:
        return None
    ((key, inner),) = members.items()
    if key not in _ALIASES or key in declared:
        return None
    if key == "properties" and _declares_properties(inner):
        return None
    return _content(inner), RepairStep("unwrapped_alias", join(key))


def _declares_properties(properties: JSON) -> bool:
    """Return True if any value is a schema: the model repeated its tool's definition instead of arguments."""
    return type(properties) is dict and any(
        type(inner) is dict
        and (
            not _SCHEMA_KEYWORDS.isdisjoint(inner)
            or (type(inner.get("type")) is str and inner["type"] in _SCHEMA_TYPES)
        )
        for inner in properties.values()
    )


def _remove_call(value: Object, declared: AbstractSet[str], names: Collection[str]) -> tuple[JSON, RepairStep] | None:
    """Remove a call around its arguments, or return None. If the tool's name is known, the call must have it.

    Beside the arguments, a call has only its name and metadata, none of which may be a parameter.
    """
    payload = [key for key, inner in value.items() if _is_payload(key, inner, names)]
    if len(payload) != 1:
        return None
    (key,) = payload
    inner = _content(value[key])
    for other, text in value.items():
        if other == key:
            continue
        is_name = other in _NAMES and type(text) is str
        if not is_name and not (other in _METADATA and type(text) in (str, int)):
            return None
        if is_name and names and text not in names:
            return None
        # A parameter with the same key must not be dropped.
        if other in declared and not (is_name and text in names) and not (type(inner) is dict and other in inner):
            return None
    if key in declared and not any(other in _NAMES and value[other] in names for other in value if other != key):
        return None
    return inner, RepairStep("unwrapped_call", join(key))


def may_be_call(value: JSON, declared: AbstractSet[str]) -> bool:
    """Return True for members that are parameters of the tool, or a call with such parameters in its arguments."""
    if type(value) is not dict:
        return False
    payloads = {key: inner for key, inner in value.items() if _is_payload(key, inner, ())}
    if not payloads.keys() <= declared:
        return True
    has_name = any(key in _NAMES and type(inner) is str for key, inner in value.items())
    is_known = _NAMES.isdisjoint(value.keys() - declared)
    return has_name and any(
        type(content) is dict and content.keys() <= declared and not (is_known and not content)
        for content in map(_content, payloads.values())
    )


def other_tool(value: JSON, declared: AbstractSet[str], names: Collection[str]) -> str | None:
    """Return the name of another tool if the value is a call of it; None if that is not certain."""
    for _ in range(_MAX_ENVELOPES):
        if type(value) is list and len(value) == 1:
            value = value[0]
        if type(value) is not dict or not names or not declared.isdisjoint(value):
            return None
        payload = [key for key, inner in value.items() if _is_payload(key, inner, ())]
        named = [text for key, text in value.items() if key in _NAMES and type(text) is str]
        if len(payload) != 1 or len(named) > 1 or len(value.keys() - _METADATA) != 1 + len(named):
            return None
        if named:
            is_known = named[0] in names or _QUALIFIER.split(named[0])[-1] in names
            return None if is_known else named[0]
        value = _content(value[payload[0]])
    return None


def _is_payload(key: str, inner: JSON, names: Collection[str]) -> bool:
    """Return True for the arguments of a call, or a call inside its envelope."""
    if key in _ALIASES or key in _CALLS or key in names:
        return type(inner) in (dict, list) or (type(inner) is str and inner.lstrip()[:1] in ("{", "["))
    return False


def _content(inner: JSON) -> JSON:
    """Return the content of a layer, parsed if it is text."""
    if type(inner) is str:
        parsed = parse_container(inner)
        return inner if parsed is None else parsed
    return inner


def parse_container(text: str) -> JSON:
    """Parse the object or list in `text`, or return None. It is not truncated: the string around it is closed."""
    try:
        value = repair_json(text, finished=False).value
    except BrokenJSON:
        return None
    return value if type(value) in (dict, list, str) else None


# Remove superfluous layers around arguments (toolwire.schema.repair.wrappers), and parse members that hold JSON as text.
#
# Unwrapping is lossless: it happens only where the wrapped form does not fit the schema and exactly one unwrapped
# form does. Where none does, layers are removed as long as the names inside are names of parameters, so that the
# problems that are reported concern the arguments.


_MAX_LAYERS = 6  # each layer is validated. Not measured
_DEPTH = 64  # as DEPTH in parsing/parser.py

Unwrapped: TypeAlias = tuple[JSON, tuple[RepairStep, ...]]


def unwrap(
    root: Node, value: JSON, target: RefResolver, accepts: Callable[[JSON], bool], names: Collection[str] = ()
) -> list[Unwrapped]:
    """Return the possible arguments without their layers, or with a name for a bare list; several if ambiguous.

    `accepts` decides whether arguments are valid; `names` are the tool's names, if they are known. Without a valid
    form, return the innermost one whose names are known.
    """
    root = resolve_refs(root, target)
    declared = declared_names(root, target)
    is_free = isinstance(root, ObjectNode) and not root.properties and not root.closed
    layers: list[Unwrapped] = [(value, ())]
    for _ in range(_MAX_LAYERS):
        outer, steps = layers[-1]
        inner = remove_layer(outer, declared, names)
        if inner is None or (is_free and type(outer) is dict):  # any name may be intended
            break
        layers.append((inner[0], (*steps, inner[1])))
    if (len(layers) == 1 and type(value) is not list) or accepts(value):
        return layers[:1]
    valid = [layer for layer in layers[1:] if accepts(layer[0])]
    if isinstance(root, ObjectNode):
        valid += [named for layer in layers for named in _named_lists(root, layer, target) if accepts(named[0])]
    return valid or [_last_known(root, layers)]


def _named_lists(root: ObjectNode, layer: Unwrapped, target: RefResolver) -> Iterator[Unwrapped]:
    """Yield the arguments in which a list without a name is the value of the only parameter with lists.

    That parameter is required, or is the only one: otherwise the items may be the values of the others. An empty list
    may also be an empty object. Objects that may be arguments themselves are several calls, not one list.
    """
    items, steps = layer
    if type(items) is not list or any(
        type(item) is dict and (not root.properties.keys().isdisjoint(item) or may_be_call(item, frozenset()))
        for item in items
    ):
        return
    lists = [name for name, node in root.properties.items() if _accepts_lists(node, target)]
    for name in lists if len(lists) == 1 else ():
        is_meant = root.required == {name} or (len(root.properties) == 1 and bool(items))
        if is_meant and fits(root.properties[name], items, target):
            yield {name: items}, (*steps, RepairStep("named_list", join(name)))


def _last_known(root: Node, layers: list[Unwrapped]) -> Unwrapped:
    """Return the innermost object that has only names of parameters, or the value as it is."""
    if isinstance(root, ObjectNode) and root.others is None and root.properties:
        for inner, steps in reversed(layers):
            if type(inner) is dict and inner.keys() <= root.properties.keys():
                return inner, steps
    return next((layer for layer in layers if type(layer[0]) is dict), layers[-1])


def declared_names(root: Node, target: RefResolver) -> frozenset[str]:
    """Return the names of parameters, also of all branches of a union."""
    declared, pending, seen = set[str](), [root], set[int]()
    while pending:
        node = resolve_refs(pending.pop(), target)
        if isinstance(node, ObjectNode):
            declared |= node.properties.keys()
        elif isinstance(node, UnionNode) and id(node) not in seen:
            seen.add(id(node))
            pending += node.branches
    return frozenset(declared)


def unwrap_members(root: Node, value: JSON, target: RefResolver) -> tuple[JSON, tuple[RepairStep, ...]]:
    """Parse the objects and lists that the arguments contain as text."""
    members = _MemberUnwrapper(target, coercion_budget(value))
    return members.unwrap(root, value, "", 0), tuple(members.steps)


class _MemberUnwrapper:
    """One walk over a value; `steps` are its changes."""

    __slots__ = ("_budget", "_target", "steps")

    def __init__(self, target: RefResolver, budget: StepBudget) -> None:
        self._target = target
        self._budget = budget
        self.steps: list[RepairStep] = []

    def unwrap(self, node: Node, value: JSON, path: str, depth: int) -> JSON:
        """Parse strings that hold an object or a list, where only the parsed form fits the schema.

        The steps are recorded. A string stays as it is if a number in it may also be text.
        """
        node = resolve_refs(node, self._target)
        if depth > _DEPTH or self._budget.exhausted or fits(node, value, self._target, self._budget):
            return value
        if type(value) is str and _may_hold_container(node, self._target):
            inner = parse_container(value)
            if inner is not None and fits(node, inner, self._target, self._budget):
                if find_spellings(node, inner, parse_as_written(value), self._target).doubtful:
                    return value
                self.steps.append(RepairStep("unwrapped_text", path))
                return inner
        if type(value) is dict and isinstance(node, ObjectNode):
            others = node.others
            return {
                key: item if known is None else self.unwrap(known, item, child_pointer(path, key), depth + 1)
                for key, item in value.items()
                for known in (node.properties.get(key, others),)
            }
        if type(value) is list and isinstance(node, ArrayNode) and node.items is not None:
            items = node.items
            return [self.unwrap(items, item, child_pointer(path, at), depth + 1) for at, item in enumerate(value)]
        return value


def _may_hold_container(node: Node, target: RefResolver) -> bool:
    """Return True if the node accepts an object or a list, directly or in a branch of a union."""
    return any(isinstance(branch, (ObjectNode, ArrayNode, TupleNode)) for branch in find_branches([node], target))


def _accepts_lists(node: Node, target: RefResolver) -> bool:
    return any(isinstance(branch, (ArrayNode, TupleNode)) for branch in find_branches([node], target))
