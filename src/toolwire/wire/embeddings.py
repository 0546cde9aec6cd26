"""Requests for embeddings and their answers on each wire: one value for all, exact or with losses.

    OpenAI   POST /embeddings          {input, model, dimensions, encoding_format}
    Gemini   …:batchEmbedContents      {requests: [{model, content: {parts: [{text}]}, taskType, title, outputDimensionality}]}
             …:embedContent            one of these requests
    Ollama   POST /api/embed           {model, input, truncate, dimensions}
    Cohere   POST /v2/embed            {model, texts, input_type, embedding_types, output_dimension, truncate}

The task is the purpose of an embedding, such as a query. OpenAI and Ollama have none, so it is a loss there; Cohere requires one.
Sources: openai 3.51.0, `types/embedding_create_params.py`; google-genai 3.3.0, `types.EmbedContentConfig`; cohere 7.3.1,
`v2/client.py`; ollama/ollama, docs/api.md.
"""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from sys import byteorder
from typing import Literal, TypeAlias

from ..ir.errors import EncodeError, ProtocolError
from ..ir.losses import Losses
from ..ir.pointer import JSON, Object
from ..ir.response import Usage
from ..ir.value import Value

Task: TypeAlias = Literal["query", "document", "similarity", "classification", "clustering"]
EMBEDDING_WIRES = ("openai_chat", "openai_responses", "gemini", "ollama", "cohere")
_GEMINI_TASKS: dict[str, Task] = {
    "RETRIEVAL_QUERY": "query",
    "QUESTION_ANSWERING": "query",
    "FACT_VERIFICATION": "query",
    "CODE_RETRIEVAL_QUERY": "query",
    "RETRIEVAL_DOCUMENT": "document",
    "SEMANTIC_SIMILARITY": "similarity",
    "CLASSIFICATION": "classification",
    "CLUSTERING": "clustering",
}
_TO_GEMINI = {task: name for name, task in reversed(_GEMINI_TASKS.items())}
_COHERE_TASKS: dict[str, Task] = {
    "search_query": "query",
    "search_document": "document",
    "classification": "classification",
    "clustering": "clustering",
}
_TO_COHERE = {task: name for name, task in _COHERE_TASKS.items()}
_EXACT_TASKS = frozenset(_TO_GEMINI.values())
_FLOAT = "f"
_KNOWN: dict[str, frozenset[str]] = {
    "openai_chat": frozenset({"model", "input", "dimensions", "encoding_format"}),
    "gemini": frozenset({"model", "content", "taskType", "outputDimensionality"}),
    "ollama": frozenset({"model", "input", "dimensions", "truncate"}),
    "cohere": frozenset({"model", "texts", "input_type", "embedding_types", "output_dimension", "truncate"}),
}


class EmbeddingRequest(Value, frozen=True):
    """Texts to embed. `is_single` and `encoding` are about the form of the answer."""

    model: str
    texts: tuple[str, ...]
    task: Task | None = None
    dimensions: int | None = None
    truncate: bool | None = None  # a text that is too long, instead of an error
    is_single: bool = False
    encoding: Literal["float", "base64"] = "float"


class Embeddings(Value, frozen=True):
    """A vector for each text, in order."""

    vectors: tuple[tuple[float, ...], ...]
    model: str = ""
    usage: Usage | None = None


# Requests.


def decode_embedding_request(wire: str, model: str, document: Object, losses: Losses) -> EmbeddingRequest:
    """Read a request. Fields that no other wire has are losses. Raise ProtocolError if it is invalid."""
    if wire == "gemini":
        return _decode_gemini(model, document, losses)
    name = "openai_chat" if wire == "openai_responses" else wire
    _note_unknown(name, document, "", losses)
    texts, is_single = _texts(document.get("texts" if name == "cohere" else "input"), f"/{_input_name(name)}")
    task: Task | None = None
    if name == "cohere":
        input_type = document.get("input_type")
        task = _COHERE_TASKS.get(input_type) if isinstance(input_type, str) else None
        kinds = document.get("embedding_types")
        if isinstance(kinds, list) and kinds != ["float"]:
            raise ProtocolError(
                "only embeddings of type float can be translated", pointer="/embedding_types", status=400
            )
    truncate: JSON = document.get("truncate")
    truncates = truncate != "NONE" if isinstance(truncate, str) else truncate if isinstance(truncate, bool) else None
    return EmbeddingRequest(
        model,
        texts,
        task,
        _dimensions(document, "output_dimension" if name == "cohere" else "dimensions"),
        truncates,
        is_single,
        "base64" if document.get("encoding_format") == "base64" else "float",
    )


