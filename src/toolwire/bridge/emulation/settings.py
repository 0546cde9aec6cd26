"""Settings for emulated tool calls: the text format of the model, and the endpoint of its server.

    EmulationSettings("hermes")                                 # tools in the prompt of the chat endpoint
    EmulationSettings("hermes", via="completions")              # the whole conversation as one raw prompt

With `via="completions"` the server's own chat template and its own parsers are not used: the conversation is rendered
with our template, and the answer is read by our parser. Use it if the server's parser fails.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from ...ir.errors import ConfigError
from ...ir.parts import Reasoning, ToolCall
from ...ir.value import Value
from ...text import chat_templates, get
from ...text.engine.chat_template import ChatTemplate, ReasoningState
from ...text.engine.format import Format
from ...text.engine.offered_tools import OfferedTools

_TAG = re.compile(r"<[^<>\s]{1,64}>|\[/?[A-Z_]{2,32}\]")


class PromptOptions(NamedTuple):
    """The chat template of a raw prompt, and the state of the reasoning at its end; None: the model decides."""

    template: ChatTemplate
    reasoning: ReasoningState | None


class EmulationSettings(Value, frozen=True):
    """A text format by name or value, and the endpoint for it.

    For `via="completions"`: `template` names a chat template; by default it is chosen by the model's name, or by the
    format if only one model family writes it. `reasoning` is "open" if the prompt opens the reasoning of the answer,
    "closed" if it excludes reasoning; by default, it is as in the template. A request can turn reasoning on and off, unless the model decides itself.
    """

    format: Format | str
    via: Literal["chat", "completions"] = "chat"
    template: str | None = None
    reasoning: ReasoningState | None = None

    @property
    def form(self) -> Format:
        return get(self.format) if isinstance(self.format, str) else self.format

    @property
    def kept_tokens(self) -> tuple[str, ...]:
        """The tokens of the format, which a server must not remove from the text as special tokens."""
        return _special_tokens(self.form)

    def prompt_options(self, model: str) -> PromptOptions | None:
        """Return the options of a raw prompt for `model`, or None for the chat endpoint; ConfigError if invalid."""
        form = self.form
        if self.via == "chat":
            for name in ("template", "reasoning"):
                if getattr(self, name) is not None:
                    raise ConfigError(
                        f'{name} has no effect with via = "chat"', hint=f'remove {name}, or pass via="completions"'
                    )
            return None
        if self.via != "completions":
            raise ConfigError(f"unknown endpoint {self.via!r}", hint='via is "chat" or "completions"')
        template = chat_templates.find(model, form) if self.template is None else chat_templates.get(self.template)
        reasoning = self.reasoning or ("open" if form.thinking else template.reasoning)
        if reasoning is not None and not _reads_reasoning(form, template):
            raise ConfigError(
                f"the text format {form.name!r} does not read the reasoning of the template {template.name!r}",
                hint="choose another template or format, or remove reasoning",
            )
        return PromptOptions(template, reasoning)


@lru_cache(64)
def _special_tokens(form: Format) -> tuple[str, ...]:
    """Return the tags in the calls, the reasoning and the other tokens of a format."""
    style = form.calls
    sample = style.write([ToolCall("call00000", "f", {"a": "x"})])
    tags = (*style.openers(OfferedTools(())), *style.closers(), *(tag for pair in form.reasoning for tag in pair))
    texts = (*tags, sample, *form.noise, *form.halts)
    return tuple(dict.fromkeys(token for text in texts for token in _TAG.findall(text)))


def _reads_reasoning(form: Format, template: ChatTemplate) -> bool:
    parts = form.parse(f"{template.opened}x", reasoning=False, finished=False).parts
    return bool(parts) and isinstance(parts[0], Reasoning)
