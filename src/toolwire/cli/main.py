"""`toolwire`: parse or complete the arguments, run the command, turn errors into one line and an exit code.

0  done        1  done, but a check failed (lossy under --strict)        2  wrong usage or unreadable input
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from typing import Any, NoReturn

from .. import __version__
from ..ir.errors import MissingExtra, ToolwireError
from ..ir.hints import translate_hint
from .terminal.layout import wrap_text
from .terminal.options import add_command
from .terminal.output import command_lines, neutralise_default_log, paint, print_error, terminal_width

# `toolwire completion`: print the script that completes commands, options and values in a shell.


_COMPLETION_HELP = """\
Print the script that completes commands, options and their values in your shell.

examples:
  eval "$(toolwire completion bash)"                                  in ~/.bashrc
  eval "$(toolwire completion zsh)"                                   in ~/.zshrc, after compinit
  toolwire completion fish > ~/.config/fish/completions/toolwire.fish
"""


def add_to(commands: Any) -> None:
    parser = add_command(
        commands, "completion", "print the script for completion in your shell", _COMPLETION_HELP, print_script
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "powershell"), help="your shell")


def print_script(arguments: argparse.Namespace) -> int:
    """Print the script of argcomplete, which calls `toolwire` for the candidates.

    Raise MissingExtra without argcomplete.
    """
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


# Only the module of the given command is imported. The help has the same groups.
_GROUPS = {
    "start": {
        "demo": "toolwire.cli.demo",
        "doctor": "toolwire.cli.doctor",
        "completion": "toolwire.cli.main",
    },
    "run": {
        "with": "toolwire.cli.wrapped.command",
        "run": "toolwire.cli.agent.run",
        "chat": "toolwire.cli.agent.chat",
        "do": "toolwire.cli.do.command",
        "runs": "toolwire.cli.agent.runs",
        "worker": "toolwire.cli.agent.worker",
    },
    "translate": {
        "convert": "toolwire.cli.convert",
        "parse": "toolwire.cli.parse",
        "console": "toolwire.cli.console",
        "formats": "toolwire.cli.formats",
        "models": "toolwire.cli.models",
    },
    "tools": {
        "tools": "toolwire.cli.tools.command",
        "audit": "toolwire.cli.audit",
        "test": "toolwire.cli.test",
        "mcp": "toolwire.cli.mcp.command",
    },
    "operate": {
        "serve": "toolwire.cli.serve.command",
        "trace": "toolwire.cli.trace.command",
        "learn": "toolwire.cli.learn.command",
    },
}
_COMMANDS = {name: module for group in _GROUPS.values() for name, module in group.items()}
_ABOUT = "Write a tool once; call it from any model, over any wire."
_MORE = "toolwire --help shows examples, toolwire COMMAND --help a command."
_EXAMPLES = {
    "toolwire demo": "a short tour: offline, no key",
    "toolwire with -m openai/gpt-5.6 -- claude": "Claude Code on another model",
    'toolwire run "Weather in Paris?" -t tools.py -m openai/gpt-5.6': "a model that calls your functions",
    "toolwire convert request.json --to anthropic": "a request for another provider",
    "toolwire audit tools.py": "problems of your tools with each provider",
    "toolwire doctor": "check keys, extras and servers",
}
_MAX_HELP = 100  # columns; longer lines are hard to read
_INVALID_CHOICE = re.compile(
    r"argument (?P<name>[^:]*): invalid choice: '(?P<given>.*)' \(choose from (?P<known>[^()]*)\)"
)


class CommandParser(argparse.ArgumentParser):
    """A parser that suggests the nearest command or value for one that does not exist."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Keep the arguments for the messages of errors."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print one line, with the nearest name for a misspelt choice, and exit with 2."""
        match = _INVALID_CHOICE.fullmatch(message)
        if match is not None:
            known = [name.strip("'") for name in match["known"].split(", ")]
            close = get_close_matches(match["given"], known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"
            is_command = match["name"].isupper() or "|" in match["name"]
            what = "command" if is_command else f"value for {match['name']}"
            message = f"unknown {what} {match['given']!r} ({hint})"
            before = takewhile(lambda text: text != match["given"], self._given) if is_command else ()
            unknown = next((text for text in before if text.startswith("--") and not self._has_option(text)), None)
            if unknown is not None:  # the value of a misspelt option was read as a command
                message = self.describe_unknown(unknown)
        print_error(message, program=self.prog)
        self.exit(2, f"See {self.prog} --help.\n")

    def _has_option(self, text: str) -> bool:
        return any(name.startswith(text.partition("=")[0]) for name in self._option_string_actions)

    def describe_unknown(self, option: str) -> str:
        close = get_close_matches(option.partition("=")[0], list(self._option_string_actions), 1)
        return f"unknown option {option}" + (f" (did you mean {close[0]}?)" if close else "")


class _MainParser(CommandParser):
    """The parser of `toolwire` itself: its help lists the commands in groups."""

    def format_help(self) -> str:
        """Return the list of commands with examples and options."""
        width = min(terminal_width(), _MAX_HELP)
        lines = [
            f"usage: {self.prog} [-h] [--version] COMMAND ...",
            "",
            *self.list_commands(),
            "",
            paint("start here:", "bold"),
        ]
        for example, about in _EXAMPLES.items():
            lines += [f"  {part}" for part in (f"{paint('#', 'dim')} {paint(about, 'dim')}", *command_lines(example))]
        lines += ["", paint("options:", "bold"), "  -h, --help  show this help", "  --version   show the version"]
        return "\n".join(
            [*lines, "", *wrap_text("toolwire COMMAND --help shows the examples of a command.", width), ""]
        )

    def list_commands(self) -> list[str]:
        """Return the commands in their groups, each with a line, or more on a narrow terminal."""
        width = min(terminal_width(), _MAX_HELP)
        lists = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        abouts = {choice.dest: choice.help or "" for choice in lists[0]._choices_actions}
        left, right = max(map(len, _GROUPS)) + 2, max(map(len, _COMMANDS)) + 2
        lines = wrap_text(_ABOUT, width)
        for group, names in _GROUPS.items():
            for number, name in enumerate(names):
                title = paint((group if number == 0 else "").ljust(left), "bold")
                first, *others = wrap_text(abouts[name], width - left - right)
                lines.append(f"{title}{paint(name.ljust(right), 'cyan')}{first}")
                lines += [" " * (left + right) + other for other in others]
        return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 2 for errors, 130 after Ctrl-C.

    Without a command, print the help. Standard streams are set up first; errors of toolwire and the operating system
    are printed as a line.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            # A real file has the free descriptor, so that no other file gets its number.
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(null, "r" if name == "stdin" else "w", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # do not fail on a character that the terminal cannot encode
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):  # invalid UTF-8 is replaced, and never sent to a model
        sys.stdin.reconfigure(errors="replace")
    neutralise_default_log()
    try:
        parser = _make_parser(given)
        complete(parser)
        chosen, unknown = parser.parse_known_args(given)
        if unknown:
            _refuse_unknown(parser, given, unknown)
        if "run" not in chosen:
            print("\n".join([*parser.list_commands(), *wrap_text(_MORE, min(terminal_width(), _MAX_HELP))]))
            return 0
        code = int(chosen.run(chosen))
        sys.stdout.flush()
        return code
    except ToolwireError as error:
        error.hint = translate_hint(error.hint, "setting" if given[:1] == ["serve"] else "option")
        advice = f" ({error.hint})"
        text = str(error)
        print_error(text.removesuffix(advice), error.hint if text.endswith(advice) else "")
        return 2
    except BrokenPipeError:
        _discard_stdout()  # the reader closed the pipe, for example `head`
        return 0
    except OSError as error:
        _discard_stdout()
        print_error(_describe_os_error(error))
        return 2
    except KeyboardInterrupt:
        return 130


def _make_parser(given: Sequence[str]) -> _MainParser:
    """Return the parser with the given command only, which saves the import of the others; without a command, with all."""
    parser = _MainParser(prog="toolwire")
    parser.add_argument("--version", action="version", version=f"toolwire {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=CommandParser)
    named = [name for name in given[:1] if name in _COMMANDS]
    if not named and given[:1] != ["--version"]:  # the version needs no module of a command
        named = list(_COMMANDS)
    for name in named:
        import_module(_COMMANDS[name]).add_to(commands)
    return parser


def _refuse_unknown(parser: CommandParser, given: Sequence[str], unknown: Sequence[str]) -> NoReturn:
    """Exit with 2 and the usage of the innermost command.

    A misspelt option gets a suggestion, another text a hint about quotes.
    """
    for name in given:  # the parser of the innermost command
        nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        parser = next((action.choices[name] for action in nested if name in action.choices), parser)
    first = unknown[0]
    if first.startswith("-"):
        parser.error(parser.describe_unknown(first))
    parser.error(f"unexpected argument {first!r} (put a text with spaces in quotes)")


def _describe_os_error(error: OSError) -> str:
    """Describe an error of the operating system. One without a file is usually a failed write to standard output."""
    reason = error.strerror or str(error) or type(error).__name__
    if isinstance(error, (ConnectionError, TimeoutError)):
        return f"the connection failed: {reason}"
    return f"cannot write: {reason}" if error.filename is None else f"{error.filename}: {reason}"


def _discard_stdout() -> None:
    """Redirect standard output, so that the interpreter does not fail when it flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
