"""Make docs/translation.md: the outcome of each statement of a request, for each pair of wires.

A statement is written on the source wire and translated, with and without the thing that it states. The outcome follows
from the losses that this thing adds. A test decodes the translated documents and compares them with the outcomes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from request_statements import GROUPS, STATEMENTS
from statements import Statement

import toolwire
from toolwire.bridge.translation.preparation import prepare
from toolwire.ir import Loss, Request
from toolwire.ir.errors import ToolwireError
from toolwire.ir.pointer import Object
from toolwire.wire import ModelCapabilities, get, names
from toolwire.wire.protocol import Wire

__all__ = ["MODELS", "TRANSLATION_PAGE", "Outcome", "outcomes", "translation_page"]

TRANSLATION_PAGE = Path(__file__).with_name("translation.md")
MODELS = {
    "anthropic": "claude-opus-5",
    "bedrock": "us.anthropic.claude-opus-5-v1:0",
    "gemini": "gemini-3.5-flash",
    "gemini_interactions": "gemini-3.5-flash",
    "cohere": "command-a-vision-07-2025",
    "ollama": "qwen3-vl",
    "openai_chat": "gpt-5.2",
    "openai_responses": "gpt-5.2",
}
SYMBOLS = {"carried": "✓", "rewritten": "~", "lost": "✗", "refused": "!"}


class Outcome(NamedTuple):
    """The outcome of a statement from one wire to another: carried, rewritten, lost or refused.

    `document` is the source document with the statement, and `body` and `plain` are the translations with and without
    it; None if refused. `losses` are those that the statement adds.
    """

    statement: Statement
    source: str
    target: str
    kind: str
    detail: str
    document: Object
    body: Object | None
    plain: Object | None
    losses: tuple[Loss, ...]


Outcomes: TypeAlias = dict[tuple[str, str, str], Outcome]  # by statement, source and target


def outcomes() -> Iterator[Outcome]:
    """Return the outcome of each statement for each pair of wires whose source can express it."""
    for statement in STATEMENTS:
        for source in names():
            documents = write(statement, source)
            if documents is not None:
                for target in names():
                    if target != source:
                        yield translate(statement, source, target, *documents)


def write(statement: Statement, source: str) -> tuple[Object, Object] | None:
    """Write a request without and with the statement; None if no version of the wire can express it without a loss."""
    newest = get(source)
    for wire in (newest, *getattr(newest, "older", ())):
        write_request = wire.encode_request if statement.unfitted else partial(encode, wire=wire)
        before, old = write_request(statement.before)
        try:
            after, new = write_request(statement.on(source))
        except ToolwireError:
            continue
        is_stated = statement.read(wire.decode_request(after)) == statement.read(statement.on(source))
        if after != before and is_stated and not fresh_losses(old, new):
            return before, after
    return None


def encode(request: Request, wire: Wire) -> tuple[Object, tuple[Loss, ...]]:
    # The calls of the source need no signature: their model is unknown.
    prepared = prepare(request, wire, capabilities=ModelCapabilities(signed_calls=False))
    body, losses = wire.encode_request(prepared.request)
    return body, (*prepared.losses, *losses)


def fresh_losses(old: Iterable[Loss], new: Iterable[Loss]) -> tuple[Loss, ...]:
    known = {(loss.concept, loss.action, loss.detail) for loss in old}
    return tuple(loss for loss in new if (loss.concept, loss.action, loss.detail) not in known)


def translate(statement: Statement, source: str, target: str, before: Object, after: Object) -> Outcome:
    plain = toolwire.translate(before, source=source, target=target, model=MODELS[target])
    try:
        made = toolwire.translate(after, source=source, target=target, model=MODELS[target])
    except ToolwireError as error:
        return Outcome(statement, source, target, "refused", str(error.message), after, None, plain.body, ())
    losses = fresh_losses(plain.losses, made.losses)
    kind = classify(losses, is_same=made.body == plain.body)
    detail = "; ".join(dict.fromkeys(loss.detail for loss in losses))
    return Outcome(statement, source, target, kind, detail, after, made.body, plain.body, losses)


def classify(losses: tuple[Loss, ...], *, is_same: bool) -> str:
    """Return the outcome; `is_same`: the target's document does not depend on the statement."""
    if any(loss.action == "dropped" and loss.severity != "info" for loss in losses):
        return "lost"
    if is_same and any(loss.action in ("dropped", "weakened") for loss in losses):
        return "lost"
    return "rewritten" if losses else "carried"


