"""Commands that change or show the state of a chat, such as /tools and /model.

They are recognised on a terminal only: piped text is not trusted.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ...ir.errors import ConfigError
from ...ir.terminal import count_of, neutralise_line, neutralise_text
from ..terminal.output import print_text, table
from .chat_session import ChatSession
from .options import add_model_options, announce_model

if TYPE_CHECKING:
    from ...net.model.interface import PromptItem
    from .live_loop import AgentThread


_MAX_ATTACHED = 50 * 1024 * 1024  # bytes of one file, which is read into memory and sent as base64. Not measured


class CommandInput(NamedTuple):
    """The chat, the thread of its agent, and the text after the name of a command."""

    session: ChatSession
    thread: AgentThread
    rest: str


class ChatCommand(NamedTuple):
    """One command: its arguments and description for /help."""

    usage: str
    about: str
    run: Callable[[CommandInput], list[PromptItem] | None]


def run_command(line: str, session: ChatSession, thread: AgentThread) -> list[PromptItem] | None:
    """Run a command line; return the prompt to send, if it has one. An unknown command is a ConfigError."""
    name, _, rest = line.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise ConfigError(f"unknown command {name}", hint=_suggest(name))
    return command.run(CommandInput(session, thread, rest.strip()))


def _suggest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name[:40], COMMANDS, 1)
    return f"did you mean {near[0]}?" if near else "/help lists the commands"


def _help(_: CommandInput) -> None:
    rows = [(f"{name} {command.usage}".strip(), command.about) for name, command in COMMANDS.items()]
    print("\n".join(table(rows)))
    print_text(
        '@FILE in a prompt attaches the file. """ starts and ends a prompt of several lines; so does a backslash at the end of '
        "a line. Ctrl-C stops an answer, Ctrl-D leaves."
    )


def _tools(given: CommandInput) -> None:
    """Print a table of the chat's tools: name with parameters, effect, first line of the description."""
    entries = list(given.session.runner.box)
    if not entries:
        print("no tools; start the chat with -t SOURCE")
        return
    rows = []
    for entry in entries:
        about = (entry.tool.description or "").strip().partition("\n")[0]
        rows.append((f"{entry.name}({_parameter_names(entry.tool)})", entry.tool.effect, about[:300]))
    print("\n".join(table(rows, ("tool", "effect", "description"))))


def _parameter_names(tool: Any) -> str:
    schema = tool.input_schema or {}
    properties, required = schema.get("properties"), schema.get("required")
    names = list(properties)[:12] if isinstance(properties, dict) else []
    needed = required if isinstance(required, list) else []
    return ", ".join(str(name) if name in needed else f"{name}?" for name in names)


def _model(given: CommandInput) -> None:
    """Show or switch the model; a bare name is another model of the same server and key.

    Raises `ConfigError` for arguments that cannot be parsed and for an unknown local model.
    """
    if not given.rest:
        print(neutralise_line(given.session.arguments.model))
        return
    parser = _ModelParser(prog="/model", add_help=False)
    parser.add_argument("name")
    add_model_options(parser, default=None)
    try:
        chosen = parser.parse_args(shlex.split(given.rest))
    except ValueError as error:
        raise ConfigError(f"cannot read the arguments: {error}") from None
    chosen.model = chosen.name
    if "/" not in chosen.name and chosen.base_url is None and not _provider_of(chosen.name):
        current = given.session.arguments
        chosen.model = _provider_of(current.model) + chosen.name
        chosen.base_url, chosen.key_env = current.base_url, chosen.key_env or current.key_env
    announce_model(chosen.model, base_url=chosen.base_url)  # it refuses an unknown local model
    given.thread.run(given.session.switch_model(chosen))
    print(f"{neutralise_line(chosen.model)} continues with {count_of(len(given.session.messages), 'message')}")


def _provider_of(model: str) -> str:
    """Return the known provider in the name of a model, with its separator; empty without one."""
    from ...wire.models.vendors import names

    found = re.match(r"([^/:]+)[/:]", model)
    return found[0] if found is not None and found[1].lower() in names() else ""


