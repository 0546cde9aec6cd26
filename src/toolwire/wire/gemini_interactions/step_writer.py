"""Write messages and parts as steps."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.losses import Losses
from ...ir.parts import Artefact, Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, part_label
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ..codec import report_search_call
from ..content import found_as_text, placeholder_arguments, structured_as_text
from ..fields import restore_form, write_extra
from .content import FOREIGN, FORM, LABEL, NAME, PROVIDER, has_own_fields, is_content, is_empty_text, write_content
from .steps import STEP, is_bare, is_joined


def write_messages_steps(message: Message, path: str, losses: Losses) -> Iterator[Object]:
    """Yield the steps of one message; parts without a step are losses."""
    if message.role == "assistant":
        yield from write_model_steps(message.parts, path, losses)
        return
    form = message.extra.get(FORM, {})
    contents: list[Object] = []
    has_steps = False
    for number, part in enumerate(message.parts):
        where = f"{path}/parts/{number}"
        if isinstance(part, ToolResult):
            result = write_result(part, losses, where)
            if ":place" in part.extra.get(FORM, {}):
                contents.append(result)
                continue
        elif isinstance(part, Opaque) and part.wire == NAME and not is_content(part):
            result = part.value
        else:
            content = write_content(_as_input(part, losses, where), losses, where)
            if content is not None:
                contents.append(content)
            continue
        if contents:
            yield from _write_input(message, contents, form)
            contents = []
        has_steps = True
        yield result
    if contents or not has_steps:
        yield from _write_input(message, contents, form)


def _as_input(part: Part, losses: Losses, path: str) -> Part:
    if isinstance(part, Refusal):
        losses.add(path, "refusal", "rewritten", f"{LABEL} has no refusals; sent as text", "info")
        return Text(part.text)
    return part


def _write_input(message: Message, contents: list[Object], form: Object) -> Iterator[Object]:
    """Yield a `user_input` step, or the bare contents if they were read without a step."""
    if ":step" in form:
        yield from contents
        return
    out: Object = {"type": "user_input", "content": contents}
    spelling = form.get(":content")
    if spelling == "string" and len(contents) == 1 and contents[0].keys() == {"type", "text"}:
        out["content"] = contents[0]["text"]
    elif spelling == "single" and len(contents) == 1:
        out["content"] = contents[0]
    elif not contents and (spelling == "absent" or "content" in form):
        del out["content"]  # absent, or another empty value from the form
    yield write_extra(out, message.extra, NAME)


def write_model_steps(parts: tuple[Part, ...], path: str, losses: Losses) -> Iterator[Object]:
    """Yield the steps of the model's output. Each text is a step, unless it was read as a part of another one."""
    open_step: Object | None = None
    for number, part in enumerate(parts):
        where = f"{path}/parts/{number}"
        if not isinstance(part, Text | Media | Refusal) and not is_content(part):
            open_step = None
            step = write_model_step(part, losses, where)
            if step is not None:
                yield step
            continue
        if is_empty_text(part):
            losses.add(where, "text", "dropped", "it has no text", "info")
        else:
            content = write_content(_as_input(part, losses, where), losses, where)
            if content is not None and is_bare(part):
                open_step = None
                yield content
            elif content is not None and open_step is not None and is_joined(part):
                open_step["content"].append(content)
            elif content is not None:
                open_step = {"type": "model_output", "content": [content]}
                yield write_extra(open_step, getattr(part, "extra", {}), STEP)
        if thought := write_moved_signature(getattr(part, "artefacts", ()), losses, where):
            open_step = None
            yield thought


def write_moved_signature(artefacts: tuple[Artefact, ...], losses: Losses, path: str) -> Object | None:
    """Return a thought with the signature of a text, which generateContent has on the text itself; None without one."""
    signature = own_signature(artefacts, losses, path)
    if signature is None:
        return None
    detail = f"{LABEL} texts have no signature; sent as a thought after the text"
    losses.add(f"{path}/artefacts", "signature", "moved", detail, "info")
    return {"type": "thought", "signature": signature}


