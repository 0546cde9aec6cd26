"""Reasoning items: a summary, the text if the model shows it, and encrypted content that only its provider can read."""

from __future__ import annotations

from ...ir.parts import Artefact, Reasoning
from ...ir.pointer import JSON, Object
from ..fields import decode_list, read_extra, read_optional_string, require_object, write_extra
from .content import NAME

__all__ = ["PROVIDER", "is_own", "read_reasoning", "write_reasoning"]

PROVIDER = "openai"
_FORM = "openai_responses~"
_REASONING = frozenset({"type", "summary", "content", "encrypted_content"})


def read_reasoning(raw: Object) -> Reasoning:
    """Read a reasoning item; entries with more than their text are kept whole as fields of this wire."""
    encrypted = read_optional_string(raw, "encrypted_content")
    contents, summary = decode_list(raw, "content", _entry_text), decode_list(raw, "summary", _entry_text)
    extra = read_extra(raw, _REASONING, NAME)
    form: Object = {} if NAME in extra else {":item": "reasoning"}  # either marks it as this wire's own
    if raw.get("summary") is None:
        form[":summary"] = "absent"  # or null, which is then in the form
    if len(contents) > 1 or not _is_plain(raw.get("content"), "reasoning_text"):
        extra.setdefault(NAME, {})["content"] = raw["content"]
    if not _is_plain(raw.get("summary"), "summary_text"):
        extra.setdefault(NAME, {})["summary"] = raw["summary"]
    if form:
        extra[_FORM] = {**extra.get(_FORM, {}), **form}
    artefacts = (Artefact(PROVIDER, "encrypted", encrypted),) if encrypted else ()
    return Reasoning("".join(contents), tuple(summary), artefacts, extra)


def _entry_text(entry: JSON) -> str:
    return read_optional_string(require_object(entry), "text") or ""


def _is_plain(entries: list[Object] | None, kind: str) -> bool:
    """Return whether the entries hold nothing but their texts."""
    return not entries or all(len(entry) == 2 and entry.get("type") == kind and entry.get("text") for entry in entries)


def is_own(part: Reasoning) -> bool:
    """Return whether the reasoning came from this wire, so that it can be sent back."""
    if NAME in part.extra or _FORM in part.extra:
        return True
    return any(artefact.provider == PROVIDER for artefact in part.artefacts)


def write_reasoning(part: Reasoning) -> Object:
    """Write a reasoning item, without the encrypted content of other providers."""
    out: Object = {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in part.summary]}
    if not part.summary and ":summary" in part.extra.get(_FORM, {}):
        del out["summary"]
    if part.text:
        out["content"] = [{"type": "reasoning_text", "text": part.text}]
    for artefact in part.artefacts:
        if artefact.provider == PROVIDER:
            out["encrypted_content"] = artefact.data
    return write_extra(out, part.extra, NAME)
