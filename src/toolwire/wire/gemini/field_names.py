"""The two spellings of Gemini's JSON.

Gemini's JSON is protobuf JSON, which accepts both camelCase and snake_case. Clients send both, even in one request.
`read_fields` reads an object in either spelling as camelCase and records the fields in snake_case (form `:snake`);
`write_fields` writes them back that way. Other fields are written in camelCase.

The API also accepts one value where it declares a repeated field (`"tools": {"googleSearch": {}}`). `read_fields` reads
it as a list of one and records the field (form `:single`); `write_fields` unwraps it again.
"""

from __future__ import annotations

from collections.abc import Collection

from ...ir.parts import Extra
from ...ir.pointer import JSON, Object
from ..fields import read_extra, write_extra

NAME = "gemini"

_FIELDS = """
systemInstruction toolConfig generationConfig safetySettings cachedContent
thoughtSignature functionCall functionResponse inlineData fileData executableCode codeExecutionResult videoMetadata
mimeType displayName fileUri partialArgs jsonPath stringValue numberValue boolValue nullValue willContinue
functionDeclarations parametersJsonSchema responseJsonSchema
functionCallingConfig allowedFunctionNames streamFunctionCallArguments
topP topK candidateCount maxOutputTokens stopSequences responseLogprobs presencePenalty frequencyPenalty
responseMimeType responseSchema responseModalities thinkingConfig includeThoughts thinkingBudget thinkingLevel
usageMetadata promptFeedback blockReason modelVersion responseId finishReason finishMessage safetyRatings
promptTokenCount candidatesTokenCount totalTokenCount thoughtsTokenCount cachedContentTokenCount toolUsePromptTokenCount
toolCall toolResponse partMetadata mediaResolution
""".split()
_SNAKE = {"".join(f"_{c.lower()}" if c.isupper() else c for c in name): name for name in _FIELDS}
_CAMEL = {name: snake for snake, name in _SNAKE.items()}
_SNAKE_KEYS = frozenset(_SNAKE)


def to_camel_case(raw: Object) -> Object:
    """Return `raw` with its known fields in camelCase."""
    if _SNAKE_KEYS.isdisjoint(raw):
        return raw
    return {_SNAKE.get(key, key): value for key, value in raw.items()}


def read_fields(
    raw: Object, known: Collection[str], scope: str, extra: Extra, repeated: Collection[str] = ()
) -> Object:
    """Return `raw` in camelCase; its spelling and the fields not in `known` go into `extra` under `scope`.

    `repeated` names fields that hold a list; a single value in one of them is wrapped.
    """
    fields = to_camel_case(raw)
    if fields is not raw:
        extra.setdefault(f"{scope}~", {})[":snake"] = [_SNAKE[key] for key in raw if key in _SNAKE]
    if repeated and (single := [key for key in repeated if _is_single(fields.get(key))]):
        extra.setdefault(f"{scope}~", {})[":single"] = single
        fields = {key: [value] if key in single else value for key, value in fields.items()}
    read_extra(fields, known, scope, extra)
    return fields


def _is_single(value: JSON) -> bool:
    return type(value) is dict or (type(value) is str and value != "")


def single_fields(extra: Extra, scope: str) -> Collection[str]:
    """Return the fields that were written as one value instead of a list."""
    form = extra.get(f"{scope}~")
    return form.get(":single", ()) if form else ()


def write_fields(out: Object, extra: Extra, scope: str) -> Object:
    """Return `out` with the fields of `extra`, in the original spelling; `out` itself may be changed."""
    if not extra:
        return out
    out = write_extra(out, extra, scope)
    form = extra.get(f"{scope}~")
    for key in form.get(":single", ()) if form else ():
        if type(out.get(key)) is list and len(out[key]) == 1:
            out[key] = out[key][0]
    if form and ":snake" in form:
        out = {_CAMEL[key] if key in form[":snake"] else key: value for key, value in out.items()}
    return out
