"""`toolwire` in a process on a pseudo-terminal, as a person uses it: type, wait for text, press Ctrl-C."""

import asyncio
import fcntl
import os
import re
import sys
import termios
from codecs import getincrementaldecoder
from contextlib import asynccontextmanager, suppress

from waiting import SAFETY
from warm_command import WARM

CTRL_C, CTRL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"
PLAIN = {"NO_COLOR": "1", "TERM": "xterm"}
PASTE = "\x1b[200~{}\x1b[201~"


class Terminal:
    """A process and the terminal that it uses. `written` is all of its output."""

    def __init__(self, process, descriptor):
        self.process = process
        self.written = ""
        self._descriptor = descriptor
        self._seen = 0
        self._changed = asyncio.Event()
        self._decoder = getincrementaldecoder("utf-8")("replace")
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self):
        try:
            piece = os.read(self._descriptor, 65536)
        except OSError:  # how Linux reports that the other side is closed
            piece = b""
        if not piece:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self.written += self._decoder.decode(piece)
        self._changed.set()

    def type(self, text):
        os.write(self._descriptor, text.encode())

    def typed_bytes(self):
        """Return the size of the lines that were typed and not read yet, whether they are echoed or not."""
        descriptor = os.open(f"/proc/{self.process.pid}/fd/0", os.O_RDONLY | os.O_NOCTTY)
        try:
            return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
        finally:
            os.close(descriptor)

    async def enter(self, text):
        """Type a line once the prompt is there."""
        await self.expect("> ")
        self.type(f"{text}\n")

    async def expect(self, text):
        """Wait for text after everything that was expected before; return the output up to its end."""
        try:
            async with asyncio.timeout(SAFETY):
                while (at := self.written.find(text, self._seen)) < 0:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} is not in {self.written[self._seen :]!r}") from None
        shown = self.written[self._seen : at + len(text)]
        self._seen = at + len(text)
        return shown

    async def press_until(self, key, text):
        """Press a key until the text appears: readline misses a signal that arrives before it waits for a key."""
        async with asyncio.timeout(SAFETY):
            while text not in self.written[self._seen :]:
                self.type(key)
                with suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        while text not in self.written[self._seen :]:
                            self._changed.clear()
                            await self._changed.wait()
        await self.expect(text)

    async def leave(self):
        """Press Ctrl-D at the prompt; return the exit code."""
        await self.expect("> ")
        self.type(CTRL_D)
        async with asyncio.timeout(SAFETY):
            return await self.process.wait()


@asynccontextmanager
async def on_terminal(tmp_path, *arguments, env=PLAIN):
    """Start `toolwire` on a terminal of its own; end it with the block."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (50, 200))
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "INPUTRC": "/dev/null"}
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    process = await asyncio.create_subprocess_exec(
        *WARM,
        *arguments,
        env={**inherited, **state, **env},
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=lambda: os.login_tty(0),  # so that Ctrl-C reaches the process, which forwards it to the command
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        yield terminal
    finally:
        asyncio.get_running_loop().remove_reader(ours)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)


def without_styles(text):
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)
