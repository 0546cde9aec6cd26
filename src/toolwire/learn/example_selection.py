"""Select training examples: without duplicates, balanced by tool, and split into train and test.

All choices are by hashes with a seed: the same examples give the same selection on every machine and in any order.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.parts import Text, ToolCall, ToolResult
from ..ir.text import to_bytes
from ..ir.value import Value
from .examples import Example

__all__ = ["ExampleKey", "balance", "hide_tools", "hold_out_tools", "is_held_out", "key_of", "tool_counts"]

_SEPARATORS = re.compile(r"[\W_]+")
NO_CALL = "(no call)"
"""The name that examples without calls are counted under."""


class ExampleKey(Value, frozen=True):
    """The identity of an example: `exact` of all its content, `near` of its normalised questions and called tools."""

    exact: bytes
    near: bytes
    called: tuple[str, ...]


def key_of(example: Example) -> ExampleKey:
    """Return the key. Ids do not count, nor does the place that the example came from."""
    messages = [[message.role, [_content(part) for part in message.parts]] for message in example.messages]
    tools = [[tool.namespace, tool.name, tool.description, tool.input_schema] for tool in example.tools]
    exact = to_bytes([messages, tools, list(example.weights), example.parallel], sort_keys=True)
    near = to_bytes([normal_question(example), example.called_names])
    return ExampleKey(_digest(exact), _digest(near), example.called_names)


def normal_question(example: Example) -> str:
    """Return the texts of the user in lower case, without punctuation and repeated spaces."""
    return _SEPARATORS.sub(" ", example.user_text.casefold()).strip()


def _content(part: object) -> object:
    if isinstance(part, ToolCall):
        return ["call", part.namespace, part.name, part.arguments if part.arguments is not None else part.raw]
    if isinstance(part, ToolResult):
        return ["result", part.name, part.text, part.is_error]
    return ["text", part.text] if isinstance(part, Text) else msgspec.to_builtins(part)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _chance(seed: int, data: bytes) -> float:
    """Return a number from 0 to 1 that depends only on the seed and the data."""
    digest = hashlib.blake2b(data, digest_size=8, key=str(seed).encode()[:64]).digest()
    return int.from_bytes(digest) / 2**64


def tool_counts(keys: Iterable[ExampleKey]) -> dict[str, int]:
    """Count the examples that call each tool, most frequent first; those without calls are `(no call)`."""
    counts = Counter(name for key in keys for name in (key.called or (NO_CALL,)))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def balance(
    keys: Mapping[int, ExampleKey], *, max_per_tool: int | None = None, min_per_tool: int | None = None, seed: int = 0
) -> dict[int, str]:
    """Return the examples to leave out, by their numbers, with the reasons.

    An example that calls a tool with fewer than `min_per_tool` examples is left out. Of a tool with more than
    `max_per_tool`, a random part is kept; an example stays if one of its tools still needs it.
    """
    for name, bound in (("max_per_tool", max_per_tool), ("min_per_tool", min_per_tool)):
        if bound is not None and bound < 1:
            raise ConfigError(f"{name} must be positive, got {bound}")
    left_out: dict[int, str] = {}
    if min_per_tool is not None:
        counts = tool_counts(keys.values())
        for number, key in keys.items():
            rare = next((name for name in key.called if counts[name] < min_per_tool), None)
            if rare is not None:
                left_out[number] = f"a tool has fewer than {min_per_tool} examples"
    if max_per_tool is not None:
        kept: Counter[str] = Counter()
        remaining = [number for number in keys if number not in left_out]
        for number in sorted(remaining, key=lambda number: (_chance(seed, keys[number].exact), number)):
            names = keys[number].called or (NO_CALL,)
            if all(kept[name] >= max_per_tool for name in names):
                left_out[number] = f"its tools have {max_per_tool} other examples"
            else:
                kept.update(names)
    return left_out


def hold_out_tools(names: Iterable[str], share: float, seed: int = 0) -> frozenset[str]:
    """Choose the tools that only the test set may contain: a share of them, at least one, and not all."""
    _check_share(share)
    known = sorted(set(names))
    if len(known) < 2:
        raise ConfigError(f"a split by tool needs at least 2 called tools, got {len(known)}", hint="split by example")
    count = min(len(known) - 1, max(1, math.floor(len(known) * share + 0.5)))
    ranked: Sequence[str] = sorted(known, key=lambda name: (_chance(seed, name.encode()), name))
    return frozenset(ranked[:count])


def _check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ConfigError(f"the share of the test set must be between 0 and 1, got {share}")


def is_held_out(key: ExampleKey, share: float, seed: int = 0) -> bool:
    """Return whether an example belongs to the test set of a split by example. Near-duplicates stay together."""
    _check_share(share)
    return _chance(seed, key.near) < share


def hide_tools(example: Example, names: frozenset[str]) -> Example:
    """Return the example without the declarations of these tools, so that the training set does not contain them."""
    tools = tuple(tool for tool in example.tools if tool.name not in names)
    return example if len(tools) == len(example.tools) else replace(example, tools=tools)
