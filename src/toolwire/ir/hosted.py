"""Hosted tools: web search, web fetch and code execution, which the provider runs within its answer.

A hosted tool is declared as a built-in tool. Its runs are opaque parts of the answer, or metadata at the end of it, and
the text of the answer cites its sources. They stay opaque on their own wire. For another wire, the codecs of both
(`wire.hosted`) convert them to and from the values of this module:

    HostedTool    a declaration, without the fields that only one provider has
    HostedRun     a call and its result. Some wires have two parts for it, so a run has a `phase`
    Citation      a source of a passage of the text

A gateway that runs these tools itself uses the same values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeAlias

from .value import Value

HostedKind: TypeAlias = Literal["web_search", "web_fetch", "code_execution"]
ISSUED_HERE = "TOOLWIRE~"
"""In ids and encrypted contents that this package issued in place of a provider, which would refuse them. Theirs are
letters, digits and base64, which has no tilde."""
REFUSED = "max_uses_exceeded"
"""The error of a call beyond the number of runs that an answer may have; the code is Anthropic's."""
HOSTED_KINDS: tuple[HostedKind, ...] = ("web_search", "web_fetch", "code_execution")


class Location(Value, frozen=True):
    """The approximate location of the user, for search results."""

    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None


class HostedTool(Value, frozen=True):
    """The declaration of a hosted tool. None and empty: not limited."""

    kind: HostedKind
    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    location: Location | None = None
    context_size: str | None = None  # low, medium or high


class WebPage(Value, frozen=True):
    """A page that a run found or fetched. `text` is its content or an excerpt, as far as the provider shows it."""

    url: str
    title: str = ""
    text: str = ""
    age: str | None = None  # as the provider shows it: "April 30, 2026"


class HostedRun(Value, frozen=True):
    """One run of a hosted tool: its `inputs` (queries, URLs, or the code) and its result.

    `phase` is the part of the run that the value holds. A result without a `call_id` belongs to the call before it.
    """

    id: str
    kind: HostedKind
    inputs: tuple[str, ...] = ()
    sources: tuple[WebPage, ...] = ()
    output: str = ""  # of the code
    error: str | None = None  # the code of an error, or the text of a failed program
    phase: Literal["call", "result", "whole"] = "whole"


class Citation(Value, frozen=True):
    """A source of the characters `start` to `end` of a text; both are 0 if the passage is not known.

    `text` is the cited passage of the source.
    """

    url: str
    title: str = ""
    text: str = ""
    start: int = 0
    end: int = 0


def count_runs(runs: Iterable[HostedRun]) -> dict[str, int]:
    """Return the number of runs by kind. A call that was refused is none."""
    return dict(Counter([run.kind for run in runs if run.error != REFUSED]))


def render_run(run: HostedRun) -> str:
    """Return a run as text, for a model whose provider has no such run in a history."""
    lines = [f"[{run.kind}: {'; '.join(run.inputs)}]" if run.inputs else f"[{run.kind} result]"]
    if run.error is not None:
        lines.append(f"error: {run.error}")
    lines += [run.output.strip()] if run.output.strip() else []
    for number, source in enumerate(run.sources, 1):
        lines.append(f"{number}. {f'{source.title} - ' if source.title else ''}{source.url}")
        lines += [source.text.strip()] if source.text.strip() else []
    return "\n".join(lines)
