"""Sources of training examples: files in a training format, traces, and folders of both.

Traces are recorded agent runs, and recorded exchanges of the gateway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..ir.errors import ConfigError, ToolwireError
from ..ir.folding import fold
from ..ir.parts import Text, ToolCall, ToolResult
from ..ir.request import Message, Request
from ..ir.response import Response
from ..ir.text import to_bytes
from ..ir.tools import Tool
from ..net.trace.file import read_traces
from ..run.traces.format import OperationFailed, RunEnded, TraceEvent, TraceHeader, is_cut
from ..run.traces.recordings import ExchangeTrace, RecordedAnswer, RecordedTurn, RunTrace, exchange_of, run_of
from ..stream.strict import parse_object
from ..wire import get as get_wire
from .example_files import RejectedExample, read_examples
from .examples import Example, make_example
from .run_folder import reading

_COMPLETE = frozenset({"stop", "stop_sequence", "tool_calls"})
_SYSTEM = ("system", "developer")
_STORED = frozenset({"previous_response_id", "conversation", "prompt"})


def examples_of_trace(path: Path, *, include_failed: bool = False) -> Iterator[Example | RejectedExample]:
    """Yield the examples of a file of traces; a conversation that cannot be used is a RejectedExample.

    Complete conversations of runs and exchanges that succeeded are examples. With `include_failed`, so are those with
    failed tools, and runs that ended without an answer. Truncated and invalid calls never are.
    """
    found: list[Example | RejectedExample] = []
    for header, events in read_traces(path):
        if header.kind == "exchange":
            found.append(_example_of_exchange(exchange_of(header, events, path.name), path.name))
        else:
            found += _examples_of_run(header, events, path.name, include_failed)
    for one in found:
        yield one if include_failed or isinstance(one, RejectedExample) else _without_failures(one)


def _without_failures(example: Example) -> Example | RejectedExample:
    failed = next((result for result in example.results if result.is_error), None)
    if failed is None:
        return example
    return RejectedExample(example.source, "a tool failed", f"{failed.name or failed.call_id}: {failed.text[:200]}")


def _examples_of_run(
    header: TraceHeader, events: Sequence[TraceEvent], name: str, include_failed: bool
) -> Iterator[Example | RejectedExample]:
    """Yield an example for each request that no later request continues; compaction and transfers make several."""
    try:
        trace = run_of(header, events, name)
        turns = trace.turns()
    except ConfigError as error:
        yield RejectedExample(name, "unreadable recording", str(error))
        return
    problem = _run_problem(trace)
    if problem and not include_failed:
        yield RejectedExample(name, "the run failed", problem)
        return
    answered = [turn for turn in turns if turn.response is not None]
    if not answered:
        yield RejectedExample(name, "no response", turns[-1].error if turns else "the run sent no request")
    tools: dict[str, Any] = {}
    for number, turn in enumerate(answered):
        tools.update((_tool_key(tool), tool) for tool in turn.request["tools"])
        before = _conversation(turn)
        following = _conversation(answered[number + 1]) if number + 1 < len(answered) else []
        if len(following) > len(before) and following[: len(before)] == before:
            continue
        yield _example_of_turn(turn, list(tools.values()), header.id, name)
        tools = {}


def _conversation(turn: RecordedTurn) -> list[Any]:
    """Return the recorded messages without system messages, which an agent may change from turn to turn."""
    return [one for one in turn.request["messages"] if not (isinstance(one, dict) and one.get("role") in _SYSTEM)]


def _tool_key(tool: Any) -> str:
    return str(tool.get("name", "")) if isinstance(tool, dict) else ""


def _run_problem(trace: RunTrace) -> str:
    """Return why a run has no answer; empty if it has one."""
    end = trace.root.end
    if isinstance(end, RunEnded):
        return end.reason
    return f"{end.type}: {end.message}" if isinstance(end, OperationFailed) else "the recording ends before the run"


def _example_of_turn(turn: RecordedTurn, tools: list[Any], run_id: str, name: str) -> Example | RejectedExample:
    """Return a recorded request with its answer as an example, or the reason for its rejection.

    The turn must have a response.
    """
    document = {**turn.request, "tools": tools}
    if is_cut(document):
        return RejectedExample(name, "the recording was cut", f"request of span {turn.span}")
    try:
        request = msgspec.convert(document, Request)
    except (msgspec.ValidationError, RecursionError) as error:
        return RejectedExample(name, "unreadable recording", f"request of span {turn.span}: {error}")
    assert turn.response is not None
    return _make(request.messages, request.tools, request.parallel, turn.response, run_id, name)


def _example_of_exchange(trace: ExchangeTrace, name: str) -> Example | RejectedExample:
    """Return an exchange of the gateway as an example, or the reason for its rejection.

    A request that refers to messages at the provider is rejected, because they are not in the recording.
    """
    answer, recorded = trace.ingress.answer, trace.ingress.request
    if answer is None or not 200 <= answer.head.status < 300:
        status = "no answer" if answer is None else f"status {answer.head.status}"
        return RejectedExample(name, "the request failed", trace.outcome.error or status)
    if answer.head.error or trace.outcome.error:
        return RejectedExample(name, "the request failed", answer.head.error or trace.outcome.error or "")
    if is_cut(recorded.body) or is_cut(answer.head.body):
        return RejectedExample(name, "the recording was cut", "a body was too long")
    try:
        request = get_wire(recorded.wire).decode_request(parse_object(trace.ingress.data))
        response = _decode_answer(answer, recorded.wire)
    except ToolwireError as error:
        return RejectedExample(name, "unreadable recording", str(error))
    stored = sorted(_STORED & request.extra.get("openai_responses", {}).keys())
    if stored:
        return RejectedExample(name, "the conversation is stored by the provider", ", ".join(stored))
    return _make(request.messages, request.tools, request.parallel, response, trace.id, name)


def _decode_answer(answer: RecordedAnswer, wire_name: str) -> Response:
    wire = get_wire(wire_name)
    if not answer.pieces:
        return wire.decode_response(parse_object(answer.data))
    decoder = wire.stream_decoder()
    return fold([*decoder.feed(answer.data), *decoder.close()])


def _make(
    messages: Iterable[Message],
    tools: Iterable[Tool],
    parallel: bool | None,
    response: Response,
    identifier: str,
    source: str,
) -> Example | RejectedExample:
    """Return the example of a request and its response, or the reason why the response cannot be used."""
    if response.fault is not None:
        return RejectedExample(source, "the request failed", response.fault.message)
    reason = response.stop.reason if response.stop is not None else "unknown"
    if reason not in _COMPLETE:
        return RejectedExample(source, "the answer is incomplete", f"stopped by {reason}")
    if not response.parts:
        return RejectedExample(source, "the answer is empty", f"stopped by {reason}")
    answer = Message("assistant", response.parts)
    example = make_example((*messages, answer), tools, parallel=parallel, id=identifier, source=source)
    for call in example.calls:
        if call.state != "complete":
            return RejectedExample(source, f"{call.state} call", f"{call.name}: {(call.raw or '')[:200]}")
    return example


def conversation_digests(example: Example) -> list[bytes]:
    """Return a digest of the conversation up to each assistant message.

    Reasoning and ids do not count, because a client may not send them back, nor do system messages, which it may change.
    An example whose last digest is an earlier one of another example is the start of that conversation.
    """
    running = hashlib.sha256()
    found: list[bytes] = []
    for message in example.messages:
        if message.role in _SYSTEM:
            continue
        running.update(to_bytes([message.role, [_content(part) for part in message.parts]], sort_keys=True))
        if message.role == "assistant":
            found.append(running.digest())
    return found


def _content(part: Any) -> Any:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, ToolCall):
        return [part.name, part.arguments]
    return [part.name, part.text] if isinstance(part, ToolResult) else None


_SUFFIXES = frozenset({".json", ".jsonl"})
_MAX_FILES = 1_000_000  # all paths are sorted in memory, about 200 bytes each


def collect_examples(
    sources: Iterable[str | Path],
    format: str | None = None,  # noqa: A002
    *,
    include_failed: bool = False,
    on_rejected: Callable[[RejectedExample], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Example]:
    """Yield the examples of files and folders, in the given order; the files of a folder in the order of their names.

    A file is a trace of toolwire, or has rows of a training format; `format` is the format of rows, None detects it. A
    gateway records a conversation again with each request, so a trace that another one continues is left out.
    `on_rejected` receives the conversations that cannot be used; without it, they are left out, except that an invalid
    row raises. `progress` receives, before each file, the number of files that were read, and of all files.
    """
    reject = on_rejected or _ignore
    files = [file for source in sources for file in list_files(Path(source))]
    traces = {file for file in files if is_trace(file)}
    continued = _continued(sorted(traces), include_failed)
    for number, file in enumerate(files):
        if progress is not None:
            progress(number, len(files))
        if file not in traces:
            yield from read_examples(file, format, on_rejected=on_rejected)
            continue
        for example in _read_trace(file, include_failed):
            if isinstance(example, RejectedExample):
                reject(example)
            elif conversation_digests(example)[-1] in continued:
                reject(RejectedExample(example.source, "part of a longer conversation", "another trace continues it"))
            else:
                yield example


def _ignore(rejected: RejectedExample) -> None:
    """Leave out a conversation that cannot be used."""


def list_files(path: Path) -> list[Path]:
    """Return a file, or the JSON files of a folder and its subfolders.

    Raises `ConfigError` if there are none, or too many.
    """
    if not path.is_dir():
        if not path.is_file():
            raise ConfigError(f"{path} does not exist", hint="give a file or a folder of traces or examples")
        return [path]
    found = sorted(file for file in path.rglob("*") if _is_source(file))
    if not found:
        raise ConfigError(f"{path} has no .jsonl or .json files", hint="give a file or a folder of traces or examples")
    if len(found) > _MAX_FILES:
        raise ConfigError(f"{path} has more than {_MAX_FILES} files", hint="give a part of them")
    return found


def _is_source(file: Path) -> bool:
    return file.suffix in _SUFFIXES and not file.name.endswith(".manifest.json") and file.is_file()


def is_trace(file: Path) -> bool:
    """Return whether a file starts with the header of a trace."""
    with reading(file), file.open("rb") as stream:
        return b'"toolwire_trace"' in stream.read(256)


def _read_trace(file: Path, include_failed: bool) -> Iterator[Example | RejectedExample]:
    try:
        yield from examples_of_trace(file, include_failed=include_failed)
    except ToolwireError as error:
        yield RejectedExample(file.name, "unreadable recording", str(error))


def _continued(traces: Iterable[Path], include_failed: bool) -> set[bytes]:
    """Return the digests of all conversations that a longer one in another trace, or in the same one, starts with."""
    found: set[bytes] = set()
    for file in traces:
        for one in _read_trace(file, include_failed):
            if isinstance(one, Example):
                found.update(conversation_digests(one)[:-1])
    return found
