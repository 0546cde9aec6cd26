"""Write the conversations with a chat template: the turns as rendered, and what a template cannot write."""

import json
from itertools import product
from typing import NamedTuple

from chat_template import REASONING_FIELDS, ChatTemplate, TemplateRefusal, Turn
from conversations import CASES, TOOLS, Case

__all__ = ["RenderedCase", "RenderedTemplate", "render_template"]

_PROBE = Case("probe", (("get_weather", {"city": "Rome"}),))


class RenderedCase(NamedTuple):
    """A turn, and the calls, the text and the reasoning that the template wrote into it."""

    turn: Turn
    calls: tuple[tuple[str, dict], ...]
    content: str
    reasoning: str


class RenderedTemplate(NamedTuple):
    """The rendered cases by name, and for the others the reason why the template does not write them."""

    cases: dict[str, RenderedCase]
    omitted: dict[str, str]


def render_template(source):
    """Render all conversations with a template."""
    template = ChatTemplate(source)
    cases, omitted = {}, {}
    writer = _find_writer(template)
    for case in CASES:
        found = _render(template, case, writer) if isinstance(writer, _Writer) else writer
        if isinstance(found, RenderedCase):
            cases[case.name] = found
        else:
            omitted[case.name] = found
    return RenderedTemplate(cases, omitted)


class _Writer:
    """Messages in the shape that a template expects: arguments as text or object, and the content beside calls."""

    def __init__(self, template, *, arguments_as_text, no_content, fields):
        self._ids_name_the_tool = "<|tool_calls_section_begin|>" in template.source  # Kimi K2
        self._arguments_as_text = arguments_as_text
        self._no_content = no_content
        self._fields = fields

    def assistant(self, case, first=0):
        message = {"role": "assistant", "content": case.text or self._no_content, **self._fields}
        if case.calls:
            message["tool_calls"] = [self._call(first + at, *call) for at, call in enumerate(case.calls)]
        return message

    def history(self, case):
        switch = "" if case.reasoning else " /no_think"  # Nemotron and SmolLM read it in the text
        messages = [{"role": "user", "content": f"What is the weather?{switch}"}]
        if case.after_result:
            before = self.assistant(_PROBE)
            call_id = before["tool_calls"][0]["id"]
            result = {"role": "tool", "tool_call_id": call_id, "name": "get_weather", "content": "22 degrees"}
            messages += [before, result]
        return messages

    def _call(self, number, name, arguments):
        call_id = f"functions.{name}:{number}" if self._ids_name_the_tool else f"call{number:05}"
        written = json.dumps(arguments, ensure_ascii=False) if self._arguments_as_text else arguments
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}


def _find_writer(template):
    """Find the shape of messages with which the template writes a call, or return the reason why it writes none."""
    reason = ""
    shapes = product(({}, {"reasoning_content": ""}), ("", None), (False, True))  # K2 Horizon requires the field
    for fields, no_content, as_text in shapes:
        writer = _Writer(template, arguments_as_text=as_text, no_content=no_content, fields=fields)
        try:
            text = template.turn(writer.history(_PROBE), writer.assistant(_PROBE), TOOLS).text
        except TemplateRefusal as refusal:
            reason = reason or str(refusal)
            continue
        broken = "{'city'" in text or '\\"city\\"' in text  # an object printed by Python, or text encoded twice
        if "get_weather" in text and "Rome" in text and not broken:
            return writer
        reason = "the template writes no calls"
    return reason


def _render(template, case, writer):
    """Render a case; return the reason if the template does not write it."""
    history = writer.history(case)
    reason = "the template has no reasoning"
    for message in _with_reasoning(template, writer.assistant(case, first=int(case.after_result)), case.reasoning):
        try:
            turn = template.turn(history, message, TOOLS)
        except TemplateRefusal as refusal:
            reason = str(refusal)
            continue
        calls = tuple(call for call in case.calls if _mentions(turn.text, call))
        if case.calls and not calls:
            reason = "the template writes the text and the call as two turns"
        elif case.reasoning and not _shows_reasoning(turn, case.reasoning):
            reason = "the template omits the reasoning"
        elif case.name == "null" and not any(word in turn.text for word in ("null", "None")):
            return "the template writes nothing for null"
        else:
            return RenderedCase(turn, calls, *_visible(case, turn.text))
    return reason


def _mentions(text, call):
    name, arguments = call
    plain = (value for value in arguments.values() if isinstance(value, str) and value.isalnum())
    return name in text and all(value in text for value in plain)


def _shows_reasoning(turn, reasoning):
    """True if the turn contains the reasoning, opened once: by the prompt or in the turn."""
    before, found, _ = turn.text.partition(reasoning)
    return bool(found) and turn.reasoning_open != bool(before.strip())


def _visible(case, text):
    """Return the text and the reasoning of a case as far as the turn contains them."""
    if case.text and f"<|channel|>analysis<|message|>{case.text}" in text:  # gpt-oss: text before a call is reasoning
        return "", case.text
    return case.text if case.text in text else "", case.reasoning


def _with_reasoning(template, message, reasoning):
    """Yield the message with its reasoning in each place where a template may expect it."""
    if not reasoning:
        yield message
        return
    for field in REASONING_FIELDS:
        if field in template.source:
            yield {**message, field: reasoning}
    if "'thinking'" in template.source:
        text = [{"type": "text", "text": message["content"]}] if message["content"] else []
        yield {**message, "content": [{"type": "thinking", "thinking": reasoning}, *text]}
    if "think>" in template.source:
        for opener in ("<think>", ""):  # the prompt may end with it
            yield {**message, "content": f"{opener}{reasoning}</think>{message['content'] or ''}"}
