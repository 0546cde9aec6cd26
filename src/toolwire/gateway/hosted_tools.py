"""Hosted tools that the gateway runs, because the upstream does not: web search, web fetch and code execution.

    [hosted.web_search]
    mcp = "http://127.0.0.1:8931/mcp"
    tool = "search"

The model gets a function of the kind's name. When it calls the function, the tool of the MCP server runs here, and the
model is asked again. The client gets its own items for the run, and a citation for each page that the answer names by
its URL. The output of a tool is untrusted, bounded in time and size, and so is the number of calls of one answer.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from ..bridge.fitting.hosted_tools import fit_run, hosted_codec, read_hosted_tool
from ..ir.errors import ProtocolError
from ..ir.events import ResponseEnd
from ..ir.folding import merge_extra, unfold_end
from ..ir.hosted import REFUSED, Citation, HostedKind, HostedRun, HostedTool, WebPage
from ..ir.losses import Losses
from ..ir.parts import Extra, Opaque, Part, Text, ToolCall, ToolResult
from ..ir.pointer import JSON, join
from ..ir.request import Message, Request
from ..ir.response import Response, Usage
from ..ir.text import to_bytes
from ..ir.tools import Tool, ToolChoice
from ..net.tools.runner import Runner
from ..stream.strict import parse
from ..wire.hosted import HostedCodec
from ..wire.models.capabilities import ModelCapabilities
from ..wire.protocol import Wire

# In every body that declares a hosted tool, so a search for them is enough for nearly all requests.
_NAMES = (b"web_search", b"web_fetch", b"code_execution", b"code_interpreter", b"googleSearch", b"urlContext",
          b"codeExecution", b"google_search", b"url_context")  # fmt: skip
_URL = re.compile(r"https?://[^\s<>\"')\]]+")
_continues = re.compile(r"[\w~%/?#=&+@-]").match  # a URL
_MAX_SOURCES = 20  # more pages than a search returns; a client shows a few of them
_UNKNOWN_LIMITS = ("allowed_domains", "blocked_domains", "location", "context_size")  # fields of `HostedTool`
_INPUTS = ("query", "q", "url", "code", "input", "command")


class HostedService(Struct, frozen=True):
    """The tool that replaces a hosted tool, and its limits."""

    kind: HostedKind
    runner: Runner
    tool: Tool
    max_calls: int = 8
    timeout: float = 30.0
    max_bytes: int = 50_000


def may_declare_hosted(body: bytes) -> bool:
    """Return whether a body may declare a hosted tool, by its names."""
    return any(name in body for name in _NAMES)


def hosted_kinds(wire: Wire, model: ModelCapabilities) -> frozenset[str]:
    """Return the kinds of hosted tools that a target runs."""
    return wire.capabilities.hosted if model.hosted is None else frozenset(model.hosted)


def find_services(
    request: Request, services: Mapping[str, HostedService], runs: frozenset[str]
) -> dict[str, HostedService]:
    """Return the services for the hosted tools of a request that the target, which `runs` some, does not run.

    A kind whose name is the name of a client's function has none, because their calls would be the same.
    """
    found = [read_hosted_tool(tool) for tool in request.tools]
    kinds = {hosted[0].kind for hosted in found if hosted is not None}
    names = {tool.name for tool, hosted in zip(request.tools, found, strict=True) if hosted is None}
    return {kind: services[kind] for kind in services if kind in kinds and kind not in runs and kind not in names}


def may_need_services(services: Mapping[str, HostedService], wire: Wire, model: ModelCapabilities) -> bool:
    """Return whether the gateway may have to run a tool for this target."""
    return bool(services) and not services.keys() <= hosted_kinds(wire, model)


class HostedRuns:
    """The runs of one answer for a client of `wire`."""

    def __init__(self, services: Mapping[str, HostedService], wire: str) -> None:
        self.runs: list[HostedRun] = []
        self.started: Counter[str] = Counter()  # runs by kind, also the ones without an end; refused calls are none
        self.turn_parts: list[list[Opaque]] = []  # for the client: of each run of the last turn, in order
        self._services = dict(services)
        self._losses: list[tuple[str, str]] = []  # path and name of limits that the tools do not have
        self._codec: HostedCodec | None = hosted_codec(wire)
        self._text = ""  # of the whole answer so far
        self._citations: list[Citation] = []

    def is_hosted(self, name: str) -> bool:
        return name in self._services

    def declare(self, request: Request) -> Request:
        """Return the request with functions in place of the hosted tools, and with earlier runs as text."""
        tools: list[Tool] = []
        names: dict[str, str] = {}
        for index, tool in enumerate(request.tools):
            found = read_hosted_tool(tool)
            service = None if found is None else self._services.get(found[0].kind)
            if found is None or service is None:
                tools.append(tool)
                continue
            self._apply_limits(found[0], service, join("tools", index))
            if tool.name not in names:
                names[tool.name] = service.kind
                declared = service.tool
                tools.append(Tool(service.kind, declared.description, declared.input_schema, effect=declared.effect))
        choice = request.choice
        if choice is not None and choice.names:
            choice = replace(choice, names=tuple([names.get(name, name) for name in choice.names]))
        messages = tuple([_write_runs(message) for message in request.messages])
        return replace(request, tools=tuple(tools), choice=choice, messages=messages)

    def _apply_limits(self, hosted: HostedTool, service: HostedService, path: str) -> None:
        """Apply the client's limit of calls. Its other limits are losses: a tool of a server has no such fields."""
        if hosted.max_uses is not None:
            most = min(hosted.max_uses, service.max_calls)
            self._services[service.kind] = replace(service, max_calls=most)
        for field in _UNKNOWN_LIMITS:
            if getattr(hosted, field) not in (None, ()):
                self._losses.append((path, f"{field} of {service.kind}"))

    def report(self, losses: Losses) -> None:
        """Add the limits of the client that have no effect."""
        for path, name in self._losses:
            losses.add(path, name, "dropped", "the tool that the gateway runs has no such field")

    def release_choice(self, request: Request) -> Request:
        """Return the next request without a choice that forces a call: its call has been made."""
        choice = request.choice
        return replace(request, choice=ToolChoice("auto")) if choice is not None and choice.forces_call else request

    async def run(self, call: ToolCall, run_id: str) -> ToolResult:
        """Run one call, within its limits. Its run is kept for the client."""
        service = self._services[call.name]
        is_refused = self.started[service.kind] >= service.max_calls
        if is_refused:
            result = call.result(f"No more calls of {call.name} are possible: answer without it.", is_error=True)
        else:
            inner = replace(call, name=service.tool.name)
            self.started[service.kind] += 1
            try:
                async with asyncio.timeout(service.timeout):
                    (result,) = await service.runner.run([inner], run_id=run_id)
            except TimeoutError:
                result = call.result(f"{call.name} did not answer within {service.timeout:g} seconds", is_error=True)
        result = _cut(replace(result, call_id=call.id, name=call.name), service.max_bytes)
        # Some servers number their calls from 0 in every answer, but the ids of runs must be unique in a conversation.
        run = replace(make_run(service.kind, call, result), id=token_hex(12))
        run = replace(run, error=REFUSED) if is_refused else run
        self.runs.append(run)
        codec = self._codec
        self.turn_parts.append([] if codec is None or codec.write_run is None else codec.write_run(run, run.id))
        return result

    def cite(self, text: str) -> Extra:
        """Return the fields of a text with a citation for each page that it names, in the client's form."""
        pages = {page.url: page for run in self.runs for page in run.sources if page.url}
        citations = []
        for url, page in pages.items():
            start = _find_url(text, url)
            if start >= 0:
                citations.append(Citation(url, page.title, page.text[:150], start, start + len(url)))
        before, self._text = len(self._text), self._text + text
        if self._codec is None or self._codec.read_text is None:
            self._citations += [
                replace(citation, start=citation.start + before, end=citation.end + before) for citation in citations
            ]
            return {}
        return self._codec.write_text(citations)

    def count(self, usage: Usage) -> Usage:
        return usage if self._codec is None or not self.runs else self._codec.write_usage(usage, self.runs)

    def finish(self, end: ResponseEnd) -> ResponseEnd:
        return end if self._codec is None else self._codec.write_end(end, self._text, self.runs, self._citations)

    def finish_response(self, response: Response) -> Response:
        """Return a whole answer with citations, metadata and the number of runs."""
        parts: list[Part] = []
        for part in response.parts:
            extra = self.cite(part.text) if type(part) is Text else {}
            parts.append(replace(part, extra=merge_extra(part.extra, extra)) if extra else part)  # type: ignore[union-attr]
        end = self.finish(unfold_end(response))
        usage = None if response.usage is None else self.count(response.usage)
        return replace(response, parts=tuple(parts), stop=end.stops[0], extra=end.extra, usage=usage)


