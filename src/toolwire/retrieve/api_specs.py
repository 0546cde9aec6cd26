"""Read a folder of API specs as tools.

    specs = load_api_specs("api_zoo/")
    for file in specs.files:
        index.add(file.tools, server=file.name)
    for problem in specs.problems:
        print(problem)                               # the file, the position, the fix

A file with `.json` or `.jsonl` contains specs of the API zoo, `{name, signature, doc}`, tools of any wire, or a request
that declares some. A file or an entry that cannot be read is reported and does not affect the others. Other documents
need a reader, because this package and `toolwire.openapi` do not import each other:

    def read_openapi(path, data):
        document = parse_document(data)
        return read_operations(document).tools if "openapi" in document else None

    load_api_specs("apis/", readers=[read_openapi])

A spec is an entry of the API zoo, `{name, signature, doc}`, or `{name, description, parameters}`.

    {"name": "get_weather", "signature": "get_weather(city: str, days: int = 3)", "doc": "Get the weather of a city"}
    {"api_name": "Zoom API - listUsers", "api_call": "GET /users", "api_arguments": {"page": "integer: The page"}, …}

Types and required parameters are taken from the spec where it has them; a parameter without a recognised type accepts
any value. The name, the call and the id as the spec writes them are in `extra["api_spec"]`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from ..bridge.translation.detection import detect
from ..ir.errors import ConfigError, ProtocolError, ToolwireError
from ..ir.pointer import JSON
from ..ir.tools import Tool
from ..stream.repair import repair_json
from ..stream.strict import parse
from ..wire import get, mcp
from .spec_tool import is_spec, spec_tool

MAX_FILES = 10_000  # a folder with more is most likely the wrong one, such as a home directory
MAX_FILE_SIZE = 64 << 20  # bytes; a parsed document takes several times its size in memory
MAX_TOTAL_SIZE = 1 << 30  # bytes of all files; their tools are in memory together
_MAX_PROBLEMS = 1_000  # a file of lines in another form has a problem in each line
_MAX_REPAIRED = 4 << 20  # bytes; a repair reads character by character in Python, a large file would take minutes
_HINT = "give specs of the API zoo, {name, signature, doc}, or a list of tools"

SpecReader: TypeAlias = Callable[[Path, bytes], Iterable[Tool] | None]
"""Returns the tools of a file, or None for a file of another kind. It is asked before the built-in readers."""


class ApiSpecError(ConfigError):
    """A file, or an entry of a file, that was left out. `path` is relative to the folder."""

    def __init__(self, path: str, message: str, *, pointer: str = "", hint: str = "") -> None:
        super().__init__(f"{path}: {message}", pointer=pointer, hint=hint)
        self.path = path


class SpecFile(NamedTuple):
    """The tools of one file. `name` is its path without the suffix; names of tools are unique within the file."""

    name: str
    path: str
    tools: tuple[Tool, ...]


class ApiSpecs(NamedTuple):
    """The tools of a folder by file, and the problems."""

    files: tuple[SpecFile, ...]
    problems: tuple[ApiSpecError, ...] = ()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools. Names may repeat in different files."""
        return tuple(tool for file in self.files for tool in file.tools)


def load_api_specs(folder: str | Path, *, readers: Sequence[SpecReader] = ()) -> ApiSpecs:
    """Read all specs of a folder and its subfolders, or of one file. Raise ConfigError if there is neither.

    Links to other places and special files are left out. Files are read up to 64 MB each and 1 GB together. Problems of
    single files are in the result.
    """
    root = Path(folder)
    if not root.exists():
        raise ConfigError(f"there is no folder {folder}", hint="give a folder or a file of JSON specs")
    files: list[SpecFile] = []
    problems: list[ApiSpecError] = []
    total = 0
    for number, path in enumerate(_list_files(root)):
        name = path.relative_to(root if path != root else root.parent).as_posix()
        try:
            if number >= MAX_FILES or total >= MAX_TOTAL_SIZE:
                raise ApiSpecError(
                    name, "the folder has more files than are read", hint="split it into several folders"
                )
            data = _read_bytes(path, name)
            total += len(data)
            tools = _read_file(path, data, name, readers, problems)
        except ApiSpecError as error:
            problems.append(error)
            if number >= MAX_FILES:
                break
            continue
        if tools:
            files.append(SpecFile(name.rpartition(".")[0] or name, name, tuple(_make_unique(tools))))
    return ApiSpecs(tuple(files), tuple(problems[:_MAX_PROBLEMS]))


