"""Choose the format of a model, and find out whether its prompt opens the reasoning."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from .. import text as formats
from ..ir.errors import ConfigError, EncodeError
from ..ir.parts import ToolCall
from ..text.engine.format import Format
from ..text.engine.offered_tools import OfferedTools
from ..text.engine.reader import Malformed, Parsing
from ..text.engine.style import ParseContext, StyleBase
from ..text.styles.channel_calls import ChannelCalls
from ..text.styles.message_calls import ReactCalls

__all__ = [
    "NoCalls",
    "answer_begins_inside",
    "format_of_model",
    "has_separate_reasoning",
    "is_reasoning_open",
    "prompt_opens_reasoning",
    "with_json_calls",
    "without_calls",
]


class NoCalls(StyleBase, frozen=True):
    """A style without calls: all text that is not reasoning is content."""

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return ()

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        raise Malformed("this style has no calls")

    def write(self, calls: Sequence[ToolCall]) -> str:
        raise EncodeError("this format has no calls", hint="render them with the format that without_calls() was given")


def without_calls(form: Format) -> Format:
    """Return the format for answers in which calls are not allowed: their tags stay in the text."""
    return replace(form, calls=NoCalls(), one_call=False, halts=())


def with_json_calls(form: Format) -> Format:
    """Return the format of constrained decoding: the reasoning of the model, and its calls as a JSON array."""
    array = formats.get("json_array")
    return replace(array, reasoning=form.reasoning, noise=form.noise)


def has_separate_reasoning(form: Format) -> bool:
    """Return whether the reasoning can be read without the calls. In channels and in ReAct both are parts of one structure."""
    return not isinstance(form.calls, ChannelCalls | ReactCalls)


def format_of_model(name: str, *models: str | None, template: str | None = None) -> Format:
    """Return the format `name`; if it is empty, the format of the chat template, or of the first known model name."""
    if name:
        return formats.get(name)
    detected = formats.detect_template(template) if template else None
    found = detected or next(filter(None, (formats.detect(model) for model in models if model)), None)
    if found:
        return formats.get(found)
    known = ", ".join(repr(model) for model in models if model) or "no name"
    raise ConfigError(
        f"the text format of the model is unknown ({known})",
        hint="name the format, as in toolwire_hermes; `toolwire formats` lists them",
    )


def prompt_opens_reasoning(form: Format, prompt: str) -> bool | None:
    """Return whether the end of the prompt opens the reasoning (True) or closes it (False); None if it does neither."""
    end = prompt.rstrip()
    for opening, closing in form.reasoning:
        if opening.strip() and end.endswith(opening.strip()):
            return True
        if end.endswith(closing.strip()):
            return False
    return None


def is_reasoning_open(form: Format, text: str) -> bool | None:
    """Return whether the last tag in a text opens (True) or closes (False) reasoning; None if there is none."""
    opened = max((text.rfind(opening.strip()) for opening, _ in form.reasoning if opening.strip()), default=-1)
    closed = max((text.rfind(closing.strip()) for _, closing in form.reasoning), default=-1)
    return None if opened == closed else opened > closed


def answer_begins_inside(form: Format, answer: str) -> bool | None:
    """Return whether a complete answer begins inside reasoning: it closes reasoning that it has not opened. None if unknown."""
    start = answer.lstrip()
    if any(opening and start.startswith(opening) for opening, _ in form.reasoning):
        return False
    for opening, closing in form.reasoning:
        end = -1 if closing in form.noise else answer.find(closing)  # a tag that is noise elsewhere closes other things
        if end >= 0:
            return not (opening and opening in answer[:end])
    return None
