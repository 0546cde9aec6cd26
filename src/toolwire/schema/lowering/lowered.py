"""Lower a schema to a provider's dialect, and lift the arguments back to the original schema.

    lowered = lower(schema, "openai_strict")
    lowered.schema                  the schema to send
    lowered.lift(arguments)         the model's arguments, for the original schema
    lowered.encode(arguments)       the reverse: for earlier calls in a conversation, and for training data
    lowered.losses                  the constraints that the provider will not enforce

Constraints that a dialect cannot express move into the description. The caller that runs the tool checks the original
schema, so arguments that it forbids are still rejected. The input is never changed, and a valid schema never raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...ir.errors import ProtocolError
from ...ir.losses import Loss, Losses
from ...ir.pointer import JSON, Object, join, split
from ...ir.text import to_bytes
from ...stream.strict import parse
from ..bounds import content_cache
from ..dialects import DIALECTS, OUTPUT_DIALECTS, Dialect, dialect
from ..parsing.parser import ParsedSchema, parse_schema
from ..validation.patterns import unchecked_patterns
from .codec import Codec, apply_codec
from .conformance import is_conforming, provider_risks, violations, walk
from .emission import Emitted
from .emitter import Emitter


class Lowered:
    """One schema in one dialect."""

    __slots__ = ("codec", "dialect", "losses", "problem", "schema", "unchanged")

    def __init__(
        self, schema: Object, codec: Codec | None, losses: tuple[Loss, ...], into: Dialect, problem: str | None = None
    ) -> None:
        self.schema = schema
        self.losses = losses
        self.dialect = into
        self.problem = problem
        """The first reason why the dialect rejects the result, or None. All reasons are among the losses."""
        self.codec = codec
        self.unchanged = False
        """The schema is the input itself."""

    @property
    def conforms(self) -> bool:
        return self.problem is None

    @property
    def changes_arguments(self) -> bool:
        return self.codec is not None

    def lift(self, arguments: JSON) -> JSON:
        return arguments if self.codec is None else apply_codec(self.codec.lift, arguments)

    def encode(self, arguments: JSON) -> JSON:
        return arguments if self.codec is None else apply_codec(self.codec.encode, arguments)


def lower(schema: JSON, into: str | Dialect) -> Lowered:
    """Lower `schema` to the dialect. Results are cached by content and shared, so do not modify them."""
    if isinstance(into, str):
        return lower_all(schema, (into,))[0]
    if into is not DIALECTS.get(into.name) and into is not OUTPUT_DIALECTS.get(into.name):
        return _lower(schema, into, lambda: parse_schema(schema, output=into.output))
    return lower_all(schema, (into.name,))[0]


def lower_all(schema: JSON, names: Sequence[str]) -> list[Lowered]:
    """Lower a schema to several dialects; it is read once."""
    content = to_bytes(schema)
    try:
        return [_lower_cached(content, dialect(name).name) for name in names]
    except ProtocolError:  # nested too deeply to be parsed again
        rows = map(dialect, names)
        return [_lower(schema, row, partial(parse_schema, schema, output=row.output)) for row in rows]


@content_cache(4 * 1024 * 1024)
def _lower_cached(content: bytes, name: str) -> Lowered:
    row = dialect(name)
    return _lower(_parse_cached(content), row, lambda: _read_cached(content, row.output))


@content_cache(1024 * 1024)
def _parse_cached(content: bytes) -> JSON:
    return parse(content)


@content_cache(1024 * 1024)
def _read_cached(content: bytes, output: bool) -> ParsedSchema:
    return parse_schema(_parse_cached(content), output=output)


def _lower(schema: JSON, row: Dialect, read_source: Callable[[], ParsedSchema]) -> Lowered:
    """Lower without a cache. A schema that already conforms to the dialect is returned itself.

    `read_source` parses the schema, and is called only if it has to be rewritten.
    """
    if type(schema) is dict and is_conforming(schema, row):
        losses = Losses()
        for use in unchecked_patterns(schema):
            losses.add(use.at, "pattern", "weakened", f"checked by the provider only: {use.reason}", "info")
        _report_provider_risks(schema, row, losses)
        _report_ignored(schema, row, losses)
        whole = Lowered(schema, None, tuple(losses), row)
        whole.unchanged = True
        return whole
    return rewrite(read_source(), row)


def rewrite(source: ParsedSchema, row: Dialect) -> Lowered:
    """Lower a parsed schema, whether it conforms already or not, with all losses and the dialect's objections."""
    losses = Losses()
    emitted = _emit(source, row, losses)
    for finding in source.defects:
        losses.add(finding.at, "schema", "weakened", finding.message, "warning")
    for pointer, kind in source.implied_types:
        losses.add(pointer, "unstated type", "rewritten", f"read as {kind}; other values cannot be written", "info")
    for pointer in source.ignored_keywords:
        losses.add(pointer, split(pointer)[-1], "dropped", "it has no meaning for a model", "info")
    problems = violations(emitted.schema, row)
    for problem in problems:
        losses.add("", "schema", "weakened", f"{row.name} does not accept it: {problem}", "error")
    _report_provider_risks(emitted.schema, row, losses)
    _report_ignored(source.document, row, losses)
    return Lowered(emitted.schema, emitted.codec, tuple(losses), row, problems[0] if problems else None)


def _report_provider_risks(schema: Object, row: Dialect, losses: Losses) -> None:
    for risk in provider_risks(schema, row):
        losses.add("", "schema", "weakened", f"{row.name} may reject it: {risk}", "warning")


def _report_ignored(schema: JSON, row: Dialect, losses: Losses) -> None:
    if not row.ignored or type(schema) is not dict:
        return
    for at, node, _ in walk(schema):
        for keyword in node:
            if keyword in row.ignored:
                losses.add(at + join(keyword), keyword, "weakened", "sent, not enforced")


def _emit(source: ParsedSchema, row: Dialect, losses: Losses) -> Emitted:
    """Emit the schema with its definitions, and add the losses to `losses`.

    A reference to a definition that is still being emitted needs to know whether its values change. So the schema is
    emitted again until no further changed definition is found.
    """
    changed: frozenset[str] = frozenset()
    while True:
        emitter = Emitter(source, row, Losses(), changed)
        emitted = emitter.emit_root()
        if emitter.changed <= changed:
            break
        changed = emitter.affected_definitions()
    losses.extend(emitter.losses)
    for use in source.unchecked:
        if use.pattern not in emitter.reported:
            losses.add(use.at, "pattern", "weakened", f"checked nowhere: {use.reason}")
    if not emitter.defs:
        return emitted
    return Emitted({**emitted.schema, "$defs": emitter.defs}, emitted.codec)
