"""The grammar of a turn in a text format, derived from the call template of its style.

    grammar = toolwire.text.get("hermes").grammar(tools, ToolChoice("required"))
    grammar.lark        # for llguidance, with the JSON schemas of the tools embedded
    grammar.triggers    # the texts at which a call begins
    grammar.residual    # keywords of the schemas that a validator has to check

Whatever `lark` accepts, the parser of the format reads as calls of offered tools with valid arguments, except for the
residual keywords. Calls are accepted only as the format renders them, with arguments in the order of the schema.

A turn may contain text if the choice allows it. The text is free up to a trigger, and again after the calls if the
format marks their end. Reasoning is free text too: a trigger inside it has no effect, because the parser ignores such
a draft of a call. Openers of calls in another spelling that the parser also reads are excluded from free text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import takewhile

from ...ir.errors import ConfigError
from ...ir.parts import ToolCall
from ...ir.pointer import join
from ...ir.text import dumps
from ...ir.tools import Tool, ToolChoice
from ...ir.value import Value
from ...schema.composition import arguments_schema
from ...schema.decoding.converter import decoding_schema
from ...schema.decoding.limits import DecodingLimits, Residual
from .argument_grammar import argument_grammar
from .grammar_schema import SchemaBranches
from .lark import LarkRules, any_text, quote_regex, union
from .markers import reasoning_markers
from .offered_tools import OfferedTools
from .style import CallTemplate, Slot, TurnFormat, closing_texts

CALL_LIMITS = DecodingLimits(close_objects=True)
"""The limits of arguments in a grammar."""
_BREAKS = r"/\n{1,4}/"


class CallGrammar(Value, frozen=True):
    """A grammar in the Lark dialect of llguidance.

    `lark` is the grammar of a whole turn, `calls` is for the calls alone. `triggers` are the texts at which a call
    begins in a turn with text, and `markers` all literals of calls; a tokenizer may have a special token for some of
    them. `residual` has pointers that begin with the name of the tool.
    """

    lark: str
    calls: str
    triggers: tuple[str, ...]
    residual: tuple[Residual, ...] = ()
    markers: tuple[str, ...] = ()
    template: CallTemplate | None = None
    reasoning_closers: tuple[str, ...] = ()

    def closers(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the texts that close reasoning, a value, a call or all calls; `keys` are names of arguments."""
        return () if self.template is None else (*self.reasoning_closers, *closing_texts(self.template, keys))


class GrammarOptions(Value, frozen=True):
    """Settings of a grammar beside the tools.

    `parallel`: several calls, None for the default of the format. `reasoning`: the prompt has already opened the
    reasoning. `may_reason`: reasoning may precede calls that are required. `special_tokens` maps the texts that the
    tokenizer holds as one special token to their ids. `cautious` also leaves keywords to the validator that the engine
    supports only in some combinations.
    """

    choice: ToolChoice = ToolChoice("auto")
    parallel: bool | None = None
    reasoning: bool = False
    may_reason: bool = True
    limits: DecodingLimits = CALL_LIMITS
    special_tokens: dict[str, int] = {}
    cautious: bool = False


def build_grammar(
    form: TurnFormat, tools: Iterable[Tool], options: GrammarOptions, survives: Callable[[ToolCall, Tool], bool]
) -> CallGrammar:
    """Derive the grammar of a turn; raise ConfigError for a choice or a name that the format cannot express.

    `survives` returns whether a call of the tool is the same after it was rendered and parsed.
    """
    offered = [tool for tool in tools if tool.kind != "builtin"]
    selected = _select(offered, options.choice)
    for tool in selected:
        _check_names(form, tool, survives)
    template = form.calls.template()
    required = options.choice.forces_call
    builder = _TurnRules(form, template, selected, options)
    body = builder.calls() if selected else ""
    calls = builder.rules.text(body)
    start = builder.required(body) if required else builder.free(body)
    return CallGrammar(
        builder.rules.text(start),
        calls,
        builder.triggers(),
        tuple(builder.residual),
        tuple(dict.fromkeys(filter(None, map(str.strip, builder.literals())))),
        template,
        tuple(builder.reasoning_closers()),
    )


