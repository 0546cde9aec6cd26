"""The raw completion endpoint of servers with OpenAI's chat protocol: llama.cpp, vLLM, SGLang, LM Studio.

POST /v1/completions with one `prompt`, which the server tokenises as it is. (llama.cpp has another protocol at
/completions, without the version.) A choice has a `text` in place of a message or a delta, so the documents are
rewritten and read by the functions of the chat endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.events import Event
from ...ir.losses import Losses
from ...ir.parts import Text
from ...ir.pointer import JSON, Object, join
from ...ir.request import Request
from ...ir.response import Response
from ..codec import CompletionEndpoint
from ..fields import require_object
from ..protocol import Encoded
from .request import encode_request
from .response import decode_response
from .stream_decoder import ChatStreamDecoder


def _encode_prompt(request: Request, kept_tokens: Sequence[str]) -> Encoded:
    """Encode a request of one message as a prompt.

    By default servers remove special tokens from the text, also tokens that mark a call. llama.cpp keeps the
    `preserved_tokens`, vLLM and SGLang keep all of them without `skip_special_tokens`; each ignores the field of the
    others. A schema is enforced by llama.cpp under `json_schema`, by the others under `response_format`.
    """
    chat, losses = encode_request(request)
    out: Object = {"model": chat.pop("model")} if "model" in chat else {}
    out["prompt"] = "".join(part.text for part in request.messages[0].parts if isinstance(part, Text))
    del chat["messages"]
    if "max_completion_tokens" in chat:
        chat["max_tokens"] = chat.pop("max_completion_tokens")
    _drop_log_probabilities(chat, losses)
    if kept_tokens:
        out["preserved_tokens"] = list(kept_tokens)
        out["skip_special_tokens"] = False
    if request.output is not None and request.output.kind != "text":
        out["json_schema"] = request.output.schema if request.output.kind == "json_schema" else {"type": "object"}
    return Encoded({**out, **chat}, losses)


def _drop_log_probabilities(chat: Object, losses: Losses) -> None:
    for name in ("logprobs", "top_logprobs"):
        if chat.pop(name, None):
            losses.add(join("params", name), name, "dropped", "the completion endpoint reports them differently")


def _decode_text(body: Object) -> Response:
    return decode_response(_as_chat(body, "message"))


class CompletionStreamDecoder(ChatStreamDecoder):
    """Decoder of a completion stream: chunks like Chat Completions, with a `text` in each choice."""

    text_fields = frozenset({"text"})

    def _read_chunk(self, chunk: Object, events: list[Event]) -> None:
        super()._read_chunk(_as_chat(chunk, "delta"), events)


def _as_chat(document: Object, field: str) -> Object:
    """Rewrite the text of each choice as the content of a `message` or `delta`."""
    choices: JSON = document.get("choices")
    if type(choices) is not list:
        return document
    return {**document, "choices": [_as_chat_choice(require_object(raw, "choices"), field) for raw in choices]}


def _as_chat_choice(choice: Object, field: str) -> Object:
    kept = {name: value for name, value in choice.items() if name not in ("text", "logprobs")}
    return {**kept, field: {"role": "assistant", "content": choice.get("text")}}


COMPLETIONS = CompletionEndpoint(
    path="/v1/completions",
    encode_request=_encode_prompt,
    decode_response=_decode_text,
    stream_decoder=CompletionStreamDecoder,
)
