"""Write messages and parts as Responses items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...ir.losses import Losses
from ...ir.parts import (
    Artefact,
    CallKind,
    CallState,
    Extra,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    is_empty_with_artefact,
    part_label,
)
from ...ir.pointer import JSON, Object
from ...ir.request import Message
from ...ir.tools import Tool
from ..content import result_parts
from ..fields import write_extra
from .content import NAME, PROVIDER, is_content, is_own, write_content, write_reasoning
from .items import _FORM, _ITEM
from .tool_search import write_search_call, write_search_output
from .typed_tools import typed_prefix, write_typed_call


def write_items(message: Message, path: str, losses: Losses, tools: Mapping[str, Tool]) -> Iterator[Object]:
    """Yield the items of one message; parts that Responses has no item for are losses.

    Results of searches hold declarations of `tools`, which are by name.
    """
    if message.role == "assistant":
        yield from write_assistant_items(message.parts, path, losses)
        return
    contents: list[Part] = []
    for number, part in enumerate(message.parts):
        if not isinstance(part, (ToolResult, Opaque, ToolCall, Reasoning)) or is_content(part):
            contents.append(part)
            continue
        if contents:
            yield _write_message(message, contents, path, losses)
            contents = []
        if isinstance(part, ToolResult):
            yield write_result(part, losses, f"{path}/parts/{number}", tools)
        elif isinstance(part, Opaque) and part.wire == NAME:
            yield part.value
        else:
            losses.add(f"{path}/parts/{number}", part_label(part), "dropped", "Responses has no item for it", "error")
    if contents or not message.parts:
        yield _write_message(message, contents, path, losses)


def _write_message(message: Message, contents: list[Part], path: str, losses: Losses) -> Object:
    form = message.extra.get(_FORM, {})
    content = write_content(contents, form, losses, path)
    return write_extra({"role": message.role, **_content_field("content", content, form)}, message.extra, NAME)


def _content_field(key: str, content: JSON, form: Object) -> Object:
    """Return content under `key`; no content is an empty text, unless it came as null or was absent."""
    if content is None and form.get(":content") in ("null", "absent"):
        return {key: None} if form[":content"] == "null" else {}
    return {key: "" if content is None else content}


def write_assistant_items(parts: tuple[Part, ...], path: str, losses: Losses) -> Iterator[Object]:
    """Yield the items of the model's output, as input; an item is written as it was read, other texts as messages.

    Parts that Responses has no item for are losses.
    """
    open_item: Object | None = None
    for number, part in enumerate(parts):
        where = f"{path}/parts/{number}"
        if isinstance(part, (Text, Refusal)):
            form = part.extra.get(_FORM, {})
            if ":item" in form:
                open_item = write_extra({"role": "assistant", "content": []}, part.extra, _ITEM)
                yield open_item
            elif open_item is None or ":type" not in form:
                yield _write_foreign_text(part, losses, where)
                continue
            if form.get(":content") == "string" and isinstance(part, Text):
                open_item["content"] = part.text
            else:
                open_item["content"].append(_write_text_part(part))
            continue
        if open_item is not None and is_content(part) and type(open_item["content"]) is list:
            open_item["content"].append(part.value)
            continue
        open_item = None
        item = _write_assistant_part(part, losses, where)
        if item is not None:
            yield item


def _write_foreign_text(part: Text | Refusal, losses: Losses, path: str) -> Object:
    """Write text that was not an output item here as a plain message: the provider would look up an item with an id."""
    if isinstance(part, Text) and part.cache is not None:
        losses.add(f"{path}/cache", "cache mark", "dropped", "Responses has none on the model's output", "info")
    if isinstance(part, Refusal):
        losses.add(path, "refusal", "rewritten", "sent as plain text: only an answer has refusals here", "info")
    return {"type": "message", "role": "assistant", "content": part.text}


def _write_text_part(part: Text | Refusal) -> Object:
    if isinstance(part, Refusal):
        return write_extra({"type": "refusal", "refusal": part.text}, part.extra, NAME)
    return write_extra({"type": "output_text", "text": part.text}, part.extra, NAME)


def _write_assistant_part(part: Part, losses: Losses, path: str) -> Object | None:
    """Write a call, reasoning or an opaque item as input; return None and report it if Responses has no such item."""
    if isinstance(part, ToolCall):
        return write_call(part)
    if isinstance(part, Reasoning):
        if is_own(part):
            return write_reasoning(part)
        losses.add(path, "reasoning", "dropped", "Responses accepts only its own reasoning items")
    elif isinstance(part, Opaque) and part.wire == NAME:
        return part.value
    else:
        losses.add(path, part_label(part), "dropped", "Responses has no such output item", "error")
    return None


def write_call(call: ToolCall) -> Object:
    """Write a call as an item without id and status, unless its `extra` has them."""
    if call.kind == "search":
        return write_search_call(call)
    if call.kind == "typed" and (item := write_typed_call(call)) is not None:
        return write_extra(item, call.extra, NAME)
    if call.kind == "freeform":
        out: Object = {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": call.raw or ""}
    else:
        out = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.text}
    if call.namespace is not None:
        out["namespace"] = call.namespace
    return write_extra(out, call.extra, NAME)


def write_result(result: ToolResult, losses: Losses, path: str, tools: Mapping[str, Tool]) -> Object:
    """Write the output of a call; the error flag has no field here and is reported."""
    if result.kind == "search":
        return write_search_output(result, tools, losses, path)
    form = result.extra.get(_FORM, {})
    if result.is_error:
        losses.add(f"{path}/is_error", "is_error", "dropped", "Responses outputs have no error flag", "error")
    output = write_content(list(result_parts(result, path, losses)), form, losses, path)
    kind = "custom_tool_call_output" if result.kind == "freeform" else "function_call_output"
    out: Object = {"type": kind, "call_id": result.call_id, **_content_field("output", output, form)}
    if ":call_id" in form and not result.call_id:
        del out["call_id"]
    if ":name" in form:
        out["name"] = result.name
    if result.namespace is not None and ":namespace" in form:
        out["namespace"] = result.namespace
    return write_extra(out, result.extra, NAME)


def write_output(parts: tuple[Part, ...], prefix: str, losses: Losses) -> list[Object]:
    """Write the items of the model's output, as output: every item has an id and a status.

    `prefix` makes new ids unique. Parts that Responses lacks and artefacts of other providers are losses.
    """
    items: list[Object] = []
    ids: set[str] = set()
    for number, part in enumerate(parts):
        if isinstance(part, Text) and is_empty_with_artefact(part, PROVIDER):
            losses.add(f"/parts/{number}", "text", "dropped", "it has no text", "info")
        elif isinstance(part, (Text, Refusal)):
            if not items or "role" not in items[-1] or ":item" in part.extra.get(_FORM, {}):
                items.append(make_message_item(part.extra, f"msg_{prefix}_{number}"))
            items[-1]["content"].append(write_output_part(part))
        elif isinstance(part, ToolCall):
            _add_call(part, items, ids, losses, f"/parts/{number}")
        elif isinstance(part, Reasoning):
            report_foreign(part.artefacts, losses, f"/parts/{number}")
            new = {} if NAME in part.extra or _FORM in part.extra else {"id": f"rs_{prefix}_{number}"}
            items.append({**new, **write_reasoning(part)})
        elif is_content(part) and items and "role" in items[-1]:
            items[-1]["content"].append(part.value)
        elif isinstance(part, Opaque) and part.wire == NAME:
            items.append(part.value)
        else:
            losses.add(f"/parts/{number}", part_label(part), "dropped", "Responses has no such output item", "error")
        if not isinstance(part, Reasoning):
            report_foreign(getattr(part, "artefacts", ()), losses, f"/parts/{number}")
    return items


_ITEM_PREFIXES: dict[CallKind, str] = {"function": "fc", "freeform": "ctc", "search": "tsc"}
_STATUS = {"complete": "completed", "truncated": "incomplete", "invalid": "completed"}


def _add_call(call: ToolCall, items: list[Object], ids: set[str], losses: Losses, path: str) -> None:
    """Append the item of a call, with an id that no other item has."""
    item = make_call_item(call, f"{call_prefix(call.kind, call.name)}_{call.id}")
    if item is None:
        losses.add(path, "call", "dropped", broken_call(call.state), "error")
        return
    if type(item.get("id")) is str:
        while item["id"] in ids:  # calls of some models share their call id
            item["id"] = f"{item['id']}_{len(items)}"
        ids.add(item["id"])
    items.append(item)


def call_prefix(kind: CallKind, name: str) -> str:
    """Return the prefix of the id of a call's item, as OpenAI writes it."""
    return typed_prefix(name) if kind == "typed" else _ITEM_PREFIXES[kind]


