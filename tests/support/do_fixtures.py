"""Commands of the fixture pages, and the requests of the vectors."""

import argparse
import getpass
import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from places import TESTS
from toolwire.cli.do.candidates import Candidates
from toolwire.retrieve.commands.catalogue import Catalogue, Roots
from toolwire.retrieve.commands.command import find_system_program
from toolwire.retrieve.commands.command_index import CommandIndex
from toolwire.retrieve.commands.machine import render_page

if find_system_program("man") is None:
    pytest.skip("the program man is not installed", allow_module_level=True)

CACHE = Path(tempfile.gettempdir(), f"toolwire-tests-{getpass.getuser()}")
VECTORS = TESTS / "vectors" / "do"
REQUESTS = json.loads((VECTORS / "requests.json").read_text())
HOSTILE = json.loads((VECTORS / "hostile.json").read_text())
SUBCOMMANDS = ("git-", "docker-")


def find_fixture_program(name):
    return None if name.startswith(SUBCOMMANDS) else f"/usr/bin/{name}"


def load_fixture_commands(*folders):
    """Return the commands of the fixture pages, and of other folders with man pages.

    They are cached for all processes of the tests: `man` takes 2 seconds for them.
    """
    roots = Roots((str(VECTORS / "man"), *map(str, folders)))
    catalogue = Catalogue(roots, cache=None if folders else CACHE / "fixtures", find_program=find_fixture_program)
    return [one for found in catalogue.read(catalogue.load()) for one in found]


def render(source):
    """Return the text of a page, as `man` shows it."""
    data = source if isinstance(source, bytes) else source.encode()
    return render_page(find_system_program("man"), data)


def make_candidates(commands, reader=None):
    return Candidates(CommandIndex(commands, reader=reader), [], None)


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
