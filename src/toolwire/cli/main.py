"""`toolwire`: parse the arguments, run the command, turn errors into one line and an exit code.

0  done        1  done, but what was asked for does not hold (lossy under --strict)        2  wrong usage or unreadable input
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..ir.errors import ToolwireError
from . import convert, demo, formats

__all__ = ["main"]

_COMMANDS = (demo, convert, formats)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; gives its exit code."""
    parser = argparse.ArgumentParser(
        prog="toolwire",
        description="Write a tool once; call it from any model, over any wire.",
        epilog="toolwire COMMAND --help shows examples.",
    )
    parser.add_argument("--version", action="version", version=f"toolwire {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except ToolwireError as error:
        print(f"toolwire: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # the reader has seen enough; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
