"""Get a key from a command, such as `gcloud auth print-access-token`, and cache it until it expires.

    command = KeyCommand(("gcloud", "auth", "print-access-token"))
    await command.key()

The command is an argument vector and is never passed to a shell. It prints the key as text, or a JSON object with the
key (`token`, `access_token`, `accessToken` or `key`) and the time that it expires (`expires_in`, `expires_at`,
`expires_on`, `expiry` or `expiration`). Requests that need the key at the same time share one run. The key is never
logged and never part of an error.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import isfinite
from pathlib import PurePath
from typing import NamedTuple

from ...ir.errors import ConfigError, ProtocolError, ToolwireError
from ...ir.pointer import JSON, Object
from ...ir.terminal import neutralise_line
from ...stream.strict import parse_object
from ..http.head import is_header_value

_MAX_OUTPUT = 64 * 1024  # bytes; a key is a header
_MAX_STDERR = 4 * 1024  # bytes that are read; only the beginning is shown
_SHOWN_STDERR = 300  # characters of standard error in a message: two or three lines
# Seconds before its expiry that a key is not used any more: clocks differ, and a request may wait for a connection.
_MARGIN = 60.0
# Seconds for the end of a command that was killed; only a process in an uninterruptible system call takes longer.
_KILL_TIMEOUT = 5.0
# Seconds after a failure before the command runs again, so that not every request starts a process.
_FAILURE_PAUSE = 5.0
_KEY_FIELDS = ("token", "access_token", "accessToken", "key")
_EXPIRY_FIELDS = ("expires_at", "expires_on", "expiry", "expiration")
_HINT = "run the command in a shell as the same user, and check that it prints only the key"


class KeyCommandError(ToolwireError):
    """A key command failed."""

    default_status = 502


class _TimedKey(NamedTuple):
    key: str
    seconds: float | None  # until it expires; None if the command does not report it


class KeyCommand:
    """A command that prints a key. `timeout` and `ttl` are seconds; `ttl` applies to keys without an expiry.

    `on_key` is called with every new key, for redaction.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        timeout: float = 10.0,  # seconds; a command that asks a metadata server or a vault needs about one
        ttl: float = 300.0,  # seconds; tokens of clouds live for an hour, and may be replaced before
        clock: Callable[[], float] = time.monotonic,
        on_key: Callable[[str], None] | None = None,
    ) -> None:
        """Raise ConfigError if the arguments are no list of texts, or a time is not positive and finite."""
        self._arguments = _check_arguments(arguments)
        if not 0 < timeout < float("inf") or not 0 < ttl < float("inf"):
            raise ConfigError(f"key_timeout and key_ttl must be positive and finite, got {timeout} and {ttl}")
        self._timeout = timeout
        self._ttl = ttl
        self._clock = clock
        self._on_key = on_key
        self._cached: str | None = None
        self._cached_until = 0.0
        self._failure: KeyCommandError | None = None
        self._failed_until = 0.0
        self._run: asyncio.Task[str] | None = None
        self.latest: str | None = None
        """The latest key, also after `drop`, so that it can be removed from error messages."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return self._arguments

    @property
    def timeout(self) -> float:
        """Seconds for the command."""
        return self._timeout

    @property
    def program(self) -> str:
        return program_name(self._arguments)

    def __repr__(self) -> str:
        return f"KeyCommand({self.program!r})"

    def check(self, environment: Mapping[str, str]) -> None:
        """Raise ConfigError if the program does not exist."""
        if shutil.which(self._arguments[0], path=environment.get("PATH")) is None:
            hint = "install it, or write its absolute path"
            raise ConfigError(f"key_command: cannot find the program {self._arguments[0]!r}", hint=hint)

    async def key(self) -> str:
        """Return the cached key, or run the command, once for concurrent calls.

        Raise KeyCommandError if that fails, or has failed in the last seconds.
        """
        now = self._clock()
        if self._cached is not None and now < self._cached_until:
            return self._cached
        if self._failure is not None and now < self._failed_until:
            raise KeyCommandError(self._failure.message, hint=self._failure.hint)
        run = self._run
        if run is None or run.done() or run.get_loop() is not asyncio.get_running_loop():
            run = self._run = asyncio.create_task(self._refresh())
            run.add_done_callback(_retrieve_exception)
        return await asyncio.shield(run)  # a request that is cancelled does not take the key from the others

    def drop(self, key: str) -> None:
        """Forget `key`, which a server has refused, unless it has been replaced already."""
        if self._cached == key:
            self._cached = None

    async def _refresh(self) -> str:
        """Run the command, cache its key, pass it to `on_key`, and return it.

        Raise KeyCommandError if that fails, and cache the failure for a short time.
        """
        try:
            output = await run_key_command(self._arguments, self._timeout)
            timed_key = _parse_output(output, self.program)
        except KeyCommandError as error:
            self._failure, self._failed_until = error, self._clock() + _FAILURE_PAUSE
            raise
        seconds = self._ttl
        if timed_key.seconds is not None:
            seconds = timed_key.seconds - min(_MARGIN, timed_key.seconds / 5)
        self._failure = None
        self._cached, self._cached_until = timed_key.key, self._clock() + seconds
        self.latest = timed_key.key
        if self._on_key is not None:
            self._on_key(timed_key.key)
        return timed_key.key


async def run_key_command(arguments: Sequence[str], seconds: float) -> bytes:
    """Run a command, and return its output. It leads a process group, so that a timeout ends its children, too.

    Raise KeyCommandError if it cannot start, fails or takes too long.
    """
    program = program_name(arguments)
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise KeyCommandError(f"cannot start the key command {program!r}: {reason}", hint=_HINT) from None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(seconds):
            output, stderr = await asyncio.gather(
                _read_start(process.stdout, _MAX_OUTPUT + 1), _read_start(process.stderr, _MAX_STDERR)
            )
            status = await process.wait()
    except BaseException as error:
        await _kill(process)
        if not isinstance(error, TimeoutError):
            raise
        message = f"the key command {program!r} did not end in {seconds:g} s"
        raise KeyCommandError(message, hint="raise key_timeout, or use a faster command") from None
    if status != 0:
        reason = _describe_stderr(stderr, output)
        raise KeyCommandError(f"the key command {program!r} failed with status {status}{reason}", hint=_HINT)
    if len(output) > _MAX_OUTPUT:
        raise KeyCommandError(f"the key command {program!r} printed more than {_MAX_OUTPUT} bytes", hint=_HINT)
    return output


def program_name(arguments: Sequence[str]) -> str:
    """Return the name of a command's program, without its arguments, which may contain secrets."""
    return neutralise_line(PurePath(arguments[0]).name)


