"""Functions that worker processes compute in tests. Processes import them, so they are in a module of their own."""

import hashlib
import os
import signal
import time
from pathlib import Path


def square(item):
    return b"%d" % (item * item)


def digest(item):
    """Return some kilobytes that depend on the item only."""
    return b"".join(hashlib.sha256(f"{item} {block}".encode()).digest() for block in range(100))


def return_text(item):
    return str(item)


def stop_all(item):
    from toolwire.ir.errors import ConfigError

    raise ConfigError("there is no model", hint="give one")


class DoomedWork:
    """Computes `digest`, but ends its process or fails at some items: once, or always."""

    def __init__(self, folder, *, killed_once=(), killed=(), failing=()):
        self.folder = str(folder)
        self.killed_once = frozenset(killed_once)
        self.killed = frozenset(killed)
        self.failing = frozenset(failing)

    def __call__(self, item):
        with Path(self.folder, "log").open("ab", buffering=0) as log:
            log.write(b"%d\n" % item)
        if item in self.killed or (item in self.killed_once and self.is_first(item)):
            os.kill(os.getpid(), signal.SIGKILL)
        if item in self.failing:
            raise ValueError(f"no answer to {item}")
        return digest(item)

    def is_first(self, item):
        try:
            Path(self.folder, f"first-{item}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def tries(self):
        return Path(self.folder, "log").read_text().split()


class WaitingWork:
    """Computes `square`, but waits at items until a file exists."""

    def __init__(self, folder, waiting=()):
        self.folder = str(folder)
        self.waiting = frozenset(waiting)

    def __call__(self, item):
        if item in self.waiting:
            Path(self.folder, f"pid-{os.getpid()}").touch()
            while not Path(self.folder, "go").exists():
                time.sleep(0.01)
        return square(item)


class UnloadableWork:
    """Cannot be loaded by another process."""

    def __reduce__(self):
        return int, ("no number",)

    def __call__(self, item):
        return b""


class EndAtLoad:
    """Ends the process that loads it."""

    def __reduce__(self):
        return os._exit, (7,)

    def __call__(self, item):
        return b""