def own_signature(artefacts: tuple[Artefact, ...], losses: Losses, path: str) -> str | None:
    """Return Google's signature, or None; artefacts of other providers are losses."""
    if any(artefact.provider != PROVIDER for artefact in artefacts):
        losses.add(f"{path}/artefacts", "artefact", "dropped", FOREIGN)
    return next((artefact.data for artefact in artefacts if artefact.provider == PROVIDER), None)


def write_model_step(part: Part, losses: Losses, path: str) -> Object | None:
    """Write a thought, a call or an opaque step; return None and report the loss if there is no such step."""
    if isinstance(part, ToolCall):
        return write_call(part, losses, path)
    if isinstance(part, Reasoning):
        return write_thought(part, losses, path)
    if isinstance(part, Opaque) and part.wire == NAME:
        return part.value
    losses.add(path, part_label(part), "dropped", f"{LABEL} has no such step", "error")
    return None


def write_thought(part: Reasoning, losses: Losses, path: str) -> Object | None:
    """Write a thought. Its text becomes a section of the summary, the only readable form of reasoning here."""
    out: Object = {"type": "thought"}
    signature = own_signature(part.artefacts, losses, path)
    if signature is not None:
        out["signature"] = signature
    sections = [*part.summary, part.text] if part.text else [*part.summary]
    if part.text:
        losses.add(f"{path}/text", "reasoning", "rewritten", f"{LABEL} thoughts have only a summary", "info")
    if sections:
        out["summary"] = [{"type": "text", "text": text} for text in sections]
    if len(out) == 1 and not has_own_fields(part.extra):
        losses.add(path, "reasoning", "dropped", "it has no text", "info")
        return None
    return write_extra(out, part.extra, NAME)


def write_call(call: ToolCall, losses: Losses, path: str) -> Object:
    """Write a call with an object as arguments; a namespace, and arguments that are no object, are losses."""
    report_search_call(call, path, losses)
    form = call.extra.get(FORM, {})
    out: Object = {"type": "function_call", "id": call.id, "name": call.name, "arguments": call.arguments or {}}
    if call.arguments is None:
        out["arguments"] = placeholder_arguments(call, losses, path)
    signature = own_signature(call.artefacts, losses, path)
    if signature is not None:
        out["signature"] = signature
    for concept in ("namespace", "cache"):
        if getattr(call, concept) is not None:
            losses.add(f"{path}/{concept}", concept, "dropped", f"{LABEL} calls have no such field", "info")
    return write_extra(restore_form(out, form), call.extra, NAME)


def write_result(result: ToolResult, losses: Losses, path: str) -> Object:
    """Write a result: one text as a string, an object as it is, anything else as a list of contents."""
    result = found_as_text(result, path, losses)
    form = result.extra.get(FORM, {})
    out: Object = {"type": "function_result", "call_id": result.call_id}
    if result.name is not None:
        out["name"] = result.name
    out["result"] = _write_result_value(result, form, losses, path)
    if result.is_error:
        out["is_error"] = True
    if result.cache is not None:
        losses.add(f"{path}/cache", "cache", "dropped", f"{LABEL} has no cache marks", "info")
    return write_extra(restore_form(out, form), result.extra, NAME)


def _write_result_value(result: ToolResult, form: Object, losses: Losses, path: str) -> JSON:
    """Return the value of `result`. Of structured values, the API accepts only objects; others become text."""
    if not result.parts and (type(result.structured) is dict or (result.structured is not None and ":result" in form)):
        return result.structured
    parts = structured_as_text(result, path, losses)
    if not parts:
        return ""
    only = parts[0]
    if len(parts) == 1 and type(only) is Text and not only.extra and ":result" not in form:
        if only.cache is not None:
            losses.add(f"{path}/parts/0/cache", "cache", "dropped", f"{LABEL} has no cache marks", "info")
        return only.text
    written = [write_content(part, losses, f"{path}/parts/{number}") for number, part in enumerate(parts)]
    return [content for content in written if content is not None]
