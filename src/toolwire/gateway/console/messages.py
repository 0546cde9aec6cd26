"""The requests and answers of the console's API. Its OpenAPI document is made from these types.

Every position is a pair of start and end in UTF-16 code units of the text that its field names, because JavaScript
counts so.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ...ir.pointer import JSON

At: TypeAlias = tuple[int, int]


class ApiRequest(Struct, forbid_unknown_fields=True):
    """The base of requests; an unknown field is an error, so that a misspelt one has no silent effect."""


class TranslateRequest(ApiRequest):
    """A document to show on every wire. `source` is a wire, mcp or a text format; it is detected by default."""

    input: str
    source: str | None = None
    kind: str | None = None
    format: str | None = None
    targets: tuple[str, ...] = ("wires",)
    model: str | None = None
    strict: bool = False
    pretty: bool = False
    tools: str | None = None
    with_source: bool = True


class ElementPlace(Struct):
    id: str
    pointer: str | None
    spans: list[At]
    changed: bool


class LossPlace(Struct):
    path: str
    target: str | None
    concept: str
    action: str
    severity: str
    reason: str
    source_at: At | None = None
    target_at: At | None = None


class FailedTranslation(Struct):
    type: str
    message: str
    pointer: str
    hint: str
    at: At | None = None


class SourceView(Struct):
    name: str
    kind: str
    family: str
    language: str
    detected: bool
    text: str | None
    elements: list[ElementPlace]
    losses: list[LossPlace] = []


class OutputView(Struct):
    name: str
    family: str
    language: str
    text: str | None
    elements: list[ElementPlace]
    losses: list[LossPlace]
    error: FailedTranslation | None
    model: str


class ElementView(Struct):
    kind: str
    label: str
    parent: str | None


class TranslateAnswer(Struct):
    """`elements` describes each id; `left_out` counts elements of a large document that have no places."""

    source: SourceView
    outputs: list[OutputView]
    elements: dict[str, ElementView]
    left_out: int


class StreamRequest(ApiRequest):
    """A recorded stream. `cuts` are offsets in its UTF-8 bytes; or `every` so many bytes; by default, one step per event.

    `end`: the connection breaks after so many bytes.
    """

    input: str
    source: str | None = None
    cuts: list[int] | None = None
    every: int | None = None
    end: int | None = None
    targets: tuple[str, ...] = ("wires",)


class EventView(Struct):
    type: str
    value: JSON


class CallProgress(Struct):
    key: int
    name: str
    arguments: str
    state: Literal["open", "complete", "truncated", "invalid"]


class StreamStep(Struct):
    """The bytes of a chunk, its events, the calls that it changed, and the bytes for each target."""

    at: At
    text: str
    events: list[EventView]
    calls: list[CallProgress]
    targets: dict[str, str]


class StreamEnd(Struct):
    """The end of a stream; `at` is the byte at which it is cut or invalid, in the step number `step`."""

    state: Literal["complete", "truncated", "invalid"]
    message: str | None
    at: int | None
    step: int | None
    open: list[str]


class StreamTarget(Struct):
    losses: list[LossPlace]
    error: str | None


class StreamAnswer(Struct):
    """`boundaries` are the byte ranges of the source's events; `left_out` counts bytes after the last step."""

    source: str
    bytes: int
    boundaries: list[At]
    steps: list[StreamStep]
    end: StreamEnd
    targets: dict[str, StreamTarget]
    left_out: int


class TextRequest(ApiRequest):
    """The output of a model. `tools`: any document with tools, whose schemas determine types."""

    input: str
    format: str | None = None
    tools: str | None = None
    finished: bool = True
    thinking: bool | None = None


class FormatCandidate(Struct):
    name: str
    title: str
    calls: int
    diagnostics: int


class TextPart(Struct):
    kind: str
    text: str
    name: str
    id: str
    arguments: str | None
    state: str


class TextSpan(Struct):
    kind: str
    part: int
    at: At


class TextNote(Struct):
    code: str
    detail: str
    at: At


class TextAnswer(Struct):
    format: str | None
    detected: bool
    candidates: list[FormatCandidate]
    parts: list[TextPart]
    spans: list[TextSpan]
    diagnostics: list[TextNote]


class ToolsRequest(ApiRequest):
    """A document with tools. `details` are the indices of tools whose lowered declarations are in the answer."""

    input: str
    source: str | None = None
    providers: list[str] | None = None
    strict: bool = False
    details: list[int] | None = None


class ToolSummary(Struct):
    name: str
    at: At | None
    tokens: dict[str, int]


class FindingView(Struct):
    rule: str
    tool: int | None
    severity: str
    message: str
    hint: str
    pointer: str
    at: At | None


class SchemaDifference(Struct):
    """A difference between the schema of a tool and its lowered form; values are JSON text."""

    pointer: str
    change: Literal["added", "removed", "changed"]
    before: str | None
    after: str | None
    before_at: At | None = None
    after_at: At | None = None


class LoweredTool(Struct):
    tool: int
    text: str | None
    differences: list[SchemaDifference]
    losses: list[LossPlace]
    error: FailedTranslation | None


class ProviderView(Struct):
    """A provider. `findings` are indices into the findings of the answer, most of which several providers share."""

    name: str
    wire: str
    tokens: int
    findings: list[int]
    tools: list[LoweredTool]
    error: FailedTranslation | None


class ToolsAnswer(Struct):
    source: str
    text: str
    tools: list[ToolSummary]
    findings: list[FindingView]
    providers: list[ProviderView]


class SnippetRequest(ApiRequest):
    """A request to copy as a program. The key is always a variable of the environment."""

    language: Literal["python", "curl", "typescript"]
    wire: str
    document: str
    model: str | None = None
    url: str | None = None
    stream: bool = False


class SnippetAnswer(Struct):
    text: str


class WireView(Struct):
    name: str
    title: str
    kinds: list[str]


class FormatView(Struct):
    name: str
    title: str
    example: str


class Sample(Struct):
    """An example. `view` is the view that it belongs to."""

    id: str
    view: Literal["translate", "stream", "text", "tools"]
    title: str
    input: str
    wire: str | None = None
    kind: str | None = None
    format: str | None = None


class OpenedFile(Struct):
    name: str
    text: str


class ConsoleLimits(Struct):
    body_bytes: int
    elements: int
    steps: int


class MetaAnswer(Struct):
    version: str
    wires: list[WireView]
    formats: list[FormatView]
    kinds: list[str]
    providers: list[str]
    samples: list[Sample]
    file: OpenedFile | None
    limits: ConsoleLimits


class ApiError(Struct):
    type: str
    code: str | None
    message: str
    pointer: str
    hint: str


class ErrorAnswer(Struct):
    error: ApiError


class ReportsAnswer(Struct):
    """Reports of the content security policy: their number, and the last ones."""

    count: int
    reports: list[JSON]