def _check_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments. Raise ConfigError unless they are a list of texts; a string would need a shell."""
    if isinstance(arguments, str):
        hint = 'write a list, such as key_command = ["gcloud", "auth", "print-access-token"]'
        raise ConfigError("key_command must be a list of arguments, not a string", hint=hint)
    items: Sequence[object] = arguments
    if not items or not items[0] or not all(isinstance(item, str) and "\0" not in item for item in items):
        hint = 'such as key_command = ["gcloud", "auth", "print-access-token"]'
        raise ConfigError("key_command must be a list of texts that begins with a program", hint=hint)
    return tuple(arguments)


def _retrieve_exception(run: asyncio.Task[str]) -> None:
    if not run.cancelled():
        run.exception()  # else asyncio reports it if every waiting request was cancelled


async def _read_start(stream: asyncio.StreamReader, limit: int) -> bytes:
    """Return the first `limit` bytes of a stream; discard the rest, so that the process is not blocked."""
    start = bytearray()
    while data := await stream.read(4096):
        start += data[: limit - len(start)]
    return bytes(start)


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process group: a child of the command may still have the pipes open.

    The pipes are closed, because asyncio waits for the end of their data, and nothing reads it any more. asyncio has no
    public method for it. Closing the whole transport would poll the process, and asyncio could lose its status.
    """
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    for descriptor in (1, 2):
        pipe = process._transport.get_pipe_transport(descriptor)  # type: ignore[attr-defined]
        if pipe is not None:
            pipe.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_KILL_TIMEOUT):
            await process.wait()


def _parse_output(output: bytes, program: str) -> _TimedKey:
    """Read a key as text, or as JSON with an expiry.

    Raise KeyCommandError, which does not show the output, if there is no key, or if it is invalid or expired.
    """
    text = output.decode("utf-8", "replace").strip()
    if not text:
        raise KeyCommandError(f"the key command {program!r} printed nothing", hint=_HINT)
    seconds = None
    if text.startswith("{"):
        document = _parse_document(text, program)
        key = next((document[name] for name in _KEY_FIELDS if isinstance(document.get(name), str)), "")
        text, seconds = str(key).strip(), _seconds_left(document)
        if seconds is not None and seconds <= 0:
            raise KeyCommandError(f"the key command {program!r} printed a key that has expired", hint=_HINT)
    if not is_header_value(text):
        problem = "no key, or a key with characters that are not allowed in a header"
        raise KeyCommandError(f"the key command {program!r} printed {problem}", hint=_HINT)
    return _TimedKey(text, seconds)


def _parse_document(text: str, program: str) -> Object:
    """Parse the JSON that a key command printed. Raise KeyCommandError if it is invalid."""
    try:
        return parse_object(text.encode())
    except ProtocolError:
        raise KeyCommandError(f"the key command {program!r} printed invalid JSON", hint=_HINT) from None


def _seconds_left(document: Object) -> float | None:
    """Return the seconds until the key expires, or None if that is not reported.

    The expiry is relative, or a time as Unix seconds or in ISO 8601 with its zone.
    """
    relative = _number(document.get("expires_in"))
    if relative is not None:
        return relative
    for name in _EXPIRY_FIELDS:
        value = document.get(name)
        moment = _number(value)
        if moment is None and isinstance(value, str):
            with suppress(ValueError):
                parsed = datetime.fromisoformat(value)
                moment = parsed.timestamp() if parsed.tzinfo is not None else None
        if moment is not None:
            return moment - time.time()
    return None


def _number(value: JSON) -> float | None:
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except ValueError:
        return None
    return number if number is not None and isfinite(number) else None


def _describe_stderr(stderr: bytes, output: bytes) -> str:
    """Return `: ` and the end of standard error, without anything that was printed as the key; "" if it is empty."""
    text = stderr.decode("utf-8", "replace").strip()
    for secret in sorted(output.decode("utf-8", "replace").split(), key=len, reverse=True):
        text = text.replace(secret, "[key]")
    shown = neutralise_line(text[-_SHOWN_STDERR:])
    return f": {shown}" if shown else ""
