"""Fit the parts of turns to a target: names, ids, results, media, reasoning, blocks of one provider."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...ir.losses import Losses
from ...ir.parts import Artefact, Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from ...ir.pointer import join
from ...ir.request import Message, Request, Role
from ...ir.text import dumps
from ...ir.tools import SEARCH_TOOLS
from ...schema.lowering.lowered import Lowered
from ...wire.content import guess_media_type, media_placeholder, recognise_media_type, structured_as_text
from ...wire.hosted import is_issued_here, without_issued
from ...wire.protocol import Wire
from ..conversation.fitted_prefix import FittedPrefix
from ..conversation.history import (
    BLANK,
    DraftMessage,
    PartLocation,
    draft_if_normal,
    location_pointer,
    may_round_numbers,
    merge_turns,
    message_index,
    sign_first_call,
)
from ..conversation.media import content_kind
from ..conversation.names import IdAllocator, NameMap
from ..conversation.outline import fit_plain, read_plain
from ..conversation.provider_state import compaction_summary
from .cache_marks import fit_mark
from .fields import own_artefacts, report_extra
from .freeform import wrap_freeform
from .hosted_tools import fit_run
from .reasoning import drop_unlinked, without_id
from .tool_search import HistorySearch, read_hosted

ERROR_MARK = "[tool error] "
"""The prefix of the text of a failed result where the target has no error flag."""


class DeferredMedia:
    """Media that the target does not allow in a result, an assistant or a system message.

    They move to a user message, which comes later: between calls and the last of their results no other message is
    allowed.
    """

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: list[tuple[Part, PartLocation]] = []

    def add(self, media: Media, location: PartLocation, origin: str) -> None:
        self.pending.append((Text(f"[{media.kind} from {origin}]"), location))
        self.pending.append((media, location))

    def take_message(self) -> DraftMessage:
        """Return all waiting media as a message."""
        pending, self.pending = self.pending, []
        parts = tuple([part for part, _ in pending])
        return DraftMessage(Message("user", parts), parts, [location for _, location in pending])


class TurnFitter:
    """Fit the turns of one conversation in order; a result takes its id and name from the fitted call."""

    def __init__(
        self,
        request: Request,
        wire: Wire,
        names: NameMap,
        history_model: str | None,
        lifts: Mapping[str, Lowered],
        search: HistorySearch,
        losses: Losses,
    ) -> None:
        """Create the fitter; it adds the names of calls to `names`, and every change to `losses`."""
        self._search = search
        self._lifts = lifts  # tools whose arguments have another shape on the target
        self._wire = wire
        self._history_model = history_model  # the model of the history, if it is not the requested one
        self._can = wire.capabilities
        self._model = request.model
        self._names = names
        self._losses = losses
        self._ids = IdAllocator(wire.limits)
        self._pending_calls: dict[str, deque[ToolCall]] = {}  # by old id: fitted calls without a result yet
        self._deferred = DeferredMedia()
        self._role: Role = "user"  # of the current turn
        self._last: DraftMessage | None = None  # the last turn, which must not disappear
        self._is_alone = False  # the conversation is one message
        self.marks = 0  # the number of cache marks

    def fit_all(self, turns: list[DraftMessage]) -> list[DraftMessage]:
        """Fit all turns of a conversation."""
        self._is_alone = len(turns) == 1
        return self._fit_turns(turns, is_last=True)

    def fit_next(self, messages: tuple[Message, ...], start: int, *, is_last: bool) -> list[DraftMessage] | None:
        """Fit and merge the next messages; return None if results are missing or out of place.

        `start` is the index of the first of them; `is_last`: they end the conversation.
        """
        plain = None if self._search.is_planned else read_plain(messages, start)
        if plain is not None and self._ids.used.isdisjoint([call.id for call in plain.calls]):
            fitted = fit_plain(plain, self._wire, self._names, self._losses, self._lifts)
            if fitted is not None:
                self._ids.used.update([call.id for call in plain.calls])
                return fitted
        turns = draft_if_normal(messages, start)
        return None if turns is None else merge_turns(self._fit_turns(turns, is_last=is_last), self._can)

    def _fit_turns(self, turns: list[DraftMessage], *, is_last: bool) -> list[DraftMessage]:
        """Fit the next turns of a conversation. `is_last`: they end it."""
        fitted: list[DraftMessage] = []
        self._last = turns[-1] if turns and is_last else None
        for turn in turns:
            if self._deferred.pending and turn.parts and type(turn.parts[0]) is not ToolResult:
                fitted.append(self._deferred.take_message())
            self._fit(turn, fitted)
        if self._deferred.pending:
            fitted.append(self._deferred.take_message())
        return fitted

    def suspend(self, messages: tuple[Message, ...], turns: list[DraftMessage]) -> FittedPrefix:
        """Return the state after these messages, which `resume` restores."""
        names = self._names.originals
        return FittedPrefix(messages, tuple(turns), tuple(self._losses), names, frozenset(self._ids.used), self.marks)

    def resume(self, prefix: FittedPrefix) -> None:
        """Continue after a prefix in which all calls are answered."""
        for namespace, name in prefix.names:
            self._names.to_wire(namespace, name)
        self._ids.used.update(prefix.ids)
        self.marks = prefix.marks

    def _fit(self, turn: DraftMessage, turns: list[DraftMessage]) -> None:
        """Append the fitted form of `turn` to `turns`, if anything remains of it.

        The last message is never dropped if it is only text: it becomes a placeholder.
        """
        message = turn.message
        self._role = message.role
        if message.extra or message.role == "developer":
            self._report_message(message, turn)
        parts, locations, changed = self._fit_parts(turn, links_reasoning=not self._can.lone_reasoning)
        changed = changed or turn.parts is not message.parts
        if message.role == "assistant":
            changed = sign_first_call(turn, parts, self._wire, self._losses) or changed
        elif not parts and turn.parts and turn is self._last and all(type(part) is Text for part in turn.parts):
            parts, locations, changed = [Text(BLANK)], [turn.locations[0]], True
            detail = f"nothing of the last message remains for the target; sent as {BLANK!r}"
            self._losses.add(location_pointer(turn.locations[0]), "blank text", "rewritten", detail)
        if self._deferred.pending and parts and type(parts[0]) is ToolResult and type(parts[-1]) is not ToolResult:
            locations = self._insert_deferred(parts, locations)
        if parts:
            fitted_message = Message(message.role, tuple(parts), message.extra) if changed else message
            turns.append(DraftMessage(fitted_message, parts, locations))

    def _fit_parts(
        self, turn: DraftMessage, *, links_reasoning: bool
    ) -> tuple[list[Part], Sequence[PartLocation], bool]:
        """Return the fitted parts, their locations, and whether anything changed.

        `links_reasoning`: the provider links reasoning and the items after it by their ids, so both stay or go together.
        """
        links_reasoning = links_reasoning and turn.message.role == "assistant"
        parts: list[Part] = []
        locations: list[PartLocation] | None = None  # created when the first part is dropped
        is_without_reasoning = False  # the reasoning before this part was dropped
        has_reasoning = changed = False
        for part, location in zip(turn.parts, turn.locations, strict=True):
            fitted = _FITTERS[type(part)](self, part, location)
            if links_reasoning:
                if type(part) is Reasoning:
                    is_without_reasoning, has_reasoning = fitted is None, True
                elif is_without_reasoning and fitted is not None:
                    fitted = without_id(fitted, self._wire.name)
            if fitted is not part:
                changed = True
            if fitted is None:
                locations = list(turn.locations[: len(parts)]) if locations is None else locations
                continue
            parts.append(fitted)
            if locations is not None:
                locations.append(location)
        kept: Sequence[PartLocation] = turn.locations if locations is None else locations
        if not has_reasoning:
            return parts, kept, changed
        kept = drop_unlinked(parts, kept, self._wire, self._losses)
        return parts, kept, changed or len(parts) < len(turn.parts)

    def _insert_deferred(self, parts: list[Part], locations: Sequence[PartLocation]) -> list[PartLocation]:
        """Insert moved media after the results of a turn, before the text that follows them."""
        deferred = self._deferred.take_message()
        index = max(number for number, part in enumerate(parts) if type(part) is ToolResult) + 1
        parts[index:index] = deferred.parts
        return [*locations[:index], *deferred.locations, *locations[index:]]

    def _report_message(self, message: Message, turn: DraftMessage) -> None:
        path = join("messages", message_index(turn.locations[0])) if turn.locations else ""
        report_extra(message.extra, path, self._wire.name, self._losses)
        if message.role == "developer" and not self._can.developer:
            detail = "the target supports only system messages"
            self._losses.add(path, "developer message", "rewritten", detail, "info")

    def _fit_text(self, part: Text, location: PartLocation) -> Text | None:
        """Return text that the target accepts, or None for empty text and, where it is refused, whitespace.

        Artefacts and cache marks that the target cannot use are removed, with losses.
        """
        if not part.text and not part.artefacts:
            detail = "it is empty, and targets refuse empty text"
            self._losses.add(location_pointer(location), "empty text", "dropped", detail, "info")
            return None
        if not self._can.blank_text and part.text.isspace():
            detail = "it is only whitespace, which the target refuses"
            self._losses.add(location_pointer(location), "blank text", "dropped", detail, "info")
            return None
        if part.cache is None and not part.artefacts and not part.extra:
            return part
        path = location_pointer(location)
        extra = without_issued(part.extra)
        if extra is not part.extra:
            detail = "the provider has not found the pages, so it would refuse the citations"
            self._losses.add(f"{path}/citations", "citations", "dropped", detail, "info")
        report_extra(extra, path, self._wire.name, self._losses)
        artefacts = self._own_artefacts(part.artefacts, path)
        cache = self._fit_mark(part, "part", path)
        return Text(part.text, cache, artefacts, extra) if part.text or artefacts else None

    def _fit_mark(self, part: Text | Media | ToolCall | ToolResult, element: str, path: str) -> str | None:
        mark = fit_mark(part, element, self._wire, path, self._losses)
        self.marks += mark is not None
        return mark

    def _own_artefacts(self, artefacts: tuple[Artefact, ...], path: str) -> tuple[Artefact, ...]:
        if not artefacts:
            return artefacts
        return own_artefacts(artefacts, self._wire.provider, self._model, self._history_model, path, self._losses)

    def _fit_reasoning(self, part: Reasoning, location: PartLocation) -> Reasoning | None:
        """Return reasoning that this provider and model produced; report any other as dropped, and return None."""
        path = location_pointer(location)
        own = own_artefacts(part.artefacts, self._wire.provider, self._model, self._history_model, path, Losses())
        is_own_form = self._wire.name in part.extra or f"{self._wire.name}~" in part.extra
        if not own and not (is_own_form and not part.artefacts):
            detail = "reasoning is sent back only to the provider and model that produced it"
            self._losses.add(path, "reasoning", "dropped", detail)
            return None
        report_extra(part.extra, path, self._wire.name, self._losses)
        return part if len(own) == len(part.artefacts) else replace(part, artefacts=own)

    def _fit_call(self, call: ToolCall, location: PartLocation) -> ToolCall:
        """Fit id, name, kind and arguments of a call, and record it in `_pending_calls` for its result."""
        can = self._can
        if call.raw == "":
            call = call.with_explicit_arguments()  # some servers send "" for no arguments
        if call.kind == "typed":
            call = replace(call, kind="function")  # an answer of another provider, in the items of the client
        is_ordinary = call.kind == "function" and call.namespace is None and not self._search.is_planned
        if not is_ordinary and self._search.concerns(call):
            call = self._search.fit_call(call, can, location_pointer(location), self._losses)
        if call.extra or call.artefacts or call.cache is not None:
            call = self._strip_call(call, location)
        if call.kind == "freeform" and not can.freeform:
            call = wrap_freeform(call)
            self._losses.add(
                location_pointer(location), "freeform call", "rewritten", "sent as a call with one argument", "info"
            )
        if can.object_arguments and call.raw is not None and may_round_numbers(call.raw):
            detail = "more digits than a double can hold; the target may round them"
            self._losses.add(f"{location_pointer(location)}/arguments", "long numbers", "weakened", detail)
        old_id = call.id
        new_id = self._ids.assign(old_id, call.name)
        namespace = self._search.call_namespace(call) if can.search_calls else call.namespace
        name = SEARCH_TOOLS if call.kind == "search" else self._names.to_wire(call.namespace, call.name)
        if name in self._lifts and call.arguments is not None:
            call = self._encode_arguments(call, self._lifts[name], location)
        if new_id != old_id or name != call.name or namespace != (call.namespace if can.namespaces else None):
            call = replace(call, id=new_id, name=name, namespace=namespace if can.namespaces else None)
        pending_calls = self._pending_calls.get(old_id)
        if pending_calls is None:
            self._pending_calls[old_id] = deque((call,))
        else:
            pending_calls.append(call)
        return call

    def _encode_arguments(self, call: ToolCall, lowered: Lowered, location: PartLocation) -> ToolCall:
        """Encode the arguments in the shape of the schema that the target receives."""
        arguments = lowered.encode(call.arguments)
        if arguments != call.arguments:
            detail = "converted to the tool's schema for the target"
            self._losses.add(f"{location_pointer(location)}/arguments", "arguments", "rewritten", detail, "info")
        return replace(call, arguments=arguments, raw=None)

    def _strip_call(self, call: ToolCall, location: PartLocation) -> ToolCall:
        """Fit the cache mark of a call, and drop artefacts (signatures) that another provider made.

        Fields of other wires in `extra` stay in the value; the encoder does not write them, so they are reported here.
        """
        path = location_pointer(location)
        report_extra(call.extra, path, self._wire.name, self._losses)
        cache = self._fit_mark(call, "call", path)
        return replace(call, cache=cache, artefacts=self._own_artefacts(call.artefacts, path))

    def _fit_result(self, result: ToolResult, location: PartLocation) -> ToolResult:
        """Fit a result, under the id, name and kind of its fitted call, which is then no longer pending."""
        can = self._can
        if result.extra:
            report_extra(result.extra, location_pointer(location), self._wire.name, self._losses)
        if result.found or result.kind == "search":
            calls = self._pending_calls.get(result.call_id)
            kind = calls[0].kind if calls else result.kind
            result = self._search.fit_result(result, kind, self._wire, location_pointer(location), self._losses)
        parts, structured = result.parts, result.structured
        if structured is not None and not can.result_structured:
            parts, structured = structured_as_text(result, location_pointer(location), self._losses), None
            result = replace(result, parts=parts, structured=None)
        only = parts[0] if len(parts) == 1 else None
        is_plain = type(only) is Text and only.text and only.cache is None and not only.extra
        if not is_plain or (not can.blank_text and parts[0].text.isspace()):  # type: ignore[union-attr]
            parts = self._fit_result_parts(result, location)
        is_error = result.is_error
        if is_error and not can.result_error:
            parts, structured, is_error = _mark_error(parts), None, False
            detail = f"sent as a text prefix: {ERROR_MARK!r}"
            self._losses.add(f"{location_pointer(location)}/is_error", "is_error", "rewritten", detail, "info")
        cache = result.cache
        if cache is not None:
            cache = self._fit_mark(result, "result", location_pointer(location))
        pending_calls = self._pending_calls.get(result.call_id)
        if not pending_calls:  # only if results are fitted without their calls
            return replace(result, parts=parts, structured=structured, is_error=is_error, cache=cache)
        call = pending_calls.popleft()
        if call.id == result.call_id and call.name == result.name and parts is result.parts and not result.found:
            if is_error is result.is_error and cache is result.cache and call.kind == result.kind:
                return result
        # Name, kind and namespace come from the call, because some wires do not repeat them.
        return ToolResult(
            call.id,
            call.name,
            parts,
            structured,
            is_error,
            call.kind,
            call.namespace,
            cache,
            result.extra,
            result.found,
        )

    def _fit_result_parts(self, result: ToolResult, location: PartLocation) -> tuple[Text | Media | Opaque, ...]:
        """Fit the content of a result; media that results cannot hold follow in a user message."""
        fitted: list[Text | Media | Opaque] = []
        for part in result.parts:
            if isinstance(part, Text):
                text = self._fit_text(part, location)
                if text is not None:
                    fitted.append(text)
            elif isinstance(part, Opaque):
                fitted.append(part if part.wire == self._wire.name else self._opaque_as_text(part, location))
            elif part.kind in self._can.result_media:
                fitted.append(self._fit_media(part, location))
            else:
                fitted.append(self._defer_media(part, result, location))
        return tuple(fitted)

    def _opaque_as_text(self, part: Opaque, location: PartLocation) -> Text:
        """Send a foreign block of a result as JSON text, because the output of a tool must reach the model."""
        detail = f"specific to {part.wire}; sent as JSON text"
        self._losses.add(location_pointer(location), part.type, "rewritten", detail)
        return Text(dumps(part.value))

    def _defer_media(self, part: Media, result: ToolResult, location: PartLocation) -> Text:
        """Move media to a separate message, because the target's results hold text only."""
        media = self._fit_media(part, location)
        if isinstance(media, Text):
            return media
        detail = f"the target does not support {part.kind} in a result; it follows in a user message"
        self._losses.add(location_pointer(location), f"{part.kind} in a result", "moved", detail)
        self._deferred.add(media, location, f"the result of {result.name or result.call_id}")
        return Text(f"[{part.kind}: see the next user message]")

    def _fit_message_media(self, part: Media, location: PartLocation) -> Media | Text | None:
        """Fit media in a message; where the target refuses them, move them to the next user message, return None."""
        media = self._fit_media(part, location)
        if self._role == "user" or isinstance(media, Text):
            return media
        if self._role == "assistant" and part.kind in self._can.assistant_media:
            return media
        detail = f"the target does not support {part.kind} in {self._role} messages; it follows in a user message"
        self._losses.add(location_pointer(location), f"{part.kind} in a {self._role} message", "moved", detail)
        self._deferred.add(media, location, f"the {self._role} message")
        return None

    def _fit_media(self, part: Media, location: PartLocation) -> Media | Text:
        """Return media that the target accepts, or else a text, so that the model knows that something is missing.

        A wrong kind and a missing media type are corrected.
        """
        path = location_pointer(location)
        if part.owner is not None and part.owner != self._wire.provider and part.data is None and part.url is None:
            detail = f"it is stored by {part.owner} as {part.file_id!r}; other providers cannot read it"
            self._losses.add(path, part.kind, "dropped", detail, "error")
            return media_placeholder(part)
        if (kind := content_kind(part)) != part.kind:
            part = replace(part, kind=kind)
        if part.kind not in self._can.media:
            self._losses.add(path, part.kind, "dropped", f"the target does not support {part.kind}", "error")
            return media_placeholder(part)
        report_extra(part.extra, path, self._wire.name, self._losses)
        if part.media_type is None and part.data is not None:
            media_type = recognise_media_type(part.data) or guess_media_type(part.name or "")
            part = part if media_type is None else replace(part, media_type=media_type)
        if part.cache is None:
            return part
        return replace(part, cache=self._fit_mark(part, "part", path))

    def _fit_opaque(self, part: Opaque, location: PartLocation) -> Opaque | Text | None:
        """Return a block of this wire, or a compaction summary as text; report any other as dropped, and return None."""
        if part.wire == self._wire.name and not is_issued_here(part):
            if part.type not in self._can.rejected_kinds:
                return part
            detail = f"the target's vendor does not support {part.type}"
            self._losses.add(location_pointer(location), part.type, "dropped", detail, "error")
            return None
        if read_hosted(part) is not None:
            return self._search.fit_hosted(part, self._wire, location_pointer(location), self._losses)
        run = fit_run(part, location_pointer(location), self._losses)
        if run is not None:
            return run
        summary = compaction_summary(part)
        if summary is not None:
            self._losses.add(location_pointer(location), part.type, "rewritten", "the summary is sent as text", "info")
            return summary
        self._losses.add(location_pointer(location), part.type, "dropped", f"specific to {part.wire}", "error")
        # a placeholder, so that the model knows that something is missing; a conversation of nothing else is refused
        return Text(f"[{part.type}: not available]") if self._role == "user" and not self._is_alone else None

    def _fit_refusal(self, part: Refusal, location: PartLocation) -> Refusal:
        report_extra(part.extra, location_pointer(location), self._wire.name, self._losses)
        return part


def _mark_error(parts: tuple[Text | Media | Opaque, ...]) -> tuple[Text | Media | Opaque, ...]:
    """Mark a result as an error in its text."""
    first = parts[0] if parts else Text("")
    if isinstance(first, Text):
        return (replace(first, text=ERROR_MARK + first.text), *parts[1:])
    return (Text(ERROR_MARK), *parts)


_FITTERS: dict[type, Callable[[TurnFitter, Any, PartLocation], Part | None]] = {
    Text: TurnFitter._fit_text,
    Reasoning: TurnFitter._fit_reasoning,
    ToolCall: TurnFitter._fit_call,
    ToolResult: TurnFitter._fit_result,
    Media: TurnFitter._fit_message_media,
    Refusal: TurnFitter._fit_refusal,
    Opaque: TurnFitter._fit_opaque,
}
