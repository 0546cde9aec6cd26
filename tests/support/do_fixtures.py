"""Commands of the fixture pages, and the requests of the vectors."""

import argparse
import json
import sys
from contextlib import contextmanager

from places import TESTS
from toolwire.cli.do.candidates import Candidates
from toolwire.retrieve.commands.catalogue import Catalogue, Roots
from toolwire.retrieve.commands.command_index import CommandIndex

VECTORS = TESTS / "vectors" / "do"
REQUESTS = json.loads((VECTORS / "requests.json").read_text())
HOSTILE = json.loads((VECTORS / "hostile.json").read_text())
SUBCOMMANDS = ("git-", "docker-")


def find_fixture_program(name):
    return None if name.startswith(SUBCOMMANDS) else f"/usr/bin/{name}"


def load_fixture_commands(*folders, cache=None):
    """Return the commands of the fixture pages, and of other folders with man pages."""
    roots = Roots((str(VECTORS / "man"), *map(str, folders)))
    return Catalogue(roots, cache=cache, find_program=find_fixture_program).load()


def make_candidates(commands):
    return Candidates(CommandIndex(commands), [], None)


def make_arguments(**given):
    defaults = {"model": "scripted", "base_url": None, "k": 6, "yes": False, "dry_run": False, "json": True}
    return argparse.Namespace(**defaults | given)


class StartedPrograms:
    """The programs that this process starts, by Python's audit events. Programs of the test itself are not recorded."""

    _EVENTS = ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty", "os.system", "os.startfile")

    def __init__(self):
        self.found = None
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        if self.found is None or event not in self._EVENTS:
            return
        if event == "os.posix_spawn" and self.found[-1:] == [("subprocess.Popen", arguments[:2])]:
            return  # the same start: `subprocess` uses `posix_spawn` in Python 3.13
        self.found.append((event, arguments[:2]))

    @contextmanager
    def recorded(self):
        self.found = found = []
        try:
            yield found
        finally:
            self.found = None