def encode_embedding_request(wire: str, request: EmbeddingRequest, losses: Losses) -> Object:
    """Write a request for a wire. A task or a setting that it does not have is a loss."""
    if wire == "gemini":
        return _encode_gemini(request, losses)
    body: Object = {"model": request.model}
    if wire == "cohere":
        task = request.task or "document"
        if task not in _TO_COHERE:
            losses.add("", "embedding_task", "rewritten", f"{task} is sent as clustering", "warning")
            task = "clustering"
        elif request.task is None:
            losses.add("", "embedding_task", "rewritten", "Cohere requires a task; search_document is sent", "info")
        body |= {"texts": [*request.texts], "input_type": _TO_COHERE[task], "embedding_types": ["float"]}
        if request.dimensions is not None:
            body["output_dimension"] = request.dimensions
        if request.truncate is not None:
            body["truncate"] = "END" if request.truncate else "NONE"
        return body
    body["input"] = [*request.texts]
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    if request.task is not None:
        losses.add("", "embedding_task", "dropped", f"the task {request.task} does not exist there")
    if wire == "ollama":
        if request.truncate is not None:
            body["truncate"] = request.truncate
        return body
    if request.truncate:
        losses.add("/truncate", "truncation", "dropped", "a text that is too long is an error there")
    return {**body, "encoding_format": "float"}


def embedding_path(wire: str, model: str) -> str:
    """Return the path of requests, for OpenAI below the version. `model` is escaped for a path."""
    if wire == "gemini":
        return f"/v1beta/models/{model}:batchEmbedContents"
    return {"ollama": "/api/embed", "cohere": "/v2/embed"}.get(wire, "/embeddings")


def _decode_gemini(model: str, document: Object, losses: Losses) -> EmbeddingRequest:
    parts: JSON = document.get("requests")
    requests = parts if isinstance(parts, list) else [document]
    texts: list[str] = []
    settings: set[tuple[str | None, int | None]] = set()
    for number, part in enumerate(requests):
        pointer = f"/requests/{number}" if isinstance(parts, list) else ""
        if not isinstance(part, dict):
            raise ProtocolError("a request is not an object", pointer=pointer, status=400)
        _note_unknown("gemini", part, pointer, losses)
        texts.append(_gemini_text(part.get("content"), f"{pointer}/content"))
        task = part.get("taskType")
        settings.add((task if isinstance(task, str) else None, _dimensions(part, "outputDimensionality")))
    if len(settings) > 1:
        hint = "send one request for each task and number of dimensions"
        raise EncodeError("the requests have different settings", hint=hint)
    name, dimensions = settings.pop() if settings else (None, None)
    task_value = None if name is None else _GEMINI_TASKS.get(name)
    if name is not None and name not in _EXACT_TASKS:
        losses.add("/taskType", "embedding_task", "weakened", f"{name} is {task_value or 'unknown'} there")
    return EmbeddingRequest(model, tuple(texts), task_value, dimensions, is_single=not isinstance(parts, list))


def _encode_gemini(request: EmbeddingRequest, losses: Losses) -> Object:
    name = f"models/{request.model.removeprefix('models/')}"
    settings: Object = {}
    if request.task is not None:
        settings["taskType"] = _TO_GEMINI[request.task]
    if request.dimensions is not None:
        settings["outputDimensionality"] = request.dimensions
    if request.truncate is False:
        losses.add("/truncate", "truncation", "dropped", "a text that is too long is truncated there")
    return {"requests": [{"model": name, "content": {"parts": [{"text": text}]}, **settings} for text in request.texts]}


def _gemini_text(content: JSON, pointer: str) -> str:
    parts = content.get("parts") if isinstance(content, dict) else None
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    if not texts or not isinstance(parts, list) or len(texts) != len(parts):
        raise ProtocolError("the content has no parts", pointer=pointer, status=400)
    if not all(isinstance(text, str) for text in texts):
        raise EncodeError("only texts can be embedded on other wires", hint="use a model of Gemini")
    return "".join(map(str, texts))


def _note_unknown(wire: str, document: Object, pointer: str, losses: Losses) -> None:
    for name, value in document.items():
        if name not in _KNOWN[wire] and name != "requests" and value is not None:
            losses.add(f"{pointer}/{name}", "embedding_option", "dropped", f"{name} does not exist there")


def _input_name(wire: str) -> str:
    return "texts" if wire == "cohere" else "input"


