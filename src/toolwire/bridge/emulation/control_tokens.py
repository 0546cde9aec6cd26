"""Make the text of a request safe for a raw prompt: no text may contain a control token.

A server that takes a raw prompt turns `<|im_start|>` into the token that begins a turn, wherever it is. So text from a
user, a tool result or a file could forge a turn of another role. Every control token in the text of a request gets a
space after its first character, which makes it ordinary text, and a loss reports it. This applies to all roles, the
system prompt included, and to declarations of tools and arguments of calls. A name cannot be changed, so a tool whose
name contains a control token is refused.

Control tokens are the tokens of the chat template and of the text format, and any text of the form `<|name|>`, with
ASCII or full-width bars, because a vocabulary has more special tokens than its template uses. If the format begins
results with plain text (`Observation:`), a line of the request that begins with it is changed as well.

A token can be split between parts, so the joined text of a turn is neutralised, not its parts. Where text touches
markup, `join` adds a space if a token would begin in one of them and end in another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from ...ir.errors import EncodeError
from ...ir.losses import Losses
from ...ir.parts import Part, Text, ToolCall, ToolResult
from ...ir.pointer import JSON, join
from ...ir.request import Message, Request
from ...ir.tools import Tool
from ...text.engine.chat_template import ChatTemplate
from ...text.engine.format import Format

_BARS = r"<[|｜][^<>\s]{0,64}>|<[^<>\s]{1,64}[|｜]>"  # noqa: RUF001  # full-width bars of DeepSeek
_TAG = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
_DETAIL = "it is a control token of the prompt, which could forge a turn; a space makes it ordinary text"
_RESULT_DETAIL = "the format begins results with it, so it could forge one; a space makes it ordinary text"


class TokenGuard:
    """Neutralises control tokens in the values of one request and in the prompt that is made of them."""

    def __init__(self, form: Format, template: ChatTemplate, losses: Losses) -> None:
        self._form = form
        self._patterns = _build_patterns(form, template)
        self._losses = losses

    def request(self, request: Request) -> Request:
        """Return the request without control tokens in its calls, results and tools.

        EncodeError if the name of a tool or a parameter forms one. The text of messages is left to `text`, because the
        parts that are joined are known only after the history has been normalised.
        """
        messages = tuple(self._message(message, index) for index, message in enumerate(request.messages))
        tools = tuple(self._tool(tool, index) for index, tool in enumerate(request.tools))
        return replace(request, messages=messages, tools=tools)

    def text(self, text: str, path: str) -> str:
        """Insert a space into every control token and after every start of a result, with a loss for each pass.

        Repeat it until no token is left, because tokens may overlap.
        """
        tokens, result_starts, _ = self._patterns
        if result_starts is not None and (found := result_starts.search(text)):
            line = text[found.start() :].strip().partition("\n")[0]
            self._losses.add(path, f"start of a result {line[:40]!r}", "rewritten", _RESULT_DETAIL)
            text = result_starts.sub(r"\g<0> ", text)
        while found := tokens.search(text):
            self._losses.add(path, f"control token {found[0][:40]!r}", "rewritten", _DETAIL)
            text = tokens.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        return text

    def join(self, pieces: Sequence[str]) -> str:
        """Concatenate texts and markup, with a space and a loss where a control token would span two of them."""
        joined = "".join(pieces)
        boundaries = set(accumulate(map(len, pieces)))
        spaces: set[int] = set()
        for found in self._patterns.anywhere.finditer(joined):
            if inside := boundaries.intersection(range(found.start() + 1, found.end(1))):
                self._losses.add("/messages", f"control token {found[1][:40]!r}", "rewritten", _DETAIL)
                spaces |= inside
        edges = [0, *sorted(spaces), len(joined)]
        return " ".join(joined[start:stop] for start, stop in pairwise(edges))

    def calls(self, written: str, calls: Sequence[ToolCall], path: str) -> str:
        """Return the written calls. If their names and values form tokens with the markup, all tokens are neutralised.

        An example is an argument with the name `|im_end|` in a format that writes `<name>value</name>`.
        """
        if self._patterns.tokens.search(written) is None or self._has_usual_tokens(written, calls):
            return written
        return self.text(written, path)

    def _has_usual_tokens(self, written: str, calls: Sequence[ToolCall]) -> bool:
        """Return whether the calls have the same tokens as calls with harmless names and values."""
        find = self._patterns.tokens.findall
        return bool(find(written) == find(self._form.calls.write([_plain_call(call) for call in calls])))

    def _message(self, message: Message, index: int) -> Message:
        path = join("messages", index)
        return replace(message, parts=tuple(self._part(part, path) for part in message.parts))

    def _part(self, part: Part, path: str) -> Part:
        if isinstance(part, ToolCall):
            self._check_name(part.name, path)
            raw = None if part.raw is None else self.text(part.raw, path)
            return replace(part, id=self.text(part.id, path), arguments=self._json(part.arguments, path), raw=raw)
        return self._result(part, path) if isinstance(part, ToolResult) else part

    def _result(self, result: ToolResult, path: str) -> ToolResult:
        """Neutralise a result. Its text is joined first, because a token could be split between its parts."""
        self._check_name(result.name or "", path)
        others = tuple(part for part in result.parts if not isinstance(part, Text))
        parts = (Text(self.text(result.text, path)), *others)
        return replace(result, call_id=self.text(result.call_id, path), parts=parts, structured=None)

    def _tool(self, tool: Tool, index: int) -> Tool:
        path = join("tools", index)
        self._check_name(tool.name, path)
        self._check_parameters(tool, path)
        description = None if tool.description is None else self.text(tool.description, path)
        examples = tuple(self._json(example, path) for example in tool.examples)
        schema = self._json(tool.input_schema, path)
        return replace(tool, description=description, input_schema=schema, examples=examples)

    def _json(self, value: JSON, path: str) -> JSON:
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, dict):
            return {self.text(name, path): self._json(item, path) for name, item in value.items()}
        return [self._json(item, path) for item in value] if isinstance(value, list) else value

    def _check_name(self, name: str, path: str) -> None:
        """Raise EncodeError if the name of a tool contains a control token, alone or as written in a call."""
        if found := self._patterns.tokens.search(name):
            problem = f"the tool name {name[:80]!r} contains the control token {found[0]!r}"
            raise EncodeError(problem, pointer=path, hint="rename the tool")
        if name:
            self._check_call(ToolCall("call00000", name, {}), f"the tool name {name[:80]!r}", path)

    def _check_parameters(self, tool: Tool, path: str) -> None:
        properties = (tool.input_schema or {}).get("properties")
        for name in properties if isinstance(properties, dict) else ():
            self._check_call(ToolCall("call00000", "f", {name: "x"}), f"the parameter name {name[:80]!r}", path)

    def _check_call(self, call: ToolCall, subject: str, path: str) -> None:
        written = self._form.calls.write([call])
        if self._patterns.tokens.search(written) is not None and not self._has_usual_tokens(written, [call]):
            problem = f"{subject} forms a control token in the format {self._form.name!r}"
            raise EncodeError(problem, pointer=path, hint="rename it, or use another format")


class _Patterns(NamedTuple):
    tokens: re.Pattern[str]
    result_starts: re.Pattern[str] | None  # at the start of a line; a space after the match changes it
    anywhere: re.Pattern[str]  # tokens that may overlap, as group 1 of an empty match


@lru_cache(64)
def _build_patterns(form: Format, template: ChatTemplate) -> _Patterns:
    tags = [tag for literal in form.results.literals for tag in _TAG.findall(literal)]
    words = {*template.tokens, *tags, *(token.strip() for token in form.noise), *form.halts} - {""}
    literals = sorted((word for word in words if not word.startswith("\n")), key=len, reverse=True)
    tokens = "|".join([_BARS, *filter(None, [template.token_pattern]), *map(re.escape, literals)])
    starts = {_result_start(form), *(_line_start(halt[1:]) for halt in form.halts if halt.startswith("\n"))} - {""}
    result_starts = re.compile(rf"(?:(?m:^)|(?<=\r))[ \t]*(?:{'|'.join(sorted(starts))})") if starts else None
    return _Patterns(re.compile(tokens), result_starts, re.compile(f"(?=({tokens}))"))


def _result_start(form: Format) -> str:
    """Return a pattern for the first line of a result, if it is plain text and shares a turn with other text."""
    results = form.results
    head = re.split(r"\{content\}|\{json\}", results.template)[0].strip()
    is_shared = results.role == "user" or results.grouped
    return "" if not is_shared or _TAG.match(head) else _line_start(head.partition("\n")[0])


def _line_start(line: str) -> str:
    """Return a pattern for a line up to the first letter of its longest literal text; the rest is a lookahead.

    Return "" if that text has no letter.
    """
    pieces = re.split(r"\{id\}|\{name\}", line)
    longest = max(range(len(pieces)), key=lambda number: len(pieces[number]))
    letter = re.search(r"[^\W\d_]", pieces[longest])
    if letter is None:
        return ""
    field = r"[^\n]{0,200}?"
    before = field.join(map(re.escape, [*pieces[:longest], pieces[longest][: letter.end()]]))
    after = field.join(map(re.escape, [pieces[longest][letter.end() :], *pieces[longest + 1 :]]))
    return f"{before}(?={after})"


def _plain_call(call: ToolCall) -> ToolCall:
    """Return a call of the same structure with harmless names and values."""
    arguments = {"input": "x"} if call.kind == "freeform" else _plain(call.arguments)
    raw = None if call.kind == "freeform" or call.raw is None else "x"
    return replace(call, name="f", kind="function", arguments=arguments, raw=raw)


def _plain(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {f"k{number}": _plain(item) for number, item in enumerate(value.values())}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return "x" if isinstance(value, str) else value
