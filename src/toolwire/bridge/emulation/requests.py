"""Native tool calls for models without tool-calling support: any wire, any text format.

    emulation = emulate(request, "hermes")                        # tools in the prompt, history as text
    prepared = prepare(emulation.request, "openai_chat")          # a request without tools, for any wire
    answer = prepared.exchange.restore(emulation.restore(response))   # calls restored
    again = emulation.retry(response)                             # once, if the answer could not be read

For a stream, feed the events to `emulation.make_restorer()`. `emulate` is a pure function of the request, like
`prepare`. With `EmulationSettings("hermes", via="completions")`, the request is one raw prompt, in which a required call
is already begun; see `toolwire.bridge.emulation.settings`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.folding import fold, unfold
from ...ir.losses import Losses
from ...ir.parts import Part, Text, ToolCall, ToolResult
from ...ir.pointer import Object, join
from ...ir.request import Message, OutputFormat, Params, Request
from ...ir.response import Response, Stop
from ...ir.tools import Tool
from ...text.engine.chat_template import PromptTurn
from ...text.engine.event_builder import Diagnostic
from ...text.engine.format import Format
from ...text.styles.json_calls import JsonCalls
from ..fitting.tool_search import hosted_method, waiting_indices
from ..fitting.typed_tools import express_items
from .answers import RETRYABLE_CODES, AnswerReader
from .control_tokens import TokenGuard
from .prompts import FREEFORM, AnswerStart, add_instructions, choose_answer_start, render_history, render_turns
from .settings import EmulationSettings, PromptOptions

_REPAIR_PROMPT = (
    "The last message was meant to call a tool, but the call cannot be parsed. Make that call now, and say nothing else. "
    "Use only arguments that are in the message or in the conversation."
)
_OUR_ID = re.compile(r"call(\d{5})").fullmatch


class Emulation:
    """A request with tools as text, and the way to restore its answer."""

    def __init__(
        self,
        original: Request,
        form: Format,
        *,
        constrain: bool = False,
        retried: bool = False,
        prompt: PromptOptions | None = None,
    ) -> None:
        """Write the request as text, or with `prompt` as a raw prompt; raise EncodeError if a name forms a token."""
        self.losses = Losses()
        if prompt is not None:
            self._guard = TokenGuard(form, prompt.template, self.losses)
            original = self._guard.request(original)
        self._original = original
        self._form = form
        self._constrain = constrain  # the server can enforce a JSON schema
        self._retried = retried  # this is already the retry; there is no second one
        self._prompt = prompt  # None: the request is for a chat endpoint
        self._tools = _callable_tools(original, self.losses)
        self._answer_start = self._choose_answer_start()
        self.request = self._text_request() if prompt is None else self._prompt_request(prompt)

    def restore(self, response: Response, losses: Losses | None = None) -> Response:
        """Return the answer with the calls parsed out of its text; losses of the answer are added to `losses`."""
        reader = self.make_restorer(losses)
        return fold([produced for event in unfold(response) for produced in reader.feed(event)])

    def make_restorer(self, losses: Losses | None = None) -> AnswerReader:
        """Like `restore`, for the events of a stream; `should_stop` is set when the generation can be aborted."""
        return AnswerReader(
            self._form,
            self._tools,
            first_call=_next_call_number(self._original),
            max_calls=0 if self._forbids_calls() else 1 if self._original.parallel is False else None,
            freeform=frozenset(tool.name for tool in self._original.tools if tool.kind == "freeform"),
            losses=losses,
            answer_start=self._answer_start.read,
            reasoning=None if self._prompt is None else False,  # a raw prompt has the opening tag in `answer_start`
            stops_after_calls=self._prompt is not None,
        )

    def retry(self, response: Response) -> Emulation | None:
        """Repeat the request with a description of the problem in the answer, once; None if there is no problem.

        `response` is the model's original answer. A retry never follows an answer with a complete call, because the
        caller would run that call twice.
        """
        problem = self.problem(response) if self.can_retry else None
        return None if problem is None else self.make_retry(response, problem)

    def make_retry(self, response: Response, problem: str) -> Emulation:
        """Repeat the request with the rejected answer and its problem."""
        return Emulation(
            self._describe_problem(response, problem),
            self._form,
            constrain=self._constrain,
            retried=True,
            prompt=self._prompt,
        )

    def make_repair_request(self, response: Response) -> Request:
        """Return the request with native tools, for another model that repairs the calls of a rejected answer."""
        return self._describe_problem(response, _REPAIR_PROMPT)

    @property
    def can_retry(self) -> bool:
        """False for a retry: there is no second one."""
        return not self._retried

    def _describe_problem(self, response: Response, problem: str) -> Request:
        """Return the request with the rejected answer and the problem in it."""
        text = self._answer_start.read + "".join(part.text for part in response.parts if isinstance(part, Text))
        answer_message = (Message("assistant", (Text(text),)),) if text.strip() else ()
        messages = (*self._original.messages, *answer_message, Message("user", (Text(problem),)))
        return replace(self._original, messages=messages)

    def problem(self, response: Response) -> str | None:
        """Return a message to the model about the problem in its answer, or None if the answer is usable."""
        reader = self.make_restorer()
        events = [produced for event in unfold(response) for produced in reader.feed(event)]
        if any(call.state == "complete" for call in fold(events).calls):
            return None
        return self.problem_without_call(reader, response.stop)

    def problem_without_call(self, reader: AnswerReader, stop: Stop | None) -> str | None:
        """Like `problem`, for an answer that `reader` has read and that has no complete call.

        Return None for an answer that ended at a token limit: the next one would end at the same limit.
        """
        if stop is not None and stop.reason in ("length", "context_window"):
            return None
        notes = [note for note in reader.diagnostics if note.code in RETRYABLE_CODES]
        if notes:
            return f"Your call could not be read. {_describe_notes(notes)}\n{self._call_instructions()}"
        if self._requires_call():
            return f"You have to call {self._callable_functions()} now. {self._call_instructions()}"
        return None

    def _call_instructions(self) -> str:
        return self._form.render_tools(self._tools).rpartition("\n\nTo call a function, ")[2].partition("\n\n")[0]

    def _text_request(self) -> Request:
        """Return the request without tools: they are in the instructions, and the history is text."""
        request, form = self._original, self._form
        messages = render_history(request.messages, form, self._tools, self.losses)
        return replace(
            request,
            messages=_with_instructions(messages, self._instructions()),
            tools=(),
            choice=None,
            parallel=None,
            params=self._with_stops(()),
            output=self._output_format(),
        )

    def _choose_answer_start(self) -> AnswerStart:
        if self._prompt is None:
            return AnswerStart()
        required_tools = self._tools if self._requires_call() else ()
        return choose_answer_start(self._original, self._prompt, self._form, required_tools, self.losses)

    def _prompt_request(self, prompt: PromptOptions) -> Request:
        """Return a request of one message: the whole conversation as a raw prompt."""
        request, template = self._original, prompt.template
        turns = render_turns(request.messages, self._form, self._tools, template, self._guard, self.losses)
        add_instructions(turns, self._instructions(declare=template.declaration is None))
        if template.declaration is not None and self._declares_tools():
            first = next((index for index, turn in enumerate(turns) if turn.role != "system"), len(turns))
            turns.insert(first, PromptTurn("declaration", self._form.render_tools(self._tools)))
        return replace(
            request,
            messages=(Message("user", (Text(template.render(turns, self._answer_start.written, self._guard.join)),)),),
            tools=(),
            choice=None,
            parallel=None,
            params=self._with_stops(template.ends),
            reasoning=None,
            output=self._prompt_output(),
        )

    def _with_stops(self, ends: Sequence[str]) -> Params:
        """Return the parameters with the stop sequences of the format, of the template and of the request."""
        params = self._original.params
        stops = tuple(
            dict.fromkeys((*(self._form.stops if self._declares_tools() else ()), *ends, *(params.stop or ())))
        )
        return replace(params, stop=stops) if stops else params

    def _prompt_output(self) -> OutputFormat | None:
        """Return the required output format. A server enforces it on the whole text, also on calls."""
        output = self._original.output
        if output is None or output.kind == "text" or not self._declares_tools():
            return output
        detail = "the server would enforce it on calls, too"
        self.losses.add("/output", "output format", "dropped", detail)
        return None

    def _declares_tools(self) -> bool:
        return bool(self._tools) and not self._forbids_calls()

    def _instructions(self, *, declare: bool = True) -> str:
        """Return the text for the system prompt: the tools, examples, and the tool choice as a sentence."""
        if not self._declares_tools():
            return "Answer in words; do not call a function." if self._forbids_calls() else ""
        lines = [self._form.render_tools(self._tools)] if declare else []
        examples = [ToolCall("", tool.name, example) for tool in self._tools for example in tool.examples[:3]]
        if examples:
            written = "\n".join(self._form.render_call(item, self._tools).text for item in examples)
            lines.append(f"Examples of calls:\n{written}")
        if self._requires_call():
            lines.append(f"You have to call {self._callable_functions()} now, and say nothing else.")
        elif self._original.parallel is False:
            lines.append("Make at most one call in a turn.")
        return "\n\n".join(lines)

    def _forbids_calls(self) -> bool:
        return self._original.choice is not None and self._original.choice.mode == "none"

    def _requires_call(self) -> bool:
        choice = self._original.choice
        return choice is not None and choice.forces_call

    def _callable_functions(self) -> str:
        names = [tool.name for tool in self._tools]
        return f"the function {names[0]}" if len(names) == 1 else f"one of the functions {', '.join(names)}"

    def _output_format(self) -> OutputFormat | None:
        """Constrain the output to the call's schema, if the server supports it and a call in plain JSON is required."""
        calls = self._form.calls
        is_plain_json = isinstance(calls, JsonCalls) and "{" in calls.bare
        if not (
            self._constrain
            and is_plain_json
            and self._requires_call()
            and self._original.output is None
            and self._tools
        ):
            return self._original.output
        shapes = [_call_schema(tool) for tool in self._tools]
        shape = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
        schema: Object = {
            "type": "object",
            "properties": {"tool_call": shape},
            "required": ["tool_call"],
            "additionalProperties": False,
        }
        return OutputFormat("json_schema", schema, "tool_call")


