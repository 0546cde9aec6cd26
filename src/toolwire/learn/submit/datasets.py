"""Training data in the form of a fine-tuning service, checked against the service's rules before anything is sent.

    rules = FileRules(encode=encode_openai, least_examples=10, most_bytes=512 * 2**20)
    written = write_dataset("traces.jsonl", Path("train.jsonl"), rules)
    written.examples, written.tokens

The rows are those of the exporter for OpenAI's format, which Mistral and Together read as well, with the differences
that a service documents. Vertex AI reads requests of generateContent. An example that a service cannot express is an
error, because a job that trains on less than the file costs money without notice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from ...audit.tokens import count_tokens, declaration_tokens
from ...ir.errors import ConfigError, EncodeError
from ...ir.losses import Loss
from ...ir.parts import ToolCall, ToolResult
from ...ir.pointer import Object
from ...ir.request import Request
from ...ir.text import dumps, to_bytes
from ...ir.value import Value
from ...schema.lowering.lowered import lower
from ...wire import get
from .. import formats
from ..example_files import read_examples
from ..examples import EncodedRow, Example
from ..formats.chat_rows import Carried, plain_example, require_learnable
from ..run_folder import replacing

_MESSAGE_TOKENS = 4  # that a chat template adds to a message: its role and its ends
_ID_LENGTH = 9  # of a call at Mistral; other lengths are rejected: mistral_common 1.9, validator.py
_ID_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_is_function_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


class FileRules(Value, frozen=True, kw_only=True, eq=False):
    """The rules of a service for a training file. Sources are beside the rules of each service."""

    encode: Callable[[Example], EncodedRow]
    least_examples: int
    most_bytes: int
    most_example_tokens: int | None = None  # longer examples are truncated or rejected by the service
    most_tools: int | None = None


class WrittenDataset(Value, frozen=True):
    """A file in the form of a service. `tokens` is an estimate; `losses` are those above info, with their numbers."""

    examples: int
    tokens: int
    bytes: int
    losses: dict[str, int] = {}


def write_dataset(source: str | Path, target: Path, rules: FileRules) -> WrittenDataset:
    """Write the examples of a file in the form of a service, which may be any training format.

    Raise ProtocolError for an invalid row, EncodeError with the row for an example that the service does not accept,
    and ConfigError for a file with too few examples, or too large.
    """
    examples = tokens = size = 0
    losses: Counter[str] = Counter()
    with replacing(target) as file:  # row by row: a file has up to gigabytes
        for example in read_examples(source):
            try:
                row, lost = _encode_checked(example, rules)
            except EncodeError as error:
                message = f"{example.source}: {error.message}"
                raise EncodeError(message, pointer=error.pointer, hint=error.hint) from None
            tokens += _check_tokens(example, rules)
            losses.update({f"{loss.concept} {loss.action}" for loss in lost if loss.severity != "info"})
            line = to_bytes(row) + b"\n"
            examples, size = examples + 1, size + len(line)
            _check_size(source, size, rules)
            file.write(line)
        if examples < rules.least_examples:
            message = f"{source} has {examples} examples, and the service needs {rules.least_examples}"
            raise ConfigError(message, hint="add examples")
    return WrittenDataset(examples, tokens, size, dict(sorted(losses.items())))


def _encode_checked(example: Example, rules: FileRules) -> tuple[Object, list[Loss]]:
    """Encode an example. Raise EncodeError for a tool that the service rejects, and a call of an undeclared tool."""
    declared = {tool.name for tool in example.tools}
    if rules.most_tools is not None and len(declared) > rules.most_tools:
        hint = "retrieve the best tools for each example: `toolwire learn export --specs`"
        raise EncodeError(f"{len(declared)} tools exceed the limit of {rules.most_tools}", pointer="/tools", hint=hint)
    for name in sorted({*declared, *example.called_names}):
        if not _is_function_name(name):
            hint = "use letters, digits, _ and -, at most 64"
            raise EncodeError(f"the name of the tool {name!r} is not accepted", pointer="/tools", hint=hint)
    for name in example.called_names:
        if name not in declared:
            raise EncodeError(f"{name} is called and not declared", pointer="/tools", hint="declare it in tools")
    row, losses = rules.encode(example)
    return row, list(losses)


def _check_tokens(example: Example, rules: FileRules) -> int:
    """Return the tokens of an example. Raise EncodeError if they exceed the service's limit for one example."""
    tokens = example_tokens(example)
    if rules.most_example_tokens is not None and tokens > rules.most_example_tokens:
        limit = rules.most_example_tokens
        message = f"{example.source}: about {tokens} tokens exceed the limit of {limit} for one example"
        raise EncodeError(message, hint="shorten or remove it")
    return tokens