def _list_files(root: Path) -> Iterator[Path]:
    """Yield a file itself, or the files below a folder in the order of their names, without hidden ones."""
    if not root.is_dir():
        yield root
    for parent, folders, names in os.walk(root):  # does not follow links to folders
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(parent) / name for name in sorted(names) if not name.startswith("."))


def _read_bytes(path: Path, name: str) -> bytes:
    """Return the content of a regular file.

    Raises `ApiSpecError` for a link, which may lead out of the folder, and for a file that is too large or unreadable.
    """
    try:
        if path.is_symlink():
            raise ApiSpecError(name, "it is a link", hint="copy the file into the folder")
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ApiSpecError(name, "it is not a regular file")
        if status.st_size > MAX_FILE_SIZE:
            raise ApiSpecError(name, f"it has {status.st_size} bytes, more than {MAX_FILE_SIZE}", hint="split it")
        with path.open("rb") as file:
            return file.read(MAX_FILE_SIZE)
    except OSError as error:
        raise ApiSpecError(name, f"cannot be read: {error.strerror}") from None


def _read_file(
    path: Path, data: bytes, name: str, readers: Sequence[SpecReader], problems: list[ApiSpecError]
) -> Sequence[Tool]:
    """Return the tools of a file, and add a problem for each entry that cannot be read.

    Files with other suffixes have none, unless a reader accepts them. Raises `ApiSpecError` if the whole file is
    invalid.
    """
    try:
        for reader in readers:
            tools = reader(path, data)
            if tools is not None:
                return tuple(tools)
        suffix = path.suffix.lower()
        if suffix == ".jsonl":
            return list(_read_entries(_parse_lines(data, name, problems), name, problems))
        return _read_document(_parse_document(data), name, problems) if suffix == ".json" else ()
    except ApiSpecError:
        raise
    except ToolwireError as error:
        raise ApiSpecError(name, error.message, pointer=error.pointer, hint=error.hint) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise ApiSpecError(name, f"not JSON: {error}") from None


def _parse_document(data: bytes) -> JSON:
    """Parse JSON, also with errors that have only one correction, such as a comma after the last item."""
    try:
        return parse(data)
    except ProtocolError:
        if len(data) > _MAX_REPAIRED:
            raise
        return repair_json(data.decode()).value


def _parse_lines(data: bytes, name: str, problems: list[ApiSpecError]) -> Iterator[tuple[int, JSON]]:
    for number, line in enumerate(data.split(b"\n")):
        if line.strip():
            try:
                yield number, parse(line)
            except ProtocolError as error:
                problems.append(ApiSpecError(name, error.message, pointer=f"/{number}"))


def _read_document(document: JSON, name: str, problems: list[ApiSpecError]) -> Sequence[Tool]:
    tools = _read_wire_tools(document)
    if tools is not None:
        return tools
    entries = document if type(document) is list else [document]
    if not any(map(is_spec, entries)):
        raise ApiSpecError(name, "contains no API specs", hint=_HINT)
    return list(_read_entries(enumerate(entries), name, problems))


def _read_entries(entries: Iterable[tuple[int, JSON]], name: str, problems: list[ApiSpecError]) -> Iterator[Tool]:
    """Yield the tools of numbered entries, and add a problem for each entry that is not a specification."""
    for number, entry in entries:
        try:
            if is_spec(entry):
                yield spec_tool(entry)
            elif (tools := _read_wire_tools(entry)) is not None:
                yield from tools
            else:
                problems.append(ApiSpecError(name, "not an API spec", pointer=f"/{number}", hint=_HINT))
        except ToolwireError as error:
            problems.append(ApiSpecError(name, error.message, pointer=f"/{number}{error.pointer}", hint=error.hint))


def _read_wire_tools(document: JSON) -> Sequence[Tool] | None:
    """Return the tools of a tool list or a request of any wire; None for another document."""
    try:
        detected = detect(document)
    except ProtocolError:
        return None
    body: Any = document
    if detected.kind == "request" and detected.wire != mcp.NAME:
        return get(detected.wire).decode_request(body).tools
    if detected.kind != "tools":
        return None
    if detected.wire == mcp.NAME:
        return mcp.list_tools([body] if type(body) is dict and "inputSchema" in body else body)
    return get(detected.wire).decode_tools(body.get("tools", [body]) if type(body) is dict else body)


def _make_unique(tools: Iterable[Tool]) -> Iterator[Tool]:
    """Add a number to names that repeat."""
    seen: dict[str, int] = {}
    for tool in tools:
        count = seen[tool.name] = seen.get(tool.name, 0) + 1
        yield tool if count == 1 else replace(tool, name=f"{tool.name}_{count}")
