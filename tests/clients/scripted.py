"""A scripted model that reads notes with the agent's own tool, and then prints their contents.

The final sentence is right only if the agent ran every call and returned each result for its call.
"""

import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from agents import Agent

from shapes import FORMATS, Call, ModelAnswer, provider_answer
from toolwire.ir.parts import Text, ToolCall, ToolResult
from toolwire.ir.request import Request
from toolwire.testing.upstream import RawReply

WORD = re.compile(r"word-[0-9a-f]{8}")


class Notes(NamedTuple):
    """Files with one random word each: note-01.txt, note-02.txt, …"""

    paths: tuple[Path, ...]
    words: tuple[str, ...]

    @classmethod
    def write(cls, folder: Path, count: int) -> Self:
        notes = cls(
            tuple(folder / f"note-{number:02}.txt" for number in range(1, count + 1)),
            tuple(f"word-{secrets.token_hex(4)}" for _ in range(count)),
        )
        for path, word in zip(notes.paths, notes.words, strict=True):
            path.write_text(word + "\n")
        return notes

    @property
    def sentence(self) -> str:
        return _sentence(self.words)


def _sentence(words: tuple[str, ...]) -> str:
    return f"The notes say: {', '.join(words)}."


def model_for(
    agent: Agent, upstream: str, notes: Notes, *, together: bool = True, thought: str = ""
) -> Callable[[Request], RawReply]:
    """Return a model that reads all notes in one turn, or (`together=False`) each in a turn of its own.

    `thought` is the reasoning of each turn, followed by the turn's number.
    """

    def answer(request: Request) -> RawReply:
        said = _read_text(request) if upstream in FORMATS else _read_results(request)
        return provider_answer(upstream, said, stream=bool(request.stream))

    def _read_results(request: Request) -> ModelAnswer:
        if agent.read is None:
            return ModelAnswer(_sentence(_words_in(request, notes)))
        if not any(tool.name == agent.read(notes.paths[0])[0] for tool in request.tools):
            return ModelAnswer("A title")  # some agents ask for a title, without tools
        parts = [part for message in request.messages for part in message.parts]
        calls = [part for part in parts if isinstance(part, ToolCall)]
        results = {part.call_id: part.text for part in parts if isinstance(part, ToolResult)}
        texts = "\n".join(part.text for part in parts if isinstance(part, Text))
        words = [
            next((_word(results[call.id]) for call in calls if path.name in call.text and call.id in results), None)
            for path in notes.paths
        ]
        # Cline 2.18 returns "result missing" for each call, and the result itself in the user's text.
        in_text = [re.search(rf"{path.name}'\] Result:[^a-z]*({WORD.pattern})", texts) for path in notes.paths]
        return _next_answer([found[1] if found else word for word, found in zip(words, in_text, strict=True)])

    def _read_text(request: Request) -> ModelAnswer:
        text = "\n".join(part.text for message in request.messages for part in message.parts if isinstance(part, Text))
        if agent.read is None:
            return ModelAnswer(_sentence(_words_in(request, notes)))
        if f'"{agent.read(notes.paths[0])[0]}"' not in text:
            return ModelAnswer("A title")
        history = text.rpartition("</tools>")[2]
        found = WORD.findall(history) if "<tool_response>" in history else []
        return _next_answer([*found, *[None] * len(notes.paths)][: len(notes.paths)])

    def _next_answer(words: list[str | None]) -> ModelAnswer:
        turn = sum(word is not None for word in words) + 1
        reasoning = f"{thought} {turn}" if thought else ""
        unread = [path for path, word in zip(notes.paths, words, strict=True) if word is None]
        if unread:
            wanted = unread if together and agent.parallel else unread[:1]
            calls = tuple(Call(f"call_{path.stem.replace('-', '_')}", *agent.read(path)) for path in wanted)
            return ModelAnswer("I will read the notes.", calls, reasoning)
        sentence = _sentence(tuple(map(str, words)))
        if agent.finish is None:
            return ModelAnswer(sentence, (), reasoning)
        return ModelAnswer("", (Call("call_end", agent.finish, {"result": sentence}),), reasoning)

    return answer


def _words_in(request: Request, notes: Notes) -> tuple[str, ...]:
    """Return the words of the files in the agent's prompt, which has them in any order."""
    text = "\n".join(part.text for message in request.messages for part in message.parts if isinstance(part, Text))
    found = [re.search(rf"{path.name}\s+`+\s+({WORD.pattern})", text) for path in notes.paths]
    return tuple("nothing" if match is None else match[1] for match in found)


def _word(text: str) -> str:
    found = WORD.search(text)
    return found[0] if found else f"({text[:200]})"