def emulate(request: Request, form: Format | str | EmulationSettings, *, constrain: bool = False) -> Emulation:
    """Emulate tool calls in text for `request`; set `constrain` if the server can enforce JSON Schema.

    Raise ConfigError if `request` is not decoded, the required tool is not offered, or the settings are invalid.
    """
    if not isinstance(request, Request):
        raise ConfigError(
            f"expected a Request, got {type(request).__name__}",
            hint="decode the document with decode_request of its wire",
        )
    settings = form if isinstance(form, EmulationSettings) else EmulationSettings(form)
    if request.choice is not None and request.choice.mode == "tool" and not _callable_tools(request, Losses()):
        raise ConfigError(f"the required tool {request.choice.names} is not offered")
    messages = express_items(request.messages, "")
    if messages is not request.messages:
        request = replace(request, messages=messages)
    return Emulation(request, settings.form, constrain=constrain, prompt=settings.prompt_options(request.model))


def _callable_tools(request: Request, losses: Losses) -> tuple[Tool, ...]:
    """Return the tools that may be called, as functions; each tool that is left out is added to `losses`.

    These are deferred tools, and built-in tools, which only their provider can run.
    """
    choice = request.choice
    names = choice.names if choice is not None and choice.mode in ("tool", "allowed") else None
    offered = []
    waiting = waiting_indices(request)
    for index, tool in enumerate(request.tools):
        if index in waiting:
            losses.add(join("tools", index), "deferred tool", "moved", "declared when a search finds it", "info")
        elif tool.kind == "builtin" and hosted_method(tool) is not None:
            detail = "the target has no tool search; all deferred tools are declared from the start"
            losses.add(join("tools", index), "tool search", "dropped", detail, "info")
        elif tool.kind == "builtin":
            losses.add(join("tools", index), tool.name, "dropped", "only its provider can run it", "error")
        elif names is None or tool.name in names:
            offered.append(replace(tool, kind="function", input_schema=FREEFORM) if tool.kind == "freeform" else tool)
    return tuple(offered)


def _call_schema(tool: Tool) -> Object:
    """Return the schema of a call of one tool, for output that the server constrains."""
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": tool.input_schema or {"type": "object"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _with_instructions(messages: Sequence[Message], instructions: str) -> tuple[Message, ...]:
    """Append the instructions to the first system message, or add one."""
    if not instructions:
        return tuple(messages)
    if messages and messages[0].role in ("system", "developer"):
        first = messages[0]
        parts: tuple[Part, ...] = (*first.parts, Text(f"\n\n{instructions}"))
        return (replace(first, parts=parts), *messages[1:])
    return (Message("system", (Text(instructions),)), *messages)


def _next_call_number(request: Request) -> int:
    """Return the number of the next call, because ids are unique in a conversation."""
    parts = [part for message in request.messages for part in message.parts]
    ids = [part.id for part in parts if isinstance(part, ToolCall)]
    ids += [part.call_id for part in parts if isinstance(part, ToolResult)]
    return max((int(found[1]) + 1 for item in ids if (found := _OUR_ID(item))), default=0)


def _describe_notes(notes: Sequence[Diagnostic]) -> str:
    return " ".join(f"At character {note.position}: {note.detail}." for note in notes[:3])
