"""Emit the annotations of a schema, state constraints that the dialect cannot express, and report losses."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...ir.losses import Losses
from ...ir.pointer import JSON, Object, nearest_existing, split
from ...ir.text import dumps
from ..dialects import Dialect
from ..keywords import READ_KEYWORDS, has_old_forms
from ..parsing.nodes import Node, ObjectNode, RefNode
from ..parsing.parser import ParsedSchema
from . import scalars
from .codec import Codec, apply_codec
from .emission import CountBound, mentions_illegal


class AnnotationEmitter:
    """Describes the nodes of one schema in one dialect, and collects the losses."""

    def __init__(self, source: ParsedSchema, dialect: Dialect, losses: Losses) -> None:
        self.dialect = dialect
        self.losses = losses
        self.reported: set[str] = set()
        """Patterns that have been reported."""
        self.root_object: ObjectNode | None = None
        self._document = source.document
        self._unchecked = {use.pattern: use.reason for use in source.unchecked}

    def add_description(
        self, schema: Object, node: Node, remarks: list[str], codec: Codec | None = None, *, repeats: bool = True
    ) -> Object:
        """Add the annotations to a schema, and the constraints that the dialect cannot express to its description.

        Such constraints and dropped annotations are reported as losses.

        `codec` converts the values of the emitted schema. A value of another type is not subject to the assertions of
        the source, so they are repeated only if the type is the same. `repeats`: they apply to the emitted schema.
        """
        repeats = repeats and not (codec is not None and codec.reshapes)
        for keyword, value in node.unmodelled.items():
            if repeats and self.can_repeat(node, keyword):
                schema.update(value if keyword == "if" else {keyword: value})
                continue
            remarks = [*remarks, f"{keyword}: {scalars.short_value(value)}"]
            self.report_unenforced(node, keyword)
        can = self.dialect.keywords
        for keyword in ("default", "title", "examples", "example", "deprecated"):
            if keyword in node.annotations and keyword in can:
                schema[keyword] = _encode_annotation(keyword, node.annotations[keyword], codec)
        text = self._describe(node, remarks, codec, can)
        if text:
            schema["description"] = text
        return schema

    def describe(self, node: Node, codec: Codec | None) -> str:
        """Return the description for a place where the dialect allows no other keyword; report the others."""
        remarks: list[str] = []
        for keyword, value in node.unmodelled.items():
            remarks.append(f"{keyword}: {scalars.short_value(value)}")
            self.report_unenforced(node, keyword)
        return self._describe(node, remarks, codec, frozenset())

    def _describe(self, node: Node, remarks: list[str], codec: Codec | None, can: frozenset[str]) -> str:
        """Return the description with the remarks and the default; report annotations for which it has no place."""
        annotations = node.annotations
        if "default" in annotations and "default" not in can:
            if annotations["default"] is not None:
                default = _encode_annotation("default", annotations["default"], codec)
                remarks = [*remarks, f"default: {scalars.short_value(default)}"]
            else:
                self.report_omitted(node, "default", "a default of null means the same as absent")
        for keyword in ("title", "examples", "example", "deprecated"):
            if keyword in annotations and keyword not in can:
                self.report_omitted(node, keyword, "the dialect has no keyword for it")
        description = annotations.get("description")
        text = description if type(description) is str else ""
        if remarks and self._is_description_read(node):
            note = "; ".join(remarks)
            text = f"{text} ({note})" if text else note
        return text

    def can_repeat(self, node: Node, keyword: str) -> bool:
        """Return True if an assertion that nodes have no field for can be emitted unchanged.

        A reference may point to a definition that is not emitted, and `unevaluated…` depends on other subschemas, which
        are no longer there.
        """
        if keyword not in self.dialect.keywords or self.dialect.enforced:
            return False
        value = node.unmodelled[keyword]
        text = dumps({keyword: value})
        if keyword.startswith("$") or "unevaluated" in text or "$ref" in text or has_old_forms(value):
            return False
        if mentions_illegal(self.dialect.property_name, {keyword: value}):
            return False
        at_root = self._is_root(node) and not self.dialect.any_root
        return not (at_root and keyword in ("anyOf", "oneOf", "allOf", "not"))

    def _is_description_read(self, node: Node) -> bool:
        return not self._is_root(node) or self.dialect.root_description

    def _is_root(self, node: Node) -> bool:
        """Return True also if a reference or a combinator at the root resolves to the node."""
        return node.at == "" or node is self.root_object

    def _locate(self, node: Node, keyword: str) -> tuple[str, str]:
        """Return the pointer and the name of a keyword as written in the source, or of the schema around it."""
        pointer = node.pointer(keyword)
        if nearest_existing(self._document, pointer) != pointer:
            return nearest_existing(self._document, node.at), "schema"
        written = split(pointer)[-1] if pointer else ""
        return pointer, written if written in READ_KEYWORDS else "schema"

    def report_unenforced(self, node: Node, keyword: str, detail: str = "") -> None:
        """Add a loss for a keyword that the provider does not enforce."""
        note = "stated in the description" if self._is_description_read(node) else "not stated"
        pointer, written = self._locate(node, keyword)
        check = "not enforced" if self.dialect.output else "checked afterwards"
        self.losses.add(pointer, written, "weakened", detail or f"{note}, {check}")

    def report_pattern(self, node: Node, pattern: str, is_sent: bool) -> None:
        """Report a pattern as a loss if the provider (`is_sent`) or the local validator does not check it."""
        self.reported.add(pattern)
        reason = self._unchecked.get(pattern)
        if reason is None:
            if not is_sent:
                self.report_unenforced(node, "pattern")
        elif is_sent:
            pointer, written = self._locate(node, "pattern")
            self.losses.add(pointer, written, "weakened", f"checked by the provider only: {reason}", "info")
        else:
            note = "stated in the description" if self._is_description_read(node) else "not stated"
            self.report_unenforced(node, "pattern", f"{note}, checked nowhere: {reason}")

    def report_omitted(self, node: Node, keyword: str, detail: str) -> None:
        """Report a dropped keyword that changes no accepted value."""
        pointer, written = self._locate(node, keyword)
        self.losses.add(pointer, written, "dropped", detail, "info")

    def report_rewrite(self, node: Node, concept: str, detail: str, keyword: str | None = None) -> None:
        """Report another form with the same meaning, of a whole schema (`concept`) or of one keyword."""
        pointer, written = (node.at, concept) if keyword is None else self._locate(node, keyword)
        self.losses.add(pointer, written, "rewritten", detail, "info")

    def add_counts(self, out: Object, remarks: list[str], node: Node, counts: Sequence[CountBound]) -> None:
        """Add bounds on the number of items. A minimum above the limit of the dialect is reduced to it, and stated."""
        for keyword, source, value in counts:
            if value is None:
                continue
            most = self.dialect.most_min_items if keyword == "minItems" else None
            if keyword in self.dialect.keywords and (most is None or value <= most):
                out[keyword] = value
                continue
            if keyword in self.dialect.keywords and most is not None:
                out[keyword] = most
            remarks.append(f"{source}: {value}")
            self.report_unenforced(node, source)

    def drop_weak_siblings(self, node: RefNode) -> RefNode:
        """Drop annotations that are not worth a wrapper around `$ref`: a title, and a default of null."""
        weak = {"title": "the definition has its own", "default": "a default of null means the same as absent"}
        dropped = [
            keyword
            for keyword in weak.keys() & node.annotations.keys() & self.dialect.keywords
            if keyword == "title" or (node.annotations[keyword] is None and not self.dialect.ref_siblings)
        ]
        for keyword in dropped:
            self.report_omitted(node, keyword, weak[keyword])
        return replace(node, annotations={k: v for k, v in node.annotations.items() if k not in dropped})

    def without_values(self, node: RefNode) -> RefNode:
        """Drop annotations that are values of a definition whose codec is not known yet."""
        for keyword in _VALUES & node.annotations.keys():
            self.report_omitted(node, keyword, "it has another form in this dialect")
        return replace(node, annotations={k: v for k, v in node.annotations.items() if k not in _VALUES})


_VALUES = frozenset({"default", "example", "examples"})


def _encode_annotation(keyword: str, value: JSON, codec: Codec | None) -> JSON:
    """Return an annotation that is a value, or a list of values, in the form of the emitted schema."""
    if codec is None or keyword not in _VALUES:
        return value
    if keyword == "examples":
        return [apply_codec(codec.encode, item) for item in value] if type(value) is list else value
    return apply_codec(codec.encode, value)
