"""Commands and options of `argparse` as all commands declare them, and the values of options."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..._extras import install_command
from ...ir.errors import ConfigError, MissingExtra
from .layout import wrap_command, wrap_text

if TYPE_CHECKING:
    from ...run.executor import Executor

CONFIG = "toolwire.toml"
"""The settings of the gateway in the current folder."""

DEFAULT_MODEL = "local/smollm2"
"""The model of commands without -m: it runs in this process, and needs no key."""

_LIST_GAP = re.compile(" {2,}")  # between the items of a list
_LABEL = re.compile("[a-z]+(?: [a-z]+)?: ")  # of a list
_EXPLANATION = " " * 20  # before a line that explains the example above it
SettingsType = TypeVar("SettingsType")


def require_gateway() -> None:
    """Raise MissingExtra without a package that the gateway needs, before anything else is wrong. None is imported."""
    from importlib.util import find_spec

    if find_spec("httptools") is None:
        raise MissingExtra("the gateway needs httptools", hint=install_command("gateway"))


class CommandHelp(argparse.RawDescriptionHelpFormatter):
    """Help whose description and examples keep their lines; one that is too wide wraps at spaces.

    A paragraph is filled again: a line that does not end a sentence goes on in the next one.
    """

    def _format_usage(self, *arguments: Any) -> str:
        """Wrap the lines of the usage that argparse leaves too wide, such as a list of choices, after their commas."""
        lines = super()._format_usage(*arguments).split("\n")
        return "\n".join(part for line in lines for part in _wrap_choices(line, self._width))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        indent = " " * self._current_indent
        lines = _wrap_choices(indent + super()._format_action_invocation(action), self._width)
        return "\n".join(lines).removeprefix(indent)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for line in text.splitlines():
            goes_on = bool(lines) and bool(lines[-1]) and not lines[-1].startswith(" ") and lines[-1][-1] not in ".:"
            if goes_on and line and not _LABEL.match(line) and (line[0] != " " or _LIST_GAP.search(lines[-1])):
                lines[-1] += ("   " if line[0] == " " else " ") + line.lstrip()
            elif lines and line.startswith(_EXPLANATION):
                lines[-1] += "  " + line.lstrip()
            else:
                lines.append(line)
        return "\n".join(part for line in lines for part in _wrap_example(indent + line, width))


def _wrap_choices(line: str, width: int) -> list[str]:
    """Wrap a line of the usage or of an option that is too wide; a list of choices breaks after its commas."""
    if len(line) <= width:
        return [line]
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    parts = wrap_text(text.replace(",", ", "), width - len(indent) - 2, splits_words=False)
    first, *others = (part.rstrip().replace(", ", ",") for part in parts)
    return [indent + first, *(f"{indent}  {other}" for other in others)]


def _wrap_example(line: str, width: int) -> list[str]:
    """Wrap a line of the help. The explanation of an example that is too wide begins on a line of its own.

    The items of a list, such as `exit codes: 0 done   1 failed`, are not broken if they fit on a line.
    """
    command = line.lstrip()
    indent = line[: len(line) - len(command)]
    if len(line) <= width:
        return [line]
    if not indent and _LIST_GAP.search(line):
        found = _LABEL.match(line)
        label = "" if found is None else found[0]
        items, hang = line[len(label) :], " " * len(label)
        kept = "   ".join(item.strip().replace(" ", "\0") for item in _LIST_GAP.split(items))
        packed = wrap_text(kept, width - len(hang), splits_words=False)
        wrapped = [part for row in packed for part in wrap_text(row.replace("\0", " "), width - len(hang))]
        return [label + wrapped[0], *(hang + row for row in wrapped[1:])]
    if not indent:
        return wrap_text(line, width)
    example, *about = re.split(" {2,}", command, maxsplit=1)
    first, *others = wrap_command(example, width - len(indent) - 4)
    others += [part for text in about for part in wrap_text(text, width - len(indent) - 4)]
    return [indent + first, *(f"{indent}    {other}" for other in others)]


def add_command(
    commands: Any, name: str, about: str, text: str, run: Callable[[argparse.Namespace], int] | None = None
) -> argparse.ArgumentParser:
    """Add a command. `about`: its line in the list of commands. `text`: its help, a description before the examples."""
    description, _, examples = text.partition("\n\n")
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=description,
        epilog=examples,
        formatter_class=CommandHelp,
    )
    if run is not None:
        parser.set_defaults(run=run)
    return parser


def add_flag(parser: Any, name: str, about: str) -> None:
    """Add an option without a value to a parser or a group."""
    parser.add_argument(name, action="store_true", help=about)


def add_list(parser: Any, *names: str, **options: Any) -> None:
    """Add an option that may be given several times; without it, the list is empty."""
    parser.add_argument(*names, action="append", default=[], **options)


def add_model(
    parser: Any, about: str = "provider/model", *, default: str | None = None, required: bool = False
) -> None:
    """Add the option of the model, which has the same names in every command."""
    end = "" if default is None else f" ({default})"
    parser.add_argument("-m", "--model", default=default, required=required, metavar="MODEL", help=f"{about}{end}")


def add_config(parser: Any, *, is_nested: bool = False) -> None:
    """Add the option of the gateway's settings. `is_nested`: it may also precede the command, as in `serve --config F keys`."""
    default = argparse.SUPPRESS if is_nested else None
    parser.add_argument("--config", default=default, metavar="FILE", help=f"settings ({CONFIG}, if it exists)")


def whole_number(text: str) -> int:
    """Parse a whole number, such as a seed. Raise ArgumentTypeError for other texts."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(text)


def positive_number(text: str) -> int:
    """Parse a whole number of at least 1. Raise ArgumentTypeError for other texts."""
    if not re.fullmatch(r"[0-9]{1,18}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def percentage(text: str) -> float:
    """Parse a number from 0 to 100. Raise ArgumentTypeError for other texts."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", text) or float(text) > 100:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 100, got {text!r}")
    return float(text)


def add_executor(parser: Any) -> None:
    """Add the options of commands that divide their work among processes or machines."""
    group = parser.add_argument_group("workers")
    group.add_argument("--workers", type=positive_number, metavar="N", help="worker processes, or tasks of --ray")
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="cluster of Ray: HOST:PORT, ray://HOST:PORT, or local to start one on this machine",
    )


def open_executor(arguments: argparse.Namespace) -> Executor | None:
    """Return the executor of the options, or None to compute in this process. Raise MissingExtra for --ray without Ray."""
    if arguments.ray is not None:
        from ...durable.ray_executor import RayExecutor

        return RayExecutor(arguments.ray, workers=arguments.workers)
    if arguments.workers is None or arguments.workers == 1:
        return None
    from ...net.executors import ProcessPool

    return ProcessPool(arguments.workers)


def read_variable(name: str | None) -> str | None:
    """Return the value of an environment variable that an option names; ConfigError if it is not set."""
    if not name:
        return None
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"environment variable {name} is not set", hint=f"export {name}=…")
    return value


def settings_from(kind: Callable[..., SettingsType], arguments: argparse.Namespace, /, **changed: Any) -> SettingsType:
    """Make settings of the options with the names of their fields. `changed`: fields that are not options as given."""
    names = [name for name in getattr(kind, "__struct_fields__", ()) if hasattr(arguments, name)]
    given = {name: getattr(arguments, name) for name in names}
    return kind(**{name: tuple(value) if type(value) is list else value for name, value in given.items()} | changed)
