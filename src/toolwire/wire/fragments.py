"""Fields of a stream that no decoder interprets, put together from their fragments.

A server may stream a field in fragments: the audio of an answer, OpenRouter's `reasoning_details`, a kind of block that
is newer than this package. Objects are joined field by field and arrays element by element. Array elements with the
same `index` and `type` are one element (the rule of OpenAI's SDK). Strings under one of the keys that grow are
concatenated. Any other value replaces the one before it, because servers repeat such values in every fragment.

Fragments are kept until `join` is called, so the cost is linear in their size. A scalar replaces its predecessor at
once.
"""

from __future__ import annotations

from collections.abc import Collection

from ..ir.pointer import JSON, Object
from .base_decoder import join_mapped_surrogates

__all__ = ["Fragments"]

_GROWING = frozenset({"content", "data", "partial_json", "summary", "text", "thinking", "transcript"})


class Fragments:
    """Collect fields with `add`, read them with `join`.

    >>> fragments = Fragments()
    >>> fragments.add({"audio": {"id": "a", "transcript": "Hel"}})
    >>> fragments.add({"audio": {"transcript": "lo"}, "channel": "final"})
    >>> fragments.join()
    {'audio': {'id': 'a', 'transcript': 'Hello'}, 'channel': 'final'}
    """

    __slots__ = ("_growing", "_values")

    def __init__(self, growing: Collection[str] = _GROWING) -> None:
        self._growing = growing
        self._values: dict[str, list[JSON]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def add(self, fields: Object) -> None:
        """Add the fields of one fragment; null does not replace a value that is already there."""
        for key, value in fields.items():
            if value is None and key in self._values:
                continue
            if key in self._growing or type(value) is dict or type(value) is list:
                self._values.setdefault(key, []).append(value)
            else:
                self._values[key] = [value]

    def join(self) -> Object:
        return {key: self._join(key, values) for key, values in self._values.items()}

    def _join(self, key: str, values: list[JSON]) -> JSON:
        """Join the values of one field; values that cannot be joined give the last one."""
        if all(type(value) is dict for value in values):
            inner = Fragments(self._growing)
            for value in values:
                inner.add(value)
            return inner.join()
        if all(type(value) is list for value in values):
            return self._join_elements([element for value in values for element in value])
        texts = [value for value in values if type(value) is str]
        if texts and key in self._growing and len(texts) == sum(value is not None for value in values):
            return join_mapped_surrogates("".join(texts))
        return values[-1]

    def _join_elements(self, elements: list[JSON]) -> list[JSON]:
        """Join array elements with the same `index` and `type`; an element without an index remains on its own."""
        groups: dict[object, list[JSON]] = {}
        kinds: dict[int, str] = {}  # by index: the last type, for fragments that do not repeat it
        for number, element in enumerate(elements):
            index = element.get("index") if type(element) is dict else None
            if type(index) is not int:
                groups[f"#{number}"] = [element]
                continue
            kind = kinds[index] = str(element.get("type", kinds.get(index, "")))
            groups.setdefault((index, kind), []).append(element)
        return [self._join("", group) for group in groups.values()]
