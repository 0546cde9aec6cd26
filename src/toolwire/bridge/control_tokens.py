"""Make the text of a request safe for a raw prompt: no text may contain a control token.

A server that takes a raw prompt turns `<|im_start|>` into the token that begins a turn, wherever it is. So text from a
user, a tool result or a file could forge a turn of another role. Every control token in the text of a request gets a
space after its first character, which makes it ordinary text, and a loss reports it. This applies to all roles, the
system prompt included, and to declarations of tools and arguments of calls. A name cannot be changed, so a tool whose
name contains a control token is refused.

Control tokens are the tokens of the chat template and of the text format, and any text of the form `<|name|>`, with
ASCII or full-width bars, because a vocabulary has more special tokens than its template uses.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby

from msgspec.structs import replace

from ..ir.errors import EncodeError
from ..ir.losses import Losses
from ..ir.parts import Media, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from ..ir.pointer import JSON, join
from ..ir.request import Message, Request
from ..ir.tools import Tool
from ..text.engine.chat_template import ChatTemplate
from ..text.engine.format import Format

__all__ = ["neutralise_request"]

_BARS = r"<[|｜][^<>\s]{0,64}>|<[^<>\s]{1,64}[|｜]>"  # noqa: RUF001  # full-width bars of DeepSeek
_DETAIL = "it is a control token of the prompt, which could forge a turn; a space makes it ordinary text"


def neutralise_request(request: Request, form: Format, template: ChatTemplate, losses: Losses) -> Request:
    """Return the request without control tokens in its text; EncodeError if the name of a tool contains one."""
    neutraliser = _Neutraliser(_token_pattern(form, template), losses)
    messages = tuple(neutraliser.message(message, index) for index, message in enumerate(request.messages))
    tools = tuple(neutraliser.tool(tool, index) for index, tool in enumerate(request.tools))
    return replace(request, messages=messages, tools=tools)


@lru_cache(64)
def _token_pattern(form: Format, template: ChatTemplate) -> re.Pattern[str]:
    after_result = form.results.template.rpartition("}")[2]  # tags that end a result
    tokens = {*template.tokens, *form.noise, *form.halts, *re.findall(r"<[^<>\s]+>|\S+", after_result)}
    return re.compile("|".join([_BARS, *map(re.escape, sorted(tokens, key=len, reverse=True))]))


class _Neutraliser:
    """Neutralises the values of one request."""

    def __init__(self, tokens: re.Pattern[str], losses: Losses) -> None:
        self._tokens = tokens
        self._losses = losses

    def message(self, message: Message, index: int) -> Message:
        """Neutralise a message. Adjacent texts are joined first, because a token could be split between them."""
        path = join("messages", index)
        parts: list[Part] = []
        for is_text, group in groupby(message.parts, lambda part: isinstance(part, Text)):
            joined = list(group)
            if is_text and len(joined) > 1:
                joined = [Text("".join(part.text for part in joined if isinstance(part, Text)))]
            parts += joined
        return replace(message, parts=tuple(self._part(part, path) for part in parts))

    def _part(self, part: Part, path: str) -> Part:
        if isinstance(part, (Text, Refusal)):
            return replace(part, text=self.text(part.text, path))
        if isinstance(part, Reasoning):
            return Reasoning(self.text(part.joined_text, path))
        if isinstance(part, ToolCall):
            self._check_name(part.name, path)
            raw = None if part.raw is None else self.text(part.raw, path)
            return replace(part, id=self.text(part.id, path), arguments=self._json(part.arguments, path), raw=raw)
        if isinstance(part, ToolResult):
            return self._result(part, path)
        return self._other(part, path)

    def _other(self, part: Media | Opaque, path: str) -> Media | Opaque:
        """Neutralise the label of a part that is left out: its placeholder contains it."""
        if isinstance(part, Opaque):
            return replace(part, type=self.text(part.type, path))
        return part if part.name is None else replace(part, name=self.text(part.name, path))

    def _result(self, result: ToolResult, path: str) -> ToolResult:
        """Neutralise a result. Its text is joined first, because a token could be split between its parts."""
        self._check_name(result.name or "", path)
        others = tuple(self._other(part, path) for part in result.parts if not isinstance(part, Text))
        parts = (Text(self.text(result.text, path)), *others)
        return replace(result, call_id=self.text(result.call_id, path), parts=parts, structured=None)

    def tool(self, tool: Tool, index: int) -> Tool:
        path = join("tools", index)
        self._check_name(tool.name, path)
        description = None if tool.description is None else self.text(tool.description, path)
        examples = tuple(self._json(example, path) for example in tool.examples)
        schema = self._json(tool.input_schema, path)
        return replace(tool, description=description, input_schema=schema, examples=examples)

    def text(self, text: str, path: str) -> str:
        """Insert a space into every control token; repeat it for tokens that overlap."""
        while found := self._tokens.search(text):
            self._losses.add(path, f"control token {found[0].strip()[:40]!r}", "rewritten", _DETAIL)
            text = self._tokens.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        return text

    def _json(self, value: JSON, path: str) -> JSON:
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, dict):
            return {self.text(name, path): self._json(item, path) for name, item in value.items()}
        return [self._json(item, path) for item in value] if isinstance(value, list) else value

    def _check_name(self, name: str, path: str) -> None:
        if found := self._tokens.search(name):
            raise EncodeError(
                f"the tool name {name[:80]!r} contains the control token {found[0]!r}",
                pointer=path,
                hint="rename the tool",
            )
