"""`toolwire completion`: print the script that completes commands, options and values in a shell."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from ..ir.errors import MissingExtra

__all__ = ["add_to", "complete"]

_EXAMPLES = """\
examples:
  eval "$(toolwire completion bash)"                                  in ~/.bashrc
  eval "$(toolwire completion zsh)"                                   in ~/.zshrc, after compinit
  toolwire completion fish > ~/.config/fish/completions/toolwire.fish
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        help="print the script for completion in your shell",
        description="Print the script that completes commands, options and their values in your shell.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "powershell"), help="your shell")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script of argcomplete, which calls `toolwire` for the candidates."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise MissingExtra("completion requires argcomplete", hint="pip install argcomplete") from None
    sys.stdout.write(shellcode(["toolwire"], shell=arguments.shell))
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a request of the shell for candidates and exit; do nothing if `toolwire` was not called by its script."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete

    for action in _actions(parser):
        placeholder = action.dest.upper() if action.metavar is None else action.metavar
        values = _VALUES.get(str(placeholder))
        if values is not None and action.choices is None:
            action.completer = values  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the actions of a parser and of the parsers of its commands."""
    found: list[argparse.Action] = []
    for action in parser._actions:
        found.append(action)
        for nested in (action.choices or {}).values() if isinstance(action, argparse._SubParsersAction) else ():
            found += _actions(nested)
    return found


def _model_names(**_: Any) -> list[str]:
    from ..wire.models import vendors

    return [*(f"{name}/" for name in vendors.names() if name != "local"), "local/smollm2"]


def _wire_names(**_: Any) -> list[str]:
    from ..wire import mcp, names

    return [*names(), mcp.NAME, "all"]


def _format_names(**_: Any) -> list[str]:
    from ..text import names

    return list(names())


def _provider_names(**_: Any) -> list[str]:
    from ..wire.models import vendors

    return vendors.names()


# values by the placeholder of an option or argument in the help; files are completed by the shell
_VALUES = {"WIRE": _wire_names, "PROVIDER": _provider_names, "FORMAT": _format_names, "MODEL": _model_names}
