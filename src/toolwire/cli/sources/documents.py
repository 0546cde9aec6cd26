"""Read tools and requests from JSON documents and recordings: tool lists, requests, JSON Lines, HAR files, traces."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError, ProtocolError
from ..terminal.output import print_note

if TYPE_CHECKING:
    from ...audit.findings import SourceLocation
    from ...audit.request_rules import LoggedRequest
    from ...ir.tools import Tool


_LOGS = (".jsonl", ".ndjson", ".log")
_REQUEST_KEYS = ("request", "body", "payload", "json", "postData", "text")
# objects around a request; a HAR entry has three (request, postData, text). Deeper search only costs time
_MAX_DEPTH = 4


class ToolDocuments:
    """The tools and requests of documents, each with its location."""

    def __init__(self) -> None:
        self.listed: list[Tool] = []  # tools outside of requests
        self.locations: list[SourceLocation] = []  # of `listed`, in the same order
        self.requests: list[LoggedRequest] = []
        self.notes: list[str] = []  # input that was not read, for the user

    def add_file(self, file: str, data: bytes) -> None:
        """Add a recording, or one JSON document. Raise ConfigError if it has neither tools nor a request."""
        if is_recording(file, data):
            self._add_recording(file, data)
        else:
            self.add_document(file, parse_file(file, data))

    def add_document(self, file: str, document: Any) -> None:
        """Add the tools or the request of a document. Raise ConfigError if it has neither."""
        from ...audit.findings import SourceLocation

        if not self._add_item(SourceLocation(file), document):
            raise ConfigError(f"{file} contains neither tools nor a request", hint="give a list of tools or a request")

    def add_tools(self, location: SourceLocation, tools: Sequence[Tool]) -> None:
        self.listed += tools
        self.locations += [location] * len(tools)

    def tools(self) -> tuple[Tool, ...]:
        """Return each tool once, even if several requests declare it."""
        import msgspec

        declared = (tool for recorded in self.requests for tool in recorded.request.tools)
        requested = {msgspec.json.encode(tool): tool for tool in declared}
        return (*self.listed, *requested.values())

    def tool_lists(self) -> list[Sequence[Tool]]:
        """Return the tools that are declared together: those outside of requests, and each distinct list of a request."""
        import msgspec

        lists = {msgspec.json.encode(recorded.request.tools): recorded.request.tools for recorded in self.requests}
        return [self.listed, *lists.values()]

    def _add_recording(self, file: str, data: bytes) -> None:
        """Add the tools of a HAR file or a file of JSON Lines; each has its entry or line as location."""
        from ...audit.findings import SourceLocation

        if (entries := har_entries(file, data)) is not None:
            rows = [
                (index, SourceLocation(file, 0, f"/log/entries/{index}"), entry) for index, entry in enumerate(entries)
            ]
            self._add_rows(file, "entries", rows)
            return
        lines = enumerate(data.split(b"\n"), 1)
        self._add_rows(
            file, "lines", [(number, SourceLocation(file, number), line) for number, line in lines if line.strip()]
        )

    def _add_rows(self, file: str, what: str, rows: Sequence[tuple[int, SourceLocation, Any]]) -> None:
        """Add the tools and requests of a log; rows without either become a note.

        Raises `ConfigError` for a log without any. `what` names the rows in the note.
        """
        skipped: list[str] = []
        for number, location, document in rows:
            try:
                taken = self._add_item(location, document)
            except ProtocolError:  # a truncated line, or other output of a program
                taken = False
            if not taken:
                skipped.append(str(number))
        if len(skipped) == len(rows):
            hint = "give one request per line, bare or under `request` or `body`"
            raise ConfigError(f"{file} contains no requests", hint=hint)
        if skipped:
            some = ", ".join(skipped[:5]) + (", …" if len(skipped) > 5 else "")
            self.notes.append(f"{file}: {len(skipped)} {what} are neither tools nor requests: {some}")

    def _add_item(self, location: SourceLocation, document: Any, depth: int = 0) -> bool:
        """Add the tools or the request of a document, or of a document inside it; return False if there are none.

        Raises `ProtocolError` for an invalid request or declaration.
        """
        from ...audit.request_rules import LoggedRequest
        from ...bridge.translation.detection import detect
        from ...wire import get

        if type(document) in (bytes, str):
            document = _parse(document) if document.strip()[:1] in (b"{", "{") else None
        try:
            detected = detect(document)
        except ProtocolError:
            return self._add_inside(location, document, depth)
        if detected.kind == "request":
            wire = get(detected.wire)
            self.requests.append(LoggedRequest(location, wire.decode_request(document), wire, document))
        elif detected.kind != "tools":
            return self._add_inside(location, document, depth)
        else:
            self.add_tools(location, decode_declarations(detected.wire, document))
        return True

    def _add_inside(self, location: SourceLocation, document: Any, depth: int) -> bool:
        """Search for a request under the keys that logs commonly use (`_REQUEST_KEYS`), down to `_MAX_DEPTH`."""
        if type(document) is not dict or depth >= _MAX_DEPTH:
            return False
        inside = [(key, document[key]) for key in _REQUEST_KEYS if type(document.get(key)) in (dict, str)]
        return any(self._add_item(location._replace(at=f"{location.at}/{key}"), one, depth + 1) for key, one in inside)


def decode_declarations(wire: str, document: Any) -> Sequence[Tool]:
    """Return the tools of a list of a wire or MCP, or a single one. Raise `ProtocolError` or `SchemaError` if invalid."""
    from ...wire import get, mcp

    if wire == mcp.NAME:
        return mcp.list_tools([document] if "inputSchema" in document else document)
    return get(wire).decode_tools(document.get("tools", [document]) if type(document) is dict else document)


def is_recording(file: str, data: bytes) -> bool:
    """Return True for a log, by its name or its content, and for a HAR file."""
    return file.endswith(_LOGS) or _has_document_per_line(data) or har_entries(file, data) is not None


def har_entries(file: str, data: bytes) -> list[Any] | None:
    """Return the entries of a HAR file, as browsers and proxies record it; None for any other file."""
    if b'"entries"' not in data:
        return None
    try:
        document = parse_file(file, data)
    except ProtocolError:
        return None
    log = document.get("log") if type(document) is dict else None
    entries = log.get("entries") if type(log) is dict else None
    return entries if type(entries) is list else None


def parse_file(file: str, data: bytes) -> Any:
    """Parse JSON strictly; an error names the file."""
    try:
        return _parse(data)
    except ProtocolError as error:
        raise name_file(file, error) from None


def name_file(file: str, error: ProtocolError) -> ProtocolError:
    """Put the name of the file that has the problem before the message of an error, and return the error."""
    name = "standard input" if file == "-" else file
    error.message = f"{name} is {error.message}" if error.message.startswith("not ") else f"{name}: {error.message}"
    return error


def read_bytes(file: str) -> bytes:
    """Read a file, or standard input for `-`. Raise ConfigError if it cannot be read."""
    if file == "-" and sys.stdin.isatty():  # a silent wait looks like a hang
        print_note("reading from the terminal; Ctrl-D ends the input", None)
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error


def replace_file(file: str | Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Replace a file in one step: a reader, an interrupt or a full disk gets or leaves either the old or the new content.

    It keeps its mode; a new file gets `mode` without the bits of the umask. A link stays a link, and a device or pipe is
    written directly. Raises `ConfigError` if it cannot be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    path = Path(os.path.realpath(file))
    new = path.parent / f".{path.name[:50]}-{secrets.token_hex(8)}"  # short: a name has at most 255 bytes
    try:
        before = Path(file).stat() if Path(file).exists() else None
        if before is not None and not (stat.S_ISREG(before.st_mode) and path.exists()):
            Path(file).write_bytes(data)
            return
        if before is not None and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(new, flags, mode if before is None else 0o600), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        if before is not None:
            new.chmod(before.st_mode & 0o777)
        try:
            new.replace(path)
        except OSError as error:
            if before is None or error.errno != errno.EBUSY:
                raise
            _overwrite(path, data)  # a mount point, such as a single file in a container
            new.unlink()
    except BaseException as error:
        with suppress(OSError):
            new.unlink()
        if isinstance(error, OSError):
            raise ConfigError(f"cannot write {file}: {error.strerror}") from None
        raise


def _overwrite(path: Path, data: bytes) -> None:
    """Write a file in place. Write the old content again if that fails."""
    old = path.read_bytes()
    try:
        path.write_bytes(data)
    except BaseException:
        path.write_bytes(old)
        raise


def _has_document_per_line(data: bytes) -> bool:
    first, _, rest = data.strip().partition(b"\n")
    if not first.startswith(b"{") or not rest.lstrip().startswith(b"{"):
        return False
    try:
        return type(_parse(first)) is dict
    except ProtocolError:
        return False


def _parse(data: bytes | str) -> Any:
    from ...stream.strict import parse

    return parse(data)