def _select(tools: list[Tool], choice: ToolChoice) -> list[Tool]:
    """Return the tools that may be called; ConfigError for a name that is not offered."""
    if choice.mode in ("tool", "allowed"):
        names = choice.names[:1] if choice.mode == "tool" else choice.names
        unknown = [name for name in names if all(tool.name != name for tool in tools)]
        if unknown or not names:
            hint = f"offered are {', '.join(tool.name for tool in tools) or 'no tools'}"
            raise ConfigError(f"the tool choice names {unknown or 'no tool'}, which is not offered", hint=hint)
        return [tool for tool in tools if tool.name in names]
    if not tools and choice.mode != "none":
        raise ConfigError("a grammar of calls needs at least one tool", hint="offer a tool, or choose 'none'")
    return tools


def _check_names(form: TurnFormat, tool: Tool, survives: Callable[[ToolCall, Tool], bool]) -> None:
    """Raise ConfigError if the name of the tool or of a parameter does not survive this format."""
    keys = arguments_schema(tool).get("properties") or {}
    call = ToolCall(id="a1b2c3d4e", name=tool.name, arguments=dict.fromkeys(keys, "x"))
    plain = Tool(tool.name, input_schema={"properties": {key: {"type": "string"} for key in keys}})
    if not survives(call, plain):
        raise ConfigError(
            f"the format {form.name!r} cannot express a call of {tool.name!r}",
            hint="rename the tool or its parameters; use letters, digits and underscores",
        )