HEAD = """# Translations of a request

Generated by `make docs` from the code: each statement is written on each wire that can express it and translated to
every other wire. A test decodes the results and compares them with this page. [Wires](wires.md) lists the field of
each statement, and [losses](losses.md) explains how losses are reported.

| | meaning |
|---|---|
| ✓ | carried: the target states the same, or always behaves in this way |
| ~ | rewritten: stated in another way or in another location, or less precisely; reported as a loss |
| ✗ | lost: the target does not state it; reported as a loss |
| ! | refused: an error is raised, because the answer would be wrong or the target would reject the request |
| – | the source wire cannot state it |

The outcome depends on the model of the target. In these tables it is
{models}.
An unknown model has the limits of its wire only; see [model capabilities](capabilities.md). A request whose source and
target wire are the same is not changed. Statements that no other wire can state are left out of the table of a target.
"""


def translation_page() -> str:
    """Return the page: a summary of all pairs, then a table for each target."""
    found = {(o.statement.name, o.source, o.target): o for o in outcomes()}
    models = ", ".join(f"`{model}` ({wire})" for wire, model in MODELS.items())
    lines = [*HEAD.format(models=models).splitlines(), "", "## All pairs", "", *_summary(found)]
    for target in names():
        lines += ["", f"## To {target}", "", *_target_table(found, target)]
    return "\n".join([*lines, ""])


def _summary(found: Outcomes) -> list[str]:
    """Return the number of statements by outcome for each pair."""
    lines = ["| from \\ to | " + " | ".join(f"[{name}](#to-{name})" for name in names()) + " |"]
    lines.append("|---" * (len(names()) + 1) + "|")
    for source in names():
        cells = [_count(found, source, target) for target in names()]
        lines.append(f"| {source} | " + " | ".join(cells) + " |")
    return lines


def _count(found: Outcomes, source: str, target: str) -> str:
    kinds = Counter(o.kind for (_, start, end), o in found.items() if (start, end) == (source, target))
    return " ".join(f"{kinds[kind]} {symbol}" for kind, symbol in SYMBOLS.items() if kinds[kind]) or "–"


def _target_table(found: Outcomes, target: str) -> list[str]:
    """Return the table of one target: a column for each source, and the details of rewritten and lost statements."""
    sources = [name for name in names() if name != target]
    lines = ["| | " + " | ".join(sources) + " | details |", "|---" * (len(sources) + 2) + "|"]
    for group, statements in GROUPS.items():
        rows = []
        for statement in statements:
            row = [found.get((statement.name, source, target)) for source in sources]
            if any(row):
                symbols = [SYMBOLS[outcome.kind] if outcome else "–" for outcome in row]
                details = _details([outcome for outcome in row if outcome and outcome.detail])
                rows.append(f"| {statement.name} | {' | '.join(symbols)} | {details}".rstrip() + " |")
        lines += [f"| **{group}** |" + " |" * (len(sources) + 1), *rows]
    return lines


def _details(outcomes: list[Outcome]) -> str:
    """Return the details, each once; those that not all sources share are marked with their sources."""
    by_detail: dict[str, list[str]] = {}
    for outcome in outcomes:
        detail = outcome.detail.replace(f"specific to {outcome.source}", "specific to the source wire")
        by_detail.setdefault(detail, []).append(outcome.source)
    if len(by_detail) == 1:
        return _escape(next(iter(by_detail)))
    return "; ".join(f"*{', '.join(sources)}*: {_escape(detail)}" for detail, sources in by_detail.items())


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
