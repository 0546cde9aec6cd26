"""Answer requests with a head: text, or one call of a tool that the request declares.

1. The conversation is written in the model's chat template, with the results of earlier calls in the answers, as in
   training. The declarations of tools are not in the prompt: toolkens replace them.
2. The most probable of two kinds of tokens is chosen: those of the vocabulary, and the toolkens of declared tools.
3. A toolken ends the answer with a call. Its arguments match the schema of the request, not of the training, because a
   wire may have lowered it. They are complete before the call is sent: arguments that do not fit into the limit leave
   no trace, and the next best token is used.

The head is read again when its file changes, so that a running server has a new tool with its next request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import NamedTuple

import torch

from ...ir.errors import ConfigError, ToolwireError
from ...ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    ResponseEnd,
    ResponseStart,
    TextDelta,
    TextEnd,
    TextStart,
    UsageUpdate,
)
from ...ir.losses import Losses
from ...ir.parts import ToolCall
from ...ir.pointer import Object, join
from ...ir.request import Request
from ...ir.response import Fault, Stop, StopReason, UpstreamError, Usage
from ...ir.text import dumps
from ...ir.tools import Tool
from ...mask import MaskTokenizer
from ...schema.validation.validator import validator
from ..language_model import LanguageModel, open_model
from .decoding import ArgumentWriter, StateReader
from .demonstrations import MAX_RESULT, conversation_prompt
from .head import MANIFEST, ToolkenHead
from .states import hash_model

_log = logging.getLogger("toolwire.learn")
_MAX_TOKENS = 512  # of an answer without a limit of its own, because a small model may repeat itself forever
_MAX_ATTEMPTS = 3  # calls that are not written, in one answer: each takes as long as a call
_PROMPT_PIECE = 512  # tokens that are read at once; an abandoned request ends between two pieces


class _OpenModel:
    """A model that all of its heads share, with its hash and its tokenizer for masks."""

    def __init__(self, name: str) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.lm: LanguageModel = open_model(name, device=device)
        self.hash = hash_model(self.lm)
        self.mask_tokenizer = MaskTokenizer.from_tokenizer(self.lm.tokenizer, self.lm.vocabulary_size)
        ends = self.lm.network.generation_config.eos_token_id  # a number, a list or None
        self.end_tokens = {self.lm.end_token, *(ends if isinstance(ends, list) else [] if ends is None else [ends])}
        self.context = int(getattr(self.lm.network.config.get_text_config(), "max_position_embeddings", 1 << 20))
        self.lock = Lock()  # a generation changes the settings of the network for its duration


_models: dict[str, _OpenModel] = {}
_opening = Lock()


def _open_model(name: str) -> _OpenModel:
    with _opening:
        if name not in _models:
            _models[name] = _OpenModel(name)
        return _models[name]


class AnsweringHead:
    """A head that answers requests, and is read again when its file changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._version = self._file_version()
        head = ToolkenHead.load(folder)
        if not head.model_name:
            raise ConfigError(f"the head in {folder} does not name its model", hint="train it on a model from a folder")
        self._model = _open_model(head.model_name)
        self._head = self._check(head)

    def answer(
        self, request: Request, losses: Losses, is_abandoned: Callable[[], bool] = lambda: False
    ) -> Generator[Event, None, None]:
        """Yield the events of an answer.

        `losses` is filled before the first event. `is_abandoned` is called often. Raise UpstreamError for a request that
        cannot be answered, and Abandoned if the client has left.
        """
        check = _AbandonCheck(is_abandoned)
        self._refresh()
        with self._model.lock, torch.inference_mode():
            yield from _HeadAnswer(self._model, self._head, request, losses, check).events()

    def _refresh(self) -> None:
        """Read a head that has changed. A head that cannot be used is logged, and the old one stays in use."""
        version = self._file_version()
        if version == self._version:
            return
        self._version = version
        try:
            self._head = self._check(ToolkenHead.load(self._folder))
        except ConfigError as error:
            _log.warning("the head in %s cannot be used, still using the old one: %s", self._folder, error)
        except Exception:  # noqa: BLE001 - of safetensors or torch, for a damaged file
            _log.exception("the head in %s cannot be read, still using the old one", self._folder)
        else:
            _log.info("read the head in %s again: %d tools", self._folder, len(self._head.tools))

    def _file_version(self) -> tuple[int, int]:
        try:
            status = (self._folder / MANIFEST).stat()
        except OSError:
            return (0, 0)  # reading it fails, with its name
        return (status.st_mtime_ns, status.st_ino)

    def _check(self, head: ToolkenHead) -> ToolkenHead:
        head.require_hash(self._model.hash)
        head.to(self._model.lm.device)
        return head


class Abandoned(Exception):
    """The client of the answer has left."""


