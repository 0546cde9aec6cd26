"""A model that asks for two files at once, and says what it read in them: only who ran both calls and paired their results
rightly can make it say so."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from agents import Agent
from shapes import FORMATS, Call, ModelAnswer, provider_answer

from toolwire.ir.parts import Text, ToolCall, ToolResult
from toolwire.ir.request import Request
from toolwire.testing.upstream import RawReply

WORD = re.compile(r"word-[0-9a-f]{8}")


class Files(NamedTuple):
    """What is in alpha.txt and in beta.txt of a folder."""

    folder: Path
    alpha: str
    beta: str

    def write(self) -> None:
        (self.folder / "alpha.txt").write_text(self.alpha + "\n")
        (self.folder / "beta.txt").write_text(self.beta + "\n")

    @property
    def sentence(self) -> str:
        return _sentence(self.alpha, self.beta)


def _sentence(alpha: str, beta: str) -> str:
    return f"alpha.txt says {alpha} and beta.txt says {beta}."


def model_for(agent: Agent, upstream: str, files: Files) -> Callable[[Request], RawReply]:
    name = agent.read(files.folder)[0]

    def answer(request: Request) -> RawReply:
        stream = bool(request.stream)
        if upstream in FORMATS:
            return provider_answer(upstream, _as_text(request, name, calls()), stream=stream)
        return provider_answer(upstream, _as_native_calls(request, name, calls()), stream=stream)

    def calls() -> tuple[Call, ...]:
        paths = [files.folder / "alpha.txt", files.folder / "beta.txt"]
        return tuple(Call(f"call_{path.stem}", *agent.read(path)) for path in paths)

    return answer


def _as_native_calls(request: Request, name: str, calls: tuple[Call, ...]) -> ModelAnswer:
    if not any(tool.name == name for tool in request.tools):
        return ModelAnswer("A title")  # some ask for one, without tools
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    if not results:
        return ModelAnswer("I will read both.", calls)
    made = [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    read = {}
    for call in made:
        texts = [result.text for result in results if result.call_id == call.id]
        read["alpha" if "alpha" in call.text else "beta"] = _word("".join(texts))
    return ModelAnswer(_sentence(read.get("alpha", "nothing"), read.get("beta", "nothing")))


def _as_text(request: Request, name: str, calls: tuple[Call, ...]) -> ModelAnswer:
    words = "\n".join(part.text for message in request.messages for part in message.parts if isinstance(part, Text))
    if f'"{name}"' not in words:
        return ModelAnswer("A title")
    if "<tool_response>" not in words.rpartition("</tools>")[2]:
        return ModelAnswer("I will read both.", calls)
    found = [*WORD.findall(words), "nothing", "nothing"]
    return ModelAnswer(_sentence(found[0], found[1]))


def _word(text: str) -> str:
    found = WORD.search(text)
    return found[0] if found else f"({text[:200]})"