def _find_url(text: str, url: str) -> int:
    """Return the position of a URL in a text, or -1. A longer URL is another one."""
    start = text.find(url)
    while start >= 0 and _continues(text, start + len(url)):
        start = text.find(url, start + len(url))
    return start


def _write_runs(message: Message) -> Message:
    """Return a message of a history with its runs as text."""
    if not any(type(part) is Opaque for part in message.parts):
        return message
    losses = Losses()
    parts = [fit_run(part, "", losses) or part if type(part) is Opaque else part for part in message.parts]
    return replace(message, parts=tuple(parts))


def _cut(result: ToolResult, most: int) -> ToolResult:
    """Return a result of at most `most` bytes of text, and as many of JSON; media are left out."""
    data = result.text.encode("utf-8", "replace")
    text = data[:most].decode("utf-8", "ignore") + ("\n[shortened]" if len(data) > most else "")
    is_short = len(data) <= most and len(to_bytes(result.structured)) <= most
    return replace(result, parts=(Text(text),), structured=result.structured if is_short else None)


def make_run(kind: HostedKind, call: ToolCall, result: ToolResult) -> HostedRun:
    """Return the run of a call: its inputs, and the pages or the output of its result."""
    arguments = call.arguments or {}
    names = [*_INPUTS, *arguments]
    value = next((arguments[name] for name in names if type(arguments.get(name)) is str), "")
    run = HostedRun(call.id, kind, (value,) if value else ())
    text = "".join([part.text for part in result.parts if isinstance(part, Text)])
    if kind == "code_execution":
        return replace(run, error=text or "failed") if result.is_error else replace(run, output=text)
    if result.is_error:
        return replace(run, error="unavailable")
    if kind == "web_fetch":
        return replace(run, sources=(WebPage(value, "", text),))
    return replace(run, sources=tuple(_read_pages(result.structured, text)[:_MAX_SOURCES]))


def _read_pages(structured: JSON, text: str) -> list[WebPage]:
    """Return the pages of a search: the objects with a URL in its JSON, or else the URLs in its text."""
    value = structured
    if value is None:
        try:
            value = parse(text.encode())
        except ProtocolError:
            value = None
    pages = {page.url: page for page in _find_pages(value)}
    if not pages:
        pages = {found.rstrip(".,;:"): WebPage(found.rstrip(".,;:")) for found in _URL.findall(text)}
    return list(pages.values())


def _find_pages(value: JSON, depth: int = 3) -> list[WebPage]:
    """Return the objects with a URL in JSON of few levels, such as {"results": [{"url", "title", "snippet"}]}."""
    if type(value) is list:
        return [page for item in value for page in _find_pages(item, depth - 1)] if depth else []
    if type(value) is not dict:
        return []
    url = value.get("url") or value.get("link")
    if type(url) is not str:
        return [page for item in value.values() for page in _find_pages(item, depth - 1)] if depth else []
    title = value.get("title")
    texts = [value.get(name) for name in ("snippet", "text", "description", "content", "body")]
    excerpt = next((found for found in texts if type(found) is str), "")
    return [WebPage(url, title if type(title) is str else "", excerpt)]
