"""Write a conversation as text, for models without tool-calling support.

For a chat endpoint, calls and results in the history become text in its messages. For a completion endpoint, the whole
conversation becomes one raw prompt, whose end decides how the answer begins. Reasoning in the history is written only
after the last message of the user, as the templates of reasoning models do: a model sees the thoughts of the turn in
progress, not the thoughts of earlier turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from ...ir.losses import Losses
from ...ir.parts import Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, part_label
from ...ir.pointer import Object, join
from ...ir.request import Message, Request
from ...ir.tools import Tool
from ...text.engine.chat_template import ChatTemplate, PromptTurn, ReasoningState
from ...text.engine.format import Format
from ...text.engine.prompt import call_opening
from ...wire.content import media_placeholder
from ..conversation.history import DraftMessage, message_index, normalise
from .control_tokens import TokenGuard
from .settings import PromptOptions

FREEFORM: Object = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def render_history(messages: tuple[Message, ...], form: Format, tools: Sequence[Tool], losses: Losses) -> list[Message]:
    """Write calls as the model would write them, and results as it expects them; add losses.

    Most formats have no ids: only its position assigns a result to its call, so results follow the order of the calls.
    """
    names: dict[str, str] = {}
    rendered = []
    for turn in normalise(messages, losses):
        message = replace(turn.message, parts=tuple(turn.parts))
        index = message_index(turn.locations[0]) if turn.locations else 0
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        names.update({call.id: call.name for call in calls})
        parts = (
            _render_assistant(message, calls, form, tools, losses, index)
            if calls
            else render_results(message, form, names, losses, index)
        )
        rendered.append(replace(message, parts=parts))
    return rendered


def _render_assistant(
    message: Message, calls: list[ToolCall], form: Format, tools: Sequence[Tool], losses: Losses, index: int
) -> tuple[Part, ...]:
    """Combine the text of the message and its calls into one text part."""
    other_parts = tuple(part for part in message.parts if not isinstance(part, (ToolCall, Text)))
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    written = write_calls(calls, form, tools, losses, index)
    separator = "\n" if text and not text.endswith("\n") else ""
    return (*other_parts, Text(f"{text}{separator}{written}"))


def write_calls(calls: Sequence[ToolCall], form: Format, tools: Sequence[Tool], losses: Losses, index: int) -> str:
    """Write the calls of message number `index` as the model would write them.

    A lost value, or more calls than the format allows, is a loss.
    """
    if form.one_call and len(calls) > 1:
        losses.add(
            join("messages", index), "parallel calls", "rewritten", "the format allows one call per turn", "info"
        )
    written = form.render_calls([_as_function(call) for call in calls], tools)
    for loss in written.losses:
        losses.add(join("messages", index) + loss.path, loss.concept, loss.action, loss.detail, "warning")
    return written.text


def _as_function(call: ToolCall) -> ToolCall:
    if call.kind == "freeform":
        return replace(call, kind="function", arguments={"input": call.raw or ""}, raw=None)
    return call


def render_results(
    message: Message,
    form: Format,
    names: dict[str, str],
    losses: Losses,
    index: int,
    join_pieces: Callable[[Sequence[str]], str] = "".join,
) -> tuple[Part, ...]:
    """Replace each result by text in the format. Its media follow it, because text cannot hold them.

    Special tokens in a result are a loss.
    """
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            parts.append(part)
            continue
        named_result = part if part.name else replace(part, name=names.get(part.call_id))
        if any(token in part.text for token in _special_tokens(form)):
            detail = "it contains special tokens of the format, which the model may mistake for its own"
            losses.add(join("messages", index), "tool result", "weakened", detail)
        before = "\n" if parts and isinstance(parts[-1], Text) else ""
        parts.append(Text(before + form.results.render(named_result, join_pieces)))
        parts += [piece for piece in part.parts if isinstance(piece, Media)]
    return tuple(parts)


def _special_tokens(form: Format) -> tuple[str, ...]:
    """Return the tokens that no result should contain: the format's own tokens, and those that begin a turn."""
    template = form.results.template.partition("{content}")[2].strip()
    return tuple(filter(None, (*form.noise, *form.halts, template, "<|im_start|>", "<|start|>", "[INST]")))


class AnswerStart(NamedTuple):
    """The beginning of the answer: `written` at the end of the prompt, and the part of it that the parser must `read`."""

    written: str = ""
    read: str = ""


def choose_answer_start(
    request: Request, options: PromptOptions, form: Format, required_tools: Sequence[Tool], losses: Losses
) -> AnswerStart:
    """Return the beginning of the answer: the reasoning opened or closed, and a required call opened.

    The model can then only complete that call. A required call, or an answer whose output format the server enforces,
    has no reasoning before it.
    """
    template = options.template
    if request.messages and request.messages[-1].role == "assistant":
        return AnswerStart()  # the model continues its own text
    call = call_opening(form.calls, required_tools)
    if template.continues_after_results and _ends_with_result(request):
        return AnswerStart(call, call)  # the turn of the model has already begun
    is_forced = bool(required_tools) or (request.output is not None and request.output.kind != "text")
    reasoning = _requested_state(request, options.reasoning, losses)
    if reasoning == "open" and not is_forced:
        is_tag_and_line = template.opened.endswith(">\n")  # the line break belongs to the prompt, not to the reasoning
        return AnswerStart(template.opened, template.opened[:-1] if is_tag_and_line else template.opened)
    closed = template.closed if reasoning is not None else ""
    return AnswerStart(closed + call, call)


