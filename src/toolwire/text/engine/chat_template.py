"""A chat template as data: the markers around the turns of a conversation, for servers that take a raw prompt.

    template.render([PromptTurn("system", "Be brief."), PromptTurn("user", "Hello")])   # up to the model's turn

The prompt has no BOS token: llama.cpp, vLLM, SGLang and Ollama add the one of the model when they tokenise a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from ...ir.value import Value

ReasoningState = Literal["open", "closed"]
PromptRole = Literal["system", "declaration", "user", "assistant", "tool"]


class TurnMarkers(NamedTuple):
    """The text before and after the content of a turn."""

    before: str
    after: str


class PromptTurn(NamedTuple):
    """A turn of the conversation. The calls of an assistant turn are part of its text."""

    role: PromptRole
    text: str
    has_calls: bool = False


class ChatTemplate(Value, frozen=True):
    """The turns of one model family. `families` are globs of model names, `formats` text formats of no other family."""

    name: str
    families: tuple[str, ...]
    formats: tuple[str, ...]
    user: TurnMarkers
    assistant: TurnMarkers
    system: TurnMarkers | None = None  # None: the first user turn begins with the system prompt
    tool: TurnMarkers | None = None  # None: results are in user turns
    declaration: TurnMarkers | None = None  # of tools; None: the system prompt contains them
    text: TurnMarkers = TurnMarkers("", "")  # around the text of an assistant turn
    before_calls: str = "\n"  # between the text of an assistant turn and its calls
    start: str = ""  # before the first turn, besides BOS
    reasoning: ReasoningState | None = None  # the usual state at the end of a prompt; None: the model decides
    opened: str = "<think>\n"  # opens the reasoning of the answer
    closed: str = "<think>\n\n</think>\n\n"  # states that the answer has no reasoning
    past: TurnMarkers = TurnMarkers("<think>\n", "\n</think>\n\n")  # around reasoning in the history
    past_closed: str = ""  # in the history, in place of reasoning that is left out
    ends: tuple[str, ...] = ()  # stop sequences: the end of a turn
    tokens: tuple[str, ...] = ()  # control tokens, besides tokens such as `<|name|>`
    token_pattern: str = ""  # regular expression of further control tokens
    continues_after_results: bool = False  # the model answers a result without a new assistant marker
    open_calls: bool = False  # no end marker between calls and their results

    def render(
        self, turns: Sequence[PromptTurn], opening: str = "", join: Callable[[Sequence[str]], str] = "".join
    ) -> str:
        """Return the prompt. The model continues the last turn if it is its own, else a new one with `opening`.

        `join` concatenates markers and texts.
        """
        turns = self._place_system(turns)
        pieces = [self.start]
        previous = ""
        for index, turn in enumerate(turns):
            is_last = index == len(turns) - 1
            markers = self._markers_of(turn.role)
            if turn.role == "assistant":
                pieces.append(self._assistant_marker(previous))
                pieces.append(turn.text)
                if not is_last and not (self.open_calls and turn.has_calls):
                    pieces.append(markers.after)
            else:
                pieces += (markers.before, turn.text, markers.after)
            previous = turn.role
        if previous != "assistant":
            pieces.append(self._assistant_marker(previous))
        pieces.append(opening)
        return join(pieces)

    def render_assistant(
        self, text: str, calls: str, reasoning: str, join: Callable[[Sequence[str]], str] = "".join
    ) -> str:
        """Return the content of an assistant turn: reasoning, text and calls, each of which may be empty."""
        pieces = [self.past.before, reasoning, self.past.after] if reasoning else [self.past_closed]
        if text:
            pieces += (self.text.before, text, self.text.after)
        if calls:
            content = "".join(pieces)
            is_separate = not content or content.endswith(self.before_calls)
            pieces += (calls,) if is_separate else (self.before_calls, calls)
        return join(pieces)

    def _assistant_marker(self, previous: str) -> str:
        return "" if self.continues_after_results and previous == "tool" else self.assistant.before

    def _markers_of(self, role: PromptRole) -> TurnMarkers:
        if role == "system":
            return self.system or self.user
        if role == "tool":
            return self.tool or self.user
        if role == "declaration":
            return self.declaration or self.user
        return self.user if role == "user" else self.assistant

    def _place_system(self, turns: Sequence[PromptTurn]) -> Sequence[PromptTurn]:
        """Put system prompts before the text of the next user turn, if the model has no role for them."""
        if self.system is not None:
            return turns
        placed: list[PromptTurn] = []
        pending: list[str] = []
        for turn in turns:
            if turn.role == "system":
                pending.append(turn.text)
                continue
            if pending and turn.role == "user":
                turn = PromptTurn("user", "\n\n".join([*pending, turn.text]))
                pending = []
            placed.append(turn)
        return [*placed, PromptTurn("user", "\n\n".join(pending))] if pending else placed