class _AbandonCheck:
    """Ends a generation that is abandoned. Also a logits processor, which is called before every token."""

    def __init__(self, is_abandoned: Callable[[], bool]) -> None:
        self._is_abandoned = is_abandoned

    def check(self) -> None:
        if self._is_abandoned():
            raise Abandoned

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        del input_ids
        self.check()
        return scores


class _Choice(NamedTuple):
    """The tools whose toolkens may be chosen, by their rows in the head, and whether one must be."""

    rows: dict[int, Tool]
    is_required: bool


class _HeadAnswer:
    """One answer."""

    def __init__(
        self, model: _OpenModel, head: ToolkenHead, request: Request, losses: Losses, check: _AbandonCheck
    ) -> None:
        check.check()  # it may have waited for the model
        self._check = check
        self._model = model
        self._lm = model.lm
        self._head = head
        self._request = request
        _report_losses(head, request, losses)
        self._choice = _choose_tools(head, request, losses)
        self._prompt = _render_prompt(self._lm, request)
        given = self._lm.encode(self._prompt)
        room = model.context - len(given)
        if not given or room < 2:
            message = f"the conversation has {len(given)} tokens, the model reads {model.context}"
            raise UpstreamError(Fault("invalid_request", message, 400, "context_length_exceeded", retryable=False))
        self._given = given
        self._limit = min(request.params.max_tokens or _MAX_TOKENS, room)
        self._earlier_calls = _calls_of_turn(request)
        self._text = _TextStream(self._lm)
        self._argument_tokens = 0
        self._attempts = _MAX_ATTEMPTS

    def events(self) -> Iterator[Event]:
        yield ResponseStart(f"chatcmpl-{token_hex(12)}", self._request.model, int(time.time()))
        reader = StateReader(self._lm)
        for start in range(0, len(self._given), _PROMPT_PIECE):
            self._check.check()
            state = reader.read(self._given[start : start + _PROMPT_PIECE])
        reason: StopReason = "length"
        call: ToolCall | None = None
        while self._text.count < self._limit:
            self._check.check()
            words = self._lm.word_logits(state)[0]
            call = self._choose_call(state, words)
            if call is not None:
                break
            token = int(words.argmax())
            if token in self._model.end_tokens:
                reason = "stop"
                break
            yield from self._text.feed(token)
            state = reader.read([token])
        yield from self._text.close()
        if call is not None:
            reason = "tool_calls"
            yield CallStart(1, call.id, call.name)
            yield CallDelta.of(1, call.text)
            yield CallEnd(1, call.arguments, call.text)
        yield UsageUpdate(Usage(len(self._given), self._text.count + self._argument_tokens))
        yield ResponseEnd((Stop(reason),))

    def _choose_call(self, state: torch.Tensor, words: torch.Tensor) -> ToolCall | None:
        """Return a call if a toolken has the highest logit, or if a call is required, else None.

        A call of this turn that already has a result is not repeated. Raises UpstreamError if a required call cannot be
        written.
        """
        if not self._choice.rows or not self._attempts:
            return None
        rows = list(self._choice.rows)
        logits = self._head.tool_logits(state)[0][rows]
        threshold = -torch.inf if self._choice.is_required else float(words.max())
        for _ in range(min(self._attempts, len(rows))):
            best = int(logits.argmax())
            if not float(logits[best]) > threshold:
                return None
            call = self._write_call(rows[best])
            if call is not None:
                return call
            self._attempts -= 1
            logits[best] = -torch.inf
        if self._choice.is_required:
            message = "the required call is not possible within the limit of tokens"
            raise UpstreamError(Fault("malformed_call", message, 502, retryable=False))
        return None

    def _write_call(self, row: int) -> ToolCall | None:
        """Return a call with arguments, or None if they do not fit into the limit, or repeat a call of this turn."""
        tool = self._choice.rows[row]
        accepts = validator(tool.input_schema or {"type": "object"}).accepts
        examples = [one for one in self._head.tools[row].examples if accepts(one.arguments)]
        room = max(2, min(self._limit - self._text.count, self._model.context // 2))
        writer = ArgumentWriter(
            self._lm, max_tokens=room, tokenizer=self._model.mask_tokenizer, processors=[self._check]
        )
        try:
            arguments = writer.write(tool, examples, self._prompt + self._text.text)
        except ToolwireError as error:
            _log.info("a call of %s was not written: %s", tool.name, error)
            return None
        if (tool.name, arguments) in self._earlier_calls and not self._choice.is_required:
            return None
        call = ToolCall(f"call_{token_hex(12)}", tool.name, arguments)
        self._argument_tokens = 1 + len(self._lm.encode(dumps(arguments)))
        return call


def _render_prompt(lm: LanguageModel, request: Request) -> str:
    """Return the prompt. Raise UpstreamError for a conversation that the model's template refuses."""
    from jinja2 import TemplateError

    try:
        return conversation_prompt(lm, request.messages)
    except (ConfigError, TemplateError) as error:
        raise UpstreamError(Fault("invalid_request", f"the conversation cannot be written: {error}", 400)) from None


def _choose_tools(head: ToolkenHead, request: Request, losses: Losses) -> _Choice:
    """Return the tools that may be called. Declared tools without a row are losses.

    Raises UpstreamError if a call is required, and none of its tools has a row.
    """
    numbers = {name: number for number, name in enumerate(head.names)}
    choice = request.choice
    is_required = choice is not None and choice.forces_call
    rows: dict[int, Tool] = {}
    if choice is not None and choice.mode == "none":
        return _Choice(rows, is_required=False)
    for index, tool in enumerate(request.tools):
        if tool.kind not in ("function", "search"):
            losses.add(join("tools", index), tool.name, "dropped", "toolkens call functions only", "error")
        elif tool.name not in numbers:
            losses.add(join("tools", index), tool.name, "dropped", "the head has no row for this tool", "error")
        elif choice is None or not choice.names or tool.name in choice.names:
            rows[numbers[tool.name]] = tool
    if is_required and not rows:
        message = "a call is required, but the head has no row for such a tool"
        raise UpstreamError(Fault("invalid_request", message, 400, param="tool_choice"))
    return _Choice(rows, is_required)


# Settings of a request without effect. The answer is the most probable one, which every temperature allows.
_SAMPLING = ("temperature", "top_p", "top_k", "seed")
_UNSUPPORTED = ("stop", "n", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs", "verbosity")


def _report_losses(head: ToolkenHead, request: Request, losses: Losses) -> None:
    """Report the parts of a request that have no effect."""
    detail = "a head writes the most probable answer"
    for name in _SAMPLING:
        if getattr(request.params, name) is not None:
            losses.add(join("params", name), name, "dropped", detail, "info")
    for name in _UNSUPPORTED:
        value = getattr(request.params, name)
        if value and not (name == "n" and value == 1):
            losses.add(join("params", name), name, "dropped", detail)
    for name in request.extra.get("openai_chat", {}):  # such as min_p and logit_bias
        losses.add(join(name), name, "dropped", detail)
    if request.reasoning is not None and request.reasoning.mode != "off":
        losses.add("/reasoning", "reasoning", "dropped", "a head does not reason")
    if request.parallel:
        losses.add("/parallel", "parallel calls", "dropped", "a head makes one call per turn", "info")
    if request.output is not None and request.output.kind != "text":
        losses.add("/output", "output format", "dropped", "a head does not constrain text")
    if request.tools and not head.is_chat:
        detail = "the head was not trained on conversations; train it with --chat"
        losses.add("/tools", "toolkens", "weakened", detail)
    for index, message in enumerate(request.messages):
        if any(len(result.text) > MAX_RESULT for result in message.results):
            detail = f"the model reads the first {MAX_RESULT} characters"
            losses.add(join("messages", index), "result", "weakened", detail)


def _calls_of_turn(request: Request) -> list[tuple[str, Object | None]]:
    """Return the calls since the last message of the user that is not a result."""
    calls: list[tuple[str, Object | None]] = []
    for message in request.messages:
        if message.role == "assistant":
            calls += [(part.name, part.arguments) for part in message.parts if isinstance(part, ToolCall)]
        elif not message.results:
            calls.clear()
    return calls


class _TextStream:
    """The text of an answer, in pieces of whole characters.

    A character may have several tokens, and a tokenizer may write a space only between tokens. Therefore a piece is the
    difference of two texts: tokens since the last piece, with and without the new token before them.
    """

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        self._tokens: list[int] = []
        self._start = 0  # the first token of the last piece
        self._sent = 0  # tokens whose text is complete
        self.text = ""

    @property
    def count(self) -> int:
        """The number of tokens."""
        return len(self._tokens)

    def feed(self, token: int) -> Iterator[Event]:
        """Add a token, and yield its text unless it ends within a character."""
        self._tokens.append(token)
        yield from self._emit(is_last=False)

    def close(self) -> Iterator[Event]:
        """Yield the rest, and the end of the text if there is any."""
        yield from self._emit(is_last=True)
        if self.text:
            yield TextEnd(0)

    def _emit(self, *, is_last: bool) -> Iterator[Event]:
        before = self._lm.decode(self._tokens[self._start : self._sent])
        piece = self._lm.decode(self._tokens[self._start :])[len(before) :]
        if not piece or (piece.endswith("\ufffd") and not is_last):
            return
        if not self.text:
            yield TextStart(0)
        self.text += piece
        self._start, self._sent = self._sent, len(self._tokens)
        yield TextDelta.of(0, piece)