class _ModelParser(argparse.ArgumentParser):
    """A parser that raises instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(
            message, hint="/model NAME [--base-url URL] [--key-env NAME] [--text FORMAT] [--price INPUT/OUTPUT]"
        )


def _system(given: CommandInput) -> None:
    if given.rest:
        given.session.system = "" if given.rest == "none" else given.rest
    print(neutralise_text(given.session.system) or "no system prompt")


def _attach(given: CommandInput) -> None:
    """Add a file to the next prompt, if it is named, and list the added files.

    Raises `ConfigError` for a missing or too large file.
    """
    if given.rest:
        path = Path(_unquote(given.rest)).expanduser()
        if not path.is_file():
            raise ConfigError(f"cannot read {given.rest}: not a file", hint="/attach FILE")
        if path.stat().st_size > _MAX_ATTACHED:
            raise ConfigError(f"{given.rest} has more than {_MAX_ATTACHED:,} bytes")
        given.session.attached.append(path)
    names = ", ".join(neutralise_line(str(path)) for path in given.session.attached)
    print(f"attached to the next prompt: {names}" if names else "no files are attached")


def _save(given: CommandInput) -> None:
    if not given.rest:
        raise ConfigError("a file name is missing", hint="/save FILE")
    count = given.session.save(_unquote(given.rest))
    print_text(f"{count_of(count, 'message')} saved; continue with /load or toolwire chat --resume")


def _load(given: CommandInput) -> None:
    if not given.rest:
        raise ConfigError("a file name is missing", hint="/load FILE")
    print(f"{count_of(given.session.load(_unquote(given.rest)), 'message')} loaded")


def _unquote(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        return text
    return words[0] if len(words) == 1 else text


def _usage(given: CommandInput) -> None:
    """Print the totals of the chat: answers, tokens, cost, times, messages.

    Tokens are unknown if no answer reported them.
    """
    totals = given.session.totals
    cached = f", {totals.cached:,} of them cached" if totals.cached else ""
    rows = [
        ("answers", f"{totals.answers}"),
        ("input tokens", f"{totals.input:,}{cached}" if totals.has_usage else "unknown"),
        ("output tokens", f"{totals.output:,}" if totals.has_usage else "unknown"),
        ("cost", f"{totals.cost:.6f}" if given.session.arguments.price else "unknown; set --price INPUT/OUTPUT"),
        ("time", f"{totals.seconds:.1f} s"),
        ("last answer", f"first event after {totals.first_token:.2f} s, {totals.last_seconds:.1f} s in total"),
        ("conversation", count_of(len(given.session.messages), "message")),
    ]
    print("\n".join(table(rows)))


def _clear(given: CommandInput) -> None:
    given.session.clear()
    print("new conversation")


def _undo(given: CommandInput) -> None:
    given.session.undo()
    print(f"removed the last prompt and its answer; {count_of(len(given.session.messages), 'message')} left")


def _exit(_: CommandInput) -> None:
    """Do nothing: the chat ends before it runs a command of this name."""


COMMANDS: dict[str, ChatCommand] = {
    "/help": ChatCommand("", "list the commands", _help),
    "/tools": ChatCommand("", "list the tools, their parameters and effects", _tools),
    "/model": ChatCommand("[NAME [OPTIONS]]", "show the model, or continue with another one", _model),
    "/system": ChatCommand("[TEXT|none]", "show or set the system prompt", _system),
    "/attach": ChatCommand("[FILE]", "add an image, a PDF or a text to the next prompt", _attach),
    "/usage": ChatCommand("", "tokens, cost and time so far", _usage),
    "/save": ChatCommand("FILE", "save the conversation", _save),
    "/load": ChatCommand("FILE", "continue a saved conversation", _load),
    "/undo": ChatCommand("", "remove the last prompt and its answer; effects of tools stay", _undo),
    "/retry": ChatCommand("", "send the last prompt again", lambda given: given.session.take_last_prompt()),
    "/clear": ChatCommand("", "start a new conversation", _clear),
    "/exit": ChatCommand("", "leave; also Ctrl-D", _exit),
    "/quit": ChatCommand("", "leave", _exit),
}