def _texts(value: JSON, pointer: str) -> tuple[tuple[str, ...], bool]:
    """Return the texts, and whether it is a single one. Raise ProtocolError for other values, EncodeError for tokens."""
    if isinstance(value, str):
        return (value,), True
    if not isinstance(value, list) or not value:
        raise ProtocolError("there are no texts to embed", pointer=pointer, status=400)
    if not all(isinstance(text, str) for text in value):
        raise EncodeError("tokens cannot be embedded on other wires", hint="send texts")
    return tuple(map(str, value)), False


def _dimensions(document: Object, name: str) -> int | None:
    value = document.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise ProtocolError("the number of dimensions must be a positive integer", pointer=f"/{name}", status=400)
    return value


# Answers.


def decode_embeddings(wire: str, document: Object) -> Embeddings:
    """Read an answer. Raise ProtocolError if it has no vectors."""
    model, usage = document.get("model"), _read_usage(wire, document)
    if wire == "gemini":
        listed: JSON = document.get("embeddings", [document.get("embedding")])
        values = [item.get("values") if isinstance(item, dict) else None for item in _list(listed)]
    elif wire == "ollama":
        values = _list(document.get("embeddings"))
    elif wire == "cohere":
        found = document.get("embeddings")
        values = _list(found.get("float") if isinstance(found, dict) else found)
    else:
        items = [item if isinstance(item, dict) else {} for item in _list(document.get("data"))]
        ordered = sorted(enumerate(items), key=lambda pair: _index(pair[1], pair[0]))
        values = [item.get("embedding") for _, item in ordered]
    vectors = tuple([_vector(value) for value in values])
    return Embeddings(vectors, model if isinstance(model, str) else "", usage)


def encode_embeddings(wire: str, answer: Embeddings, request: EmbeddingRequest) -> Object:
    """Write an answer to a client's request, with the model's name that the client knows."""
    usage = answer.usage or Usage()
    total = usage.input or 0
    if wire == "gemini":
        made = [{"values": [*vector]} for vector in answer.vectors]
        body: Object = {"embedding": made[0]} if request.is_single else {"embeddings": [*made]}
        return {**body, "usageMetadata": {"promptTokenCount": total}} if answer.usage else body
    if wire == "ollama":
        body = {"model": request.model, "embeddings": [[*vector] for vector in answer.vectors]}
        return {**body, "prompt_eval_count": total} if answer.usage else body
    if wire == "cohere":
        return {
            "id": "",
            "embeddings": {"float": [[*vector] for vector in answer.vectors]},
            "texts": [*request.texts],
            "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": total}},
            "response_type": "embeddings_by_type",
        }
    write = _to_base64 if request.encoding == "base64" else list
    data: list[JSON] = [
        {"object": "embedding", "index": number, "embedding": write(vector)}
        for number, vector in enumerate(answer.vectors)
    ]
    counts: Object = {"prompt_tokens": total, "total_tokens": total}
    return {"object": "list", "data": data, "model": request.model, "usage": counts}


def _read_usage(wire: str, document: Object) -> Usage | None:
    path = {
        "gemini": ("usageMetadata", "promptTokenCount"),
        "ollama": ("prompt_eval_count",),
        "cohere": ("meta", "billed_units", "input_tokens"),
    }.get(wire, ("usage", "prompt_tokens"))
    value: JSON = document
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return Usage(int(value), 0) if isinstance(value, (int, float)) and value > 0 else None


def _vector(value: JSON) -> tuple[float, ...]:
    if isinstance(value, str):  # base64 of little-endian floats, as OpenAI writes them on request
        numbers = array(_FLOAT)
        try:
            numbers.frombytes(b64decode(value, validate=True))
        except ValueError:
            raise ProtocolError("an embedding is not valid base64", status=502) from None
        if byteorder == "big":
            numbers.byteswap()
        return tuple(numbers)
    if not isinstance(value, list) or not value or not all(type(number) in (int, float) for number in value):
        raise ProtocolError("the answer has no vector for a text", status=502)
    return tuple(map(float, value))


def _to_base64(vector: tuple[float, ...]) -> str:
    numbers = array(_FLOAT, vector)
    if byteorder == "big":
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()


def _list(value: JSON) -> list[JSON]:
    if not isinstance(value, list) or not value:
        raise ProtocolError("the answer has no embeddings", status=502)
    return value


def _index(item: Object, number: int) -> int:
    index = item.get("index")
    return index if type(index) is int else number
