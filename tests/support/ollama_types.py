"""Ollama's server as a judge: the structs of its api/types.go (ollama/ollama fb307609), and a client that reads as its own do.

Go passes over fields that it does not know; here they are refused, for what the server does not know is lost on it.
"""

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import msgspec


class Strict(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    pass


class CalledFunction(Strict):
    name: str
    arguments: dict[str, Any]
    index: int = 0


class Call(Strict):
    function: CalledFunction
    id: str = ""
    type: str = "function"  # of the documentation, not of the struct


class Message(Strict):
    role: str
    content: str = ""
    thinking: str = ""
    images: list[str] = []
    tool_calls: list[Call] = []
    tool_name: str = ""
    tool_call_id: str = ""


class Property(Strict):
    anyOf: list["Property"] = []
    type: str | list[str] = ""
    items: Any = None
    description: str = ""
    enum: list[Any] = []
    properties: dict[str, "Property"] = {}
    required: list[str] = []


class Parameters(Strict):
    type: str
    properties: dict[str, Property] = {}
    required: list[str] = []
    items: Any = None


class Function(Strict):
    name: str
    parameters: Parameters
    description: str = ""


class Tool(Strict):
    type: str
    function: Function


class Options(Strict):
    num_ctx: int = 0
    num_predict: int = 0
    temperature: float = 0
    top_p: float = 0
    top_k: float = 0
    stop: list[str] = []
    seed: int = 0
    presence_penalty: float = 0
    frequency_penalty: float = 0


class Request(Strict):
    model: str
    messages: list[Message]
    stream: bool
    tools: list[Tool] = []
    format: str | dict[str, Any] = ""
    options: Options = msgspec.field(default_factory=Options)
    think: bool | str = False
    logprobs: bool = False
    top_logprobs: int = 0
    truncate: bool = True
    shift: bool = True


class TokenProbability(Strict):
    token: str
    logprob: float
    bytes: list[int] | None = None


class LogProbability(TokenProbability):
    top_logprobs: list[TokenProbability] = []


class Answer(Strict):
    model: str
    created_at: str
    message: Message
    done: bool
    done_reason: str = ""
    prompt_eval_count: int = 0
    eval_count: int = 0
    logprobs: list[LogProbability] = []


class Failure(Strict):
    error: str


def validate_request(body: dict) -> None:
    request = msgspec.convert(body, Request)
    assert request.format in ("", "json") or isinstance(request.format, dict)
    assert request.think in (True, False, "low", "medium", "high", "max")
    for message in request.messages:
        assert message.role in ("system", "user", "assistant", "tool")
        assert bool(message.tool_calls) <= (message.role == "assistant")
        for image in message.images:
            base64.b64decode(image, validate=True)


def validate_response(body: dict) -> None:
    assert msgspec.convert(body, Answer).message.role == "assistant"


def validate_line(line: dict) -> None:
    if "error" in line:
        msgspec.convert(line, Failure)
    else:
        validate_response(line)


class ResponseError(Exception):
    def __init__(self, words: str, status_code: int) -> None:
        super().__init__(words)
        self.status_code = status_code


def calls_by_client(url: str, stream: bool) -> list[tuple[str, Any]]:
    """(name, arguments) of the calls; every line is parsed, and one with an error raises it."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    request = urllib.request.Request(f"{url}/api/chat", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as reply:
            answers = [json.loads(line) for line in (reply if stream else [reply.read()])]
    except urllib.error.HTTPError as error:
        with error:
            raise ResponseError(json.load(error)["error"], error.code) from None
    for answer in answers:
        if "error" in answer:
            raise ResponseError(answer["error"], 200)
    calls = [call["function"] for answer in answers for call in answer["message"].get("tool_calls", ())]
    return [(function["name"], function["arguments"]) for function in calls]
