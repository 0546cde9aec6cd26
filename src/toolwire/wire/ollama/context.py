"""The context of an Ollama model: how many tokens of prompt and answer its runner holds.

A server without other settings loads a model with 4,096 tokens if it has less than 24 GiB of GPU memory
(docs/context-length.mdx of ollama/ollama), and cuts longer prompts without an error: the system prompt and the last
message stay, messages between them are dropped (server/prompt.go). A request sets its own size, `options.num_ctx`, but
a size that differs from the loaded one loads the model again (`needsReload` in server/sched.go). Therefore:

1. The size is the next power of two for the prompt and the answer, so that a growing conversation rarely changes it.
2. It is at most the model's length and the limit of the settings.
3. It is at least the size of the loaded model, of the Modelfile, and of earlier requests.
4. `truncate` and `shift` are false: a server that knows these fields refuses a prompt that does not fit.

Sources: ollama/ollama at fb3076099 (August 2026).
"""

from __future__ import annotations

import re

from ...ir.pointer import JSON, Object
from ...ir.value import Value

_MIN_CONTEXT = 4096  # the smallest default of the server
_MAX_CONTEXT = 1 << 24  # more than any model has; a report or an output limit may be any number
_MAX_OUTPUT = 131_072  # the largest answer of models that run locally (gpt-oss, GLM); a larger limit is none
_OUTPUT = 8192  # for a request without a limit: the default that requests to Anthropic get, which must have one
_IMAGE_TOKENS = 1600  # as in ir.prompt_size
_TEMPLATE_TOKENS = 512  # instructions that chat templates add for tools and reasoning, such as Qwen 3's

# Base64 of images, which are counted apart. A quotation mark inside a string is escaped, so no text matches.
_IMAGES = re.compile(rb'"images":\[("[A-Za-z0-9+/=]*+"(?:,"[A-Za-z0-9+/=]*+")*+)\]')
_DENSE = bytes(range(0x30, 0x3A)) + bytes(range(0x41, 0x5B))  # digits and capital letters
_NON_ASCII = bytes(range(0x80, 0x100))


class ModelFacts(Value, frozen=True):
    """Facts about a model from `/api/show`. None: unknown."""

    length: int | None = None  # tokens that the model was trained for, which the server never exceeds
    modelfile: int | None = None  # `num_ctx` in its Modelfile
    is_remote: bool = False  # it runs at ollama.com, with its full length
    own_prompt: int = 0  # estimated tokens of the Modelfile's system prompt and messages


def read_model_facts(document: JSON) -> ModelFacts:
    """Read a response of `/api/show`. A field that is missing or has another type is unknown."""
    if type(document) is not dict:
        return ModelFacts()
    info, parameters = document.get("model_info"), document.get("parameters")
    lengths = [_positive(info[key]) for key in info if key.endswith(".context_length")] if type(info) is dict else []
    # lines of a name, spaces and a value
    num_ctx = re.search(r"(?m)^num_ctx\s+(\d{1,9})\s*$", parameters) if type(parameters) is str else None
    own_texts, messages = [document.get("system")], document.get("messages")
    if type(messages) is list:
        own_texts += [message.get("content") for message in messages if type(message) is dict]
    own_bytes = "".join([text for text in own_texts if type(text) is str]).encode(errors="replace")
    return ModelFacts(
        length=max([length for length in lengths if length is not None], default=None),
        modelfile=int(num_ctx[1]) if num_ctx else None,
        is_remote=bool(document.get("remote_host")),
        own_prompt=_text_tokens(own_bytes),
    )


def read_loaded_context(document: JSON, model: str) -> int | None:
    """Read the context of a loaded model from a response of `/api/ps`, or None if the model is not loaded."""
    models = document.get("models") if type(document) is dict else None
    for entry in models if type(models) is list else ():
        if type(entry) is dict and _full_name(str(entry.get("model") or entry.get("name"))) == _full_name(model):
            return _positive(entry.get("context_length"))  # servers before 0.9.7 do not report it
    return None


def _full_name(model: str) -> str:
    """Return a model's name with its tag, and without the default host and namespace."""
    name = model.strip().lower().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _positive(value: JSON) -> int | None:
    return min(int(value), _MAX_CONTEXT) if type(value) in (int, float) and value > 0 else None


def estimate_prompt(body: bytes) -> int:
    """Return an upper estimate of the tokens of an encoded request.

    Measured with the tokenizer of SmolLM2, which has only 49,000 tokens, so that other models need fewer: requests of
    coding agents, documentation and source code have 1.1 to 1.3 times fewer tokens than estimated; tables of numbers,
    hexadecimal text and base64 have up to 1.2 times more. A server that refuses such a prompt is asked again with a
    larger context.
    """
    images = 0
    if b'"images":[' in body:
        images = sum([found[1].count(b'"') // 2 for found in _IMAGES.finditer(body)])
        body = _IMAGES.sub(b"", body)
    return _TEMPLATE_TOKENS + images * _IMAGE_TOKENS + _text_tokens(body)


def _text_tokens(text: bytes) -> int:
    """Estimate tokens from bytes: a digit or capital letter is one, of other characters they have several bytes.

    Three bytes of other ASCII text, as source code has many short tokens. Two bytes of UTF-8 for other scripts.
    """
    size = len(text)
    dense = size - len(text.translate(None, _DENSE))
    non_ascii = 0 if text.isascii() else size - len(text.translate(None, _NON_ASCII))
    return dense + non_ascii // 2 + (size - dense - non_ascii) // 3


def output_limit(options: Object) -> int:
    """Return the tokens to reserve for the answer. A negative or a huge `num_predict` means no limit."""
    limit = _positive(options.get("num_predict"))
    return _OUTPUT if limit is None or limit > _MAX_OUTPUT else limit


def choose_context(needed: int, *, least: int = 0, most: int | None = None) -> int:
    """Return the context for a request of `needed` tokens.

    It is the next power of two up to `most`, and never below `least`, the size that is in use.

    >>> choose_context(20_000), choose_context(20_000, most=30_000), choose_context(3_000, least=65_536)
    (32768, 30000, 65536)
    """
    size = max(1 << (min(needed, _MAX_CONTEXT) - 1).bit_length(), _MIN_CONTEXT)
    return max(size if most is None else min(size, most), least)