def broken_call(state: CallState) -> str:
    return f"its arguments are {state}, and its item has no form for that"


def make_call_item(call: ToolCall, item_id: str) -> Object | None:
    """Write a call as an output item; a call from this wire keeps its fields.

    Return None for the call of a typed tool whose arguments are incomplete: a client would run it.
    """
    if call.kind == "typed":
        item = write_typed_call(call)
        return None if item is None else write_extra({"id": item_id, **item}, call.extra, NAME)
    if NAME in call.extra or ":item" in call.extra.get(_FORM, {}):
        return write_call(call)
    if call.kind == "freeform" and call.state == "complete":
        return {"id": item_id, **write_call(call)}
    return {"id": item_id, "status": _STATUS[call.state], **write_call(call)}


def make_message_item(extra: Extra, item_id: str) -> Object:
    """Write a message as an output item; a message from this wire keeps its fields."""
    base: Object = {"role": "assistant", "content": []}
    if ":item" not in extra.get(_FORM, {}):
        base = {"type": "message", "id": item_id, "status": "completed", **base}
    return write_extra(base, extra, _ITEM)


def write_output_part(part: Text | Refusal) -> Object:
    """Write the content of an output message; text from another wire gets the empty `annotations` of this one."""
    if isinstance(part, Refusal):
        return write_extra({"type": "refusal", "refusal": part.text}, part.extra, NAME)
    out: Object = {"type": "output_text", "text": part.text}
    if ":type" not in part.extra.get(_FORM, {}):
        out["annotations"] = []
    return write_extra(out, part.extra, NAME)


def report_foreign(artefacts: tuple[Artefact, ...], losses: Losses, path: str) -> None:
    """Add a loss for artefacts of another provider."""
    if any(artefact.provider != PROVIDER for artefact in artefacts):
        losses.add(f"{path}/artefacts", "artefact", "dropped", "it belongs to another provider")
