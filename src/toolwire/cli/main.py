"""`toolwire`: parse the arguments, run the command, turn errors into one line and an exit code.

0  done        1  done, but a check failed (lossy under --strict)        2  wrong usage or unreadable input
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..ir.errors import ToolwireError
from ..ir.terminal import neutralise_line
from . import audit, chat, convert, demo, formats, mcp, parse, run, runs, serve, tools, trace
from .log_lines import neutralise_default_log

__all__ = ["main"]

_COMMANDS = (demo, convert, parse, run, runs, chat, tools, mcp, serve, trace, formats, audit)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="toolwire",
        description="Write a tool once; call it from any model, over any wire.",
        epilog="toolwire COMMAND --help shows examples.",
    )
    parser.add_argument("--version", action="version", version=f"toolwire {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, io.StringIO())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # do not fail on a character that the terminal cannot encode
            stream.reconfigure(errors="backslashreplace")
    neutralise_default_log()
    chosen = parser.parse_args(arguments)
    try:
        code = int(chosen.run(chosen))
        sys.stdout.flush()
        return code
    except ToolwireError as error:
        print(f"toolwire: {neutralise_line(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _discard_stdout()  # the reader closed the pipe, for example `head`
        return 0
    except OSError as error:
        _discard_stdout()
        print(f"toolwire: cannot write: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _discard_stdout() -> None:
    """Redirect standard output, so that the interpreter does not fail when it flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