def _check_size(source: str | Path, size: int, rules: FileRules) -> None:
    if size > rules.most_bytes:
        raise ConfigError(
            f"{source} has more than {rules.most_bytes} bytes in the form of the service, its limit",
            hint="export fewer examples: `toolwire learn export --max-per-tool`",
        )


def example_tokens(example: Example) -> int:
    """Estimate the tokens of an example: texts, calls, results and declarations, without the service's tokenizer."""
    tokens = sum(declaration_tokens(tool, "openai_chat") for tool in example.tools)
    for message in example.messages:
        tokens += _MESSAGE_TOKENS + count_tokens(message.text)
        for part in message.parts:
            if isinstance(part, ToolCall):
                tokens += _MESSAGE_TOKENS + count_tokens(part.name) + count_tokens(dumps(part.arguments or {}))
            elif isinstance(part, ToolResult):
                tokens += _MESSAGE_TOKENS + count_tokens(part.text)
    return tokens


_CHAT = Carried(reasoning=False, parallel=True, weights=True)
_VERTEX = Carried(reasoning=False, late_system=False)


def encode_openai(example: Example) -> EncodedRow:
    """Encode a row for OpenAI: the training format `openai`, without reasoning, which its messages do not have."""
    require_learnable(example)
    plain, losses = plain_example(example, _CHAT, "OpenAI")
    row, more = _encode_chat(plain)
    losses.extend(more)
    return EncodedRow(row, losses)


def encode_together(example: Example) -> EncodedRow:
    """Encode a row for Together: as for OpenAI, without `parallel_tool_calls`.

    https://docs.together.ai/docs/fine-tuning/function-calling
    """
    row, losses = encode_openai(example)
    row.pop("parallel_tool_calls", None)
    return EncodedRow(row, losses)


def encode_mistral(example: Example) -> EncodedRow:
    """Encode a row for Mistral: as for Together, with ids of nine letters and digits.

    https://docs.mistral.ai/capabilities/finetuning/text_vision_finetuning
    """
    row, losses = encode_together(example)
    for message in row["messages"]:
        for call in message.get("tool_calls") or ():
            call["id"] = _short_id(call["id"])
        if "tool_call_id" in message:
            message["tool_call_id"] = _short_id(message["tool_call_id"])
    return EncodedRow(row, losses)


def _encode_chat(example: Example) -> EncodedRow:
    encode = formats.get("openai").encode
    assert encode is not None
    return encode(example)


def _short_id(call_id: str) -> str:
    """Return nine characters that are the same for the same id; an id that has this form is kept."""
    if len(call_id) == _ID_LENGTH and call_id.isascii() and call_id.isalnum():
        return call_id
    number = int.from_bytes(sha256(call_id.encode("utf-8", "surrogatepass")).digest())
    digits = []
    for _ in range(_ID_LENGTH):
        number, digit = divmod(number, len(_ID_ALPHABET))
        digits.append(_ID_ALPHABET[digit])
    return "".join(digits)


def encode_vertex(example: Example) -> EncodedRow:
    """Encode a row for Vertex AI: `systemInstruction`, `contents` and `tools` of generateContent.

    Calls and results have no ids and schemas are `parameters`, an OpenAPI subset, as in the documented rows:
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/tuning/function-calling
    """
    require_learnable(example)
    plain, losses = plain_example(example, _VERTEX, "Vertex AI")
    row, more = get("gemini").encode_request(Request("", plain.messages, plain.tools))
    losses.extend(more)
    for content in row["contents"]:
        for part in content["parts"]:
            for kind in ("functionCall", "functionResponse"):
                part.get(kind, {}).pop("id", None)
    for entry in row.get("tools", ()):
        for index, function in enumerate(entry.get("functionDeclarations", ())):
            schema = function.pop("parametersJsonSchema", None)
            if schema is not None:
                lowered = lower(schema, "gemini")
                function["parameters"] = lowered.schema
                for loss in lowered.losses:
                    losses.add(f"/tools/{index}{loss.path}", loss.concept, loss.action, loss.detail, loss.severity)
    return EncodedRow(row, losses)