def _ends_with_result(request: Request) -> bool:
    parts = request.messages[-1].parts if request.messages else ()
    return bool(parts) and isinstance(parts[-1], ToolResult)


def _requested_state(request: Request, default: ReasoningState | None, losses: Losses) -> ReasoningState | None:
    """Return the state of the reasoning for this request, or None for a model whose reasoning has no setting.

    An effort or a budget cannot be sent, which is added to `losses`.
    """
    asked = request.reasoning
    if asked is None:
        return default
    if asked.effort is not None or asked.budget is not None:
        detail = "a prompt can turn reasoning on or off, not limit it"
        losses.add(join("reasoning"), "amount of reasoning", "weakened", detail, "info")
    if default is None:
        return None
    return "closed" if asked.mode == "off" else "open" if asked.mode is not None else default


def render_turns(
    messages: tuple[Message, ...],
    form: Format,
    tools: Sequence[Tool],
    template: ChatTemplate,
    guard: TokenGuard,
    losses: Losses,
) -> list[PromptTurn]:
    """Render the messages as turns of the template, with calls and results in the text format.

    Control tokens are neutralised in the joined text of a turn, because its parts could each have a piece of one.
    """
    names: dict[str, str] = {}
    turns: list[PromptTurn] = []
    drafts = normalise(messages, losses)
    last_user = _last_user_message(drafts)
    for number, draft in enumerate(drafts):
        message = replace(draft.message, parts=tuple(draft.parts))
        index = message_index(draft.locations[0]) if draft.locations else 0
        if message.role == "assistant":
            calls = [part for part in message.parts if isinstance(part, ToolCall)]
            names.update({call.id: call.name for call in calls})
            path = join("messages", index)
            written = guard.calls(write_calls(calls, form, tools, losses, index), calls, path)
            reasoning = "".join(_reasoning_texts(message, losses, index, is_kept=number > last_user)).strip("\n")
            text = "".join(_part_texts(message.parts, guard, losses, index))
            content = template.render_assistant(
                guard.text(text, path), written, guard.text(reasoning, path), guard.join
            )
            turns.append(PromptTurn("assistant", content, bool(calls)))
        else:
            turns += _render_input(message, form, names, guard, losses, index)
    return turns


def add_instructions(turns: list[PromptTurn], instructions: str) -> None:
    """Append the instructions to the system prompt, or add one."""
    if not instructions:
        return
    if turns and turns[0].role == "system":
        turns[0] = PromptTurn("system", f"{turns[0].text}\n\n{instructions}")
    else:
        turns.insert(0, PromptTurn("system", instructions))


def _last_user_message(drafts: Sequence[DraftMessage]) -> int:
    """Return the number of the last message of a user that has more than results; -1 if there is none."""
    for number in range(len(drafts) - 1, -1, -1):
        is_input = drafts[number].message.role == "user"
        if is_input and any(not isinstance(part, ToolResult) for part in drafts[number].parts):
            return number
    return -1


def _reasoning_texts(message: Message, losses: Losses, index: int, *, is_kept: bool) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, Reasoning) and part.joined_text:
            if is_kept:
                yield part.joined_text
            else:
                detail = "the prompt has the reasoning of the current turn only"
                losses.add(join("messages", index), "reasoning", "dropped", detail, "info")


def _render_input(
    message: Message, form: Format, names: dict[str, str], guard: TokenGuard, losses: Losses, index: int
) -> Iterator[PromptTurn]:
    """Yield the turns of a message that is not the model's: results in their role, other text in the message's role."""
    for is_result, group in groupby(message.parts, lambda part: isinstance(part, ToolResult)):
        if not is_result:
            text = guard.text("".join(_part_texts(tuple(group), guard, losses, index)), join("messages", index))
            yield PromptTurn("user" if message.role == "user" else "system", text)
            continue
        results = list(group)
        for batch in [results] if form.results.grouped else [[result] for result in results]:
            written = render_results(replace(message, parts=tuple(batch)), form, names, losses, index, guard.join)
            yield PromptTurn(form.results.role, guard.join(_part_texts(written, guard, losses, index)))


def _part_texts(parts: Sequence[Part], guard: TokenGuard, losses: Losses, index: int) -> list[str]:
    """Return the texts of a message. Media become placeholders, so that the model knows that something is missing."""
    texts = []
    for part in parts:
        if isinstance(part, (Text, Refusal)):
            texts.append(part.text)
        elif isinstance(part, (Media, Opaque)):
            detail = "a raw prompt has only text"
            losses.add(join("messages", index), part_label(part), "dropped", detail, "error")
            label = media_placeholder(part).text if isinstance(part, Media) else f"[{part.type}: not available]"
            texts.append(guard.text(label, join("messages", index)))
    return texts