class _TurnRules:
    """The rules of one turn."""

    def __init__(
        self, form: TurnFormat, template: CallTemplate, tools: Sequence[Tool], options: GrammarOptions
    ) -> None:
        self.form = form
        self.template = template
        self.tools = tools
        self.options = options
        self.rules = LarkRules(options.special_tokens)
        self.residual: dict[Residual, None] = {}
        self.is_single = form.one_call if options.parallel is None else form.one_call or not options.parallel
        self._arguments: dict[str, str] = {}
        self._strong = form.calls.openers(OfferedTools(tools))
        markers = reasoning_markers(form.reasoning, (*form.noise, *form.ends_reasoning))
        self.pairs = [
            (opener, closer) for opener, closers in markers.closers_of.items() for closer in closers if opener
        ]
        self.pairs = _unambiguous_pairs([*self.pairs, *template.reasoning])
        # Messages of reasoning that the style reads are free text where text is free; a call in one of them is masked.
        self.tags = [pair for pair in self.pairs if pair[0] not in markers.phrases and pair not in template.reasoning]

    # calls

    def literals(self) -> list[str]:
        parts = [part for part in self.template.call if isinstance(part, str)]
        return [self.template.before, *parts, self.template.between, self.template.after]

    def calls(self) -> str:
        """Return an expression for all calls of a turn, as the format renders them."""
        form = self.template
        opening, separator, closing = self._frame()
        first = self._any_call(opening)
        if self.is_single:
            return f"{first} {self.rules.literal(form.after)}"
        if closing:  # each call has its own tags
            call = f"{first} {self.rules.literal(closing)}"
            return f"{call} ({self._any_call(separator + opening)} {self.rules.literal(closing)})*"
        more = self._any_call(form.between)
        return f"{first} ({more})* {self.rules.literal(form.after)}"

    def _frame(self) -> tuple[str, str, str]:
        """Split the text between calls with their own tags into closing tag, separator and opening tag.

        The closing tag is empty if all calls share one pair of tags.
        """
        before, between, after = self.template.before, self.template.between, self.template.after
        own = bool(after) and between.startswith(after) and between.endswith(before)
        if not own or len(between) < len(after) + len(before):
            return before, between, ""
        return before, between[len(after) : len(between) - len(before)], after

    def _any_call(self, opening: str) -> str:
        """Return a call of any tool. The text before it is part of its first literal, so that alternatives differ early."""
        return self.rules.add("call", union(self._call(tool, (opening, *self.template.call)) for tool in self.tools))

    def _call(self, tool: Tool, parts: Sequence[str | Slot]) -> str:
        """Add a rule for one call of a tool, with adjacent literals joined, and return its name."""
        symbols: list[str] = []
        text = ""
        for part in parts:
            written = part if isinstance(part, str) else _written_name(part, tool.name)
            if written is not None:
                text += written
                continue
            symbols += [self.rules.literal(text), self._slot(part, tool)]
            text = ""
        return self.rules.add("tool", " ".join(filter(None, (*symbols, self.rules.literal(text)))))

    def _slot(self, part: str | Slot, tool: Tool) -> str:
        if isinstance(part, Slot) and part.kind == "pattern":
            terminal = self.rules.add("PART", "/" + part.pattern.replace("/", "\\/") + "/")
            return f"({terminal})?" if part.optional else terminal
        if tool.name not in self._arguments:
            self._arguments[tool.name] = self._tool_arguments(tool)
        return self._arguments[tool.name]

    def _tool_arguments(self, tool: Tool) -> str:
        """Add a rule for the arguments of a tool, and return its name. Keywords that it cannot express are residual."""
        decoded = decoding_schema(arguments_schema(tool), limits=self.options.limits, cautious=self.options.cautious)
        reader = SchemaBranches(decoded.schema, decoded.residual, self.options.limits)
        expression = argument_grammar(self.rules, self.template.arguments, tool, reader)
        for one in reader.residual:
            self.residual[Residual(join(tool.name) + one.pointer, one.keyword)] = None
        return self.rules.add("arguments", expression)

    # triggers

    def triggers(self) -> tuple[str, ...]:
        if self.template.trigger:
            return (self.template.trigger,)
        return tuple(dict.fromkeys(self._named_trigger(tool) for tool in self.tools))

    def _named_trigger(self, tool: Tool) -> str:
        """Return the text of a call up to its name and the literal after it."""
        text = self.template.before
        named = False
        for part in self.template.call:
            written = part if isinstance(part, str) else _written_name(part, tool.name)
            if written is None:
                break
            text += written
            if named:
                break
            named = not isinstance(part, str)
        return text

    def _triggered(self, chunk: str) -> list[str]:
        """Return free text up to a trigger, and the calls after it."""
        if self.template.not_before:
            chunk = f"{chunk} & ~/(?s:.*){self.template.not_before}/"
        if self.template.trigger:
            rest = union(self._after_trigger(tool, self.template.trigger) for tool in self.tools)
            return [f"{self._until(chunk, self.template.trigger)} {rest} {self._more_calls()}"]
        return [
            f"{self._until(chunk, trigger)} {self._after_trigger(tool, trigger)} {self._more_calls()}"
            for tool in self.tools
            for trigger in [self._named_trigger(tool)]
        ]

    def _after_trigger(self, tool: Tool, trigger: str) -> str:
        """Return an expression for the rest of the first call after its trigger; ConfigError if it has no trigger."""
        parts = (self.template.before, *self.template.call)
        joined: list[str | Slot] = []
        for part in parts:
            written = part if isinstance(part, str) else _written_name(part, tool.name)
            if written is not None and joined and isinstance(joined[-1], str):
                joined[-1] += written
            else:
                joined.append(part if written is None else written)
        for index, part in enumerate(joined):
            if isinstance(part, str) and trigger in part:
                return self._call(tool, (part.partition(trigger)[2], *joined[index + 1 :]))
        raise ConfigError(f"the template of {self.form.name!r} does not contain its trigger {trigger!r}")

    def _more_calls(self) -> str:
        """Return the rules after the first call of a turn with text: more calls in the same tags, and the closer.

        Calls with their own tags follow as free text with another trigger.
        """
        closing = self._frame()[2]
        if self.is_single or closing or not (self.template.after or not self.template.closed):
            return self.rules.literal(self.template.after)
        return f"({self._any_call(self.template.between)})* {self.rules.literal(self.template.after)}"

    # text and reasoning

    def required(self, body: str) -> str:
        """Return an expression for a turn of calls (`body`), with reasoning before them if it is allowed."""
        if self.options.reasoning and self.pairs:
            return f"{self._closed_reasoning(self.reasoning_closers())} ({_BREAKS})? {body}"
        if not self.options.may_reason or not self.pairs:
            return body
        openers = dict.fromkeys(opener for opener, _ in self.pairs)
        blocks = [
            f"{self.rules.literal(opener)} {self._closed_reasoning([c for o, c in self.pairs if o == opener])}"
            for opener in openers
        ]
        return f"({self.rules.add('reasoning', union(blocks))} ({_BREAKS})?)? {body}"

    def free(self, body: str) -> str:
        """Return an expression for a turn of text, reasoning and calls (`body`) in any order.

        Where a style reads calls only at the start of the message, they are not triggered inside the text.
        """
        tags = [] if self.form.calls_in_reasoning else self.tags
        calls = self.options.choice.mode != "none"
        chunk = self._chunk(tags)
        segments = self._reasoning_segments(chunk, tags) + self._special_segments(chunk, tags)
        last = [self.rules.add("TAIL", self._some(chunk)), *self._unclosed(chunk, tags)]
        if self.template.only_at_start:
            body = f"({_BREAKS})? ({union([*([body] if calls else []), *last])})?"
            turn = f"({union(segments)})* {body}" if segments else body
        else:
            triggered = self._triggered(chunk) if calls else []
            is_open = self.template.closed and not self.is_single
            segments += triggered if is_open else []
            last += triggered if not is_open else []
            turn = f"({union(segments)})* ({union(last)})?" if segments else f"({union(last)})?"
        turn = self.rules.add("turn", turn)
        if not (self.options.reasoning and self.pairs):
            return turn
        rest = self.rules.add("REST", self._some(self._open_reasoning()))
        return f"{self._closed_reasoning(self.reasoning_closers())} {turn} | ({rest})?"

    def reasoning_closers(self) -> list[str]:
        return list(dict.fromkeys(closer for _, closer in self.pairs))

    def _openers_of_calls(self) -> list[str]:
        """Return the texts that free text must not contain: triggers, and openers in other spellings."""
        own = [*self.triggers(), *self.template.forbidden]
        return list(dict.fromkeys(own))

    def _chunk(self, tags: Sequence[tuple[str, str]]) -> str:
        """Return the terminal of free text between tags."""
        text = any_text() if not self.template.only_at_start else r"/([^\s](?s:.*))?/"
        limited = self.rules.without(text, [*self._openers_of_calls(), *(opener for opener, _ in tags)])
        starts = "|".join(map(quote_regex, self.template.forbidden_start))
        return f"{limited} & ~/\\s*({starts})(?s:.*)/" if starts else limited

    def _some(self, chunk: str) -> str:
        """Return a terminal without the empty text."""
        return f"{chunk} & /(?s:.+)/"

    def _until(self, chunk: str, literal: str) -> str:
        """Return free text and a literal after it; a terminal before a special token must not be empty."""
        if self.rules.pieces(literal)[0] in self.rules.special:
            return f"({self.rules.add('CHUNK', self._some(chunk))})? {self.rules.literal(literal)}"
        return self.rules.until(chunk, literal)

    def _closed_reasoning(self, closers: Sequence[str]) -> str:
        """Return reasoning up to one of its closers. Inside it, all text and most special tokens are free."""
        ends = list(dict.fromkeys(closers))
        patterns, openers = self._excluded_in_reasoning()
        excluded = [*ends, *self.form.ends_reasoning, *openers]
        body = self.rules.without(any_text(), excluded, patterns)
        closed = union(self._until(body, end) for end in ends)
        free = self._free_tokens(excluded)
        if not free:
            return self.rules.add("thoughts", closed)
        some = self.rules.add("CHUNK", self._some(body))
        return self.rules.add("thoughts", f"(({some})? {free})* {closed}")

    def _excluded_in_reasoning(self) -> tuple[list[str], list[str]]:
        """Return patterns and texts that reasoning must not contain.

        The parser reads a call inside reasoning, and ignores it as a draft only if it finds its end. The opener of a
        call may be mentioned where the text after it shows that it is none.
        """
        openers = [opener for opener in self._strong if opener]
        trigger = self.template.trigger
        joined = self.template.before + "".join(takewhile(_is_literal, self.template.call))  # type: ignore[arg-type]
        following = joined.partition(trigger)[2].strip() if trigger else ""
        if not following or self.form.calls_in_reasoning or self.rules.token(self.rules.pieces(trigger)[0]):
            return [], [*openers, *self.triggers()]
        first = "|".join(map(quote_regex, dict.fromkeys((following[0], "{", "["))))
        return [rf"{quote_regex(trigger)}\s*({first})"], [opener for opener in openers if opener != trigger]

    def _reasoning_segments(self, chunk: str, tags: Sequence[tuple[str, str]]) -> list[str]:
        openers = dict.fromkeys(opener for opener, _ in tags)
        return [
            f"{self._until(chunk, opener)} {self._closed_reasoning([c for o, c in tags if o == opener])}"
            for opener in openers
        ]

    def _open_reasoning(self) -> str:
        """Return reasoning that is never closed. A call inside it would count, so it contains no opener."""
        return self.rules.without(any_text(), [*self.reasoning_closers(), *self._openers_of_calls()])

    def _unclosed(self, chunk: str, tags: Sequence[tuple[str, str]]) -> list[str]:
        openers = dict.fromkeys(opener for opener, _ in tags)
        rest = self.rules.add("REST", self._some(self._open_reasoning())) if openers else ""
        return [f"{self._until(chunk, opener)} ({rest})?" for opener in openers]

    def _special_segments(self, chunk: str, tags: Sequence[tuple[str, str]]) -> list[str]:
        """Return free text up to a special token without meaning for calls.

        A special token that begins several tags is allowed only in those that the format knows.
        """
        if not self.rules.special:
            return []
        taken = [*self._openers_of_calls(), *(opener for opener, _ in tags)]
        free = self._free_tokens(taken)
        some = self.rules.add("CHUNK", self._some(chunk))
        found = [f"({some})? {free}"] if free else []
        heads = {self.rules.pieces(text)[0] for text in taken if text}
        known = [
            text
            for text in (*self.form.noise, *self.form.ends_reasoning)
            if text not in taken and len(self.rules.pieces(text)) > 1 and self.rules.pieces(text)[0] in heads
        ]
        return found + [
            f"({some})? {self.rules.literal(text)}" for text in known if self.rules.token(self.rules.pieces(text)[0])
        ]

    def _free_tokens(self, taken: Sequence[str]) -> str:
        """Return the special tokens that begin none of these texts."""
        heads = {self.rules.pieces(text)[0] for text in taken if text}
        ids = sorted(number for text, number in self.rules.special.items() if text not in heads and number >= 0)
        return f"<[{','.join(map(str, ids))}]>" if ids else ""


def _unambiguous_pairs(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keep the shortest of openers with a common beginning, and the longest of such closers."""
    openers = [opener for opener, _ in pairs]
    closers = [closer for _, closer in pairs]
    return [
        (opener, closer)
        for opener, closer in dict.fromkeys(pairs)
        if not any(opener != other and opener.startswith(other) for other in openers)
        and not any(closer != other and other.startswith(closer) for other in closers)
    ]


def _is_literal(part: str | Slot) -> bool:
    return isinstance(part, str)


def _written_name(part: Slot, name: str) -> str | None:
    """Return the spelling of a name in a slot, or None for another slot."""
    if part.kind == "name":
        return name
    if part.kind == "json_name":
        return dumps(name)
    return escape(name) if part.kind == "attribute_name" else None
