"""A command as a tool: its declaration, and a call of it as an argument vector.

Options and operands are the properties of the tool's schema. No shell reads the vector, and no value can become an
option.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from ...ir.errors import ToolwireError
from ...ir.pointer import Object
from ...ir.terminal import neutralise_line, reveal_line
from ...ir.tools import Tool
from ...ir.value import Value
from ...run.tools.words import split_words
from ...schema.validation.validator import validator
from ..documents import clean_text
from .command import CommandOption, Operand, SystemCommand, property_name
from .effects import (
    CommandEffect,
    default_effect,
    has_withheld_letters,
    is_withheld,
    judge_effect,
    refusal_reason,
    starts_programs,
)

Property: TypeAlias = CommandOption | Operand

MAX_VALUES = 64  # for a model's schema; a command with more values is one for a pattern or a pipe
"""Values of one repeated option or operand."""

_UNOFFERED_OPERANDS = frozenset({"expression"})  # of `find`: its parts are options
_UNOFFERED = frozenset({"--help", "--version", "--usage"})


def command_properties(command: SystemCommand) -> dict[str, Property]:
    """Return the options and operands by the names of their properties.

    Operands keep their names; an option takes a spelling that is still free. Options that no call may contain are left
    out.
    """
    found: dict[str, Property] = {one.name: one for one in command.operands if one.name not in _UNOFFERED_OPERANDS}
    for option in command.options:
        if not _UNOFFERED.isdisjoint(option.names) or is_withheld(command.words, option):
            continue
        spellings = [property_name(option.name), *(property_name(name) for name in option.names)]
        name = next((one for one in spellings if one and one not in found), f"{spellings[0]}_option")
        if name not in found and name != "_option":
            found[name] = option
    return found


def declare_command(command: SystemCommand, names: Iterable[str] | None = None) -> Tool:
    """Return the tool of a command. `names`: the properties to declare, by default all."""
    properties = command_properties(command)
    offered = properties if names is None else {name: properties[name] for name in names}
    schema: Object = {
        "type": "object",
        "properties": {name: _declare_property(part) for name, part in offered.items()},
        "required": [name for name, part in offered.items() if isinstance(part, Operand) and part.is_required],
        "additionalProperties": False,
    }
    return Tool(
        command.tool_name,
        _shown(f"{command.name}: {command.summary}", 300),
        schema,
        effect=default_effect(command),
    )


def select_options(command: SystemCommand, request: str, limit: int) -> list[str]:
    """Return the names of the properties to offer for a request, in the order of the page.

    All operands, and the options that share the rarest words with the request; pages of some commands have 250 options.
    """
    properties = command_properties(command)
    options = {name: one for name, one in properties.items() if isinstance(one, CommandOption)}
    if len(options) <= limit:
        return list(properties)
    words = {name: _option_words(name, one) for name, one in options.items()}
    counts = Counter(word for found in words.values() for word in found)
    wanted = frozenset(split_words(request))
    scores = {name: _score(found & wanted, counts, len(options)) for name, found in words.items()}
    best = frozenset(sorted(options, key=lambda name: -scores[name])[:limit])
    return [name for name, one in properties.items() if isinstance(one, Operand) or name in best]


def _score(common: frozenset[str], counts: Mapping[str, int], total: int) -> float:
    return sum(math.log(1 + total / counts[word]) for word in common)


def _option_words(name: str, option: CommandOption) -> frozenset[str]:
    text = " ".join((name, *option.names, *option.choices, option.placeholder, option.description))
    return frozenset(split_words(text))


def _declare_property(part: Property) -> Object:
    """Return the schema of an option or operand.

    An option with an optional value takes a boolean, too; a repeated option takes an array.
    """
    if isinstance(part, Operand):
        return _declare_list({"type": "string"}) if part.repeats else {"type": "string"}
    spellings = ", ".join(part.names)
    described: Object = {
        "description": _shown(f"{spellings}: {part.description}" if part.description else spellings, 200)
    }
    if part.style == "flag":
        return {"type": "boolean", **described}
    value = _declare_value(part)
    if part.style == "optional":
        values = value.get("enum")
        listed = {} if values is None else {"enum": [True, False, *values]}
        return {"type": ["boolean", value["type"]], **listed, **described}
    return {**(_declare_list(value) if part.repeats else value), **described}


def _declare_value(option: CommandOption) -> Object:
    if option.choices:
        return {"type": "string", "enum": list(option.choices)}
    return {"type": "integer" if option.is_integer else "string"}


def _declare_list(value: Object) -> Object:
    return {"type": "array", "items": value, "maxItems": MAX_VALUES}


def _shown(text: str, limit: int) -> Any:
    """Return untrusted text of a page without invisible characters, and bounded."""
    return neutralise_line(clean_text(text))[:limit]


MAX_VALUE = 1_000  # the user confirms the line by reading it; PATH_MAX is 4,096, real paths are shorter
"""Characters of one value."""

_PATH = re.compile(r"file|path|dir|source|dest|src|target|starting|archive|arg|folder|member")
_SHELL_CHARACTERS = frozenset(";|&`$<>\\")
_LEADING = frozenset({"-H", "-L", "-P"})  # options of `find` that precede the paths
_MAX_VECTOR = 256  # arguments; with _MAX_TOTAL, a line that can still be read before it is confirmed
_MAX_TOTAL = 2_000  # characters: the beginning stays on the screen
_SPACES = " " * 8
# programs whose options follow the operands, and programs that accept `--` before operands
_OLD_STYLE = frozenset({"tar", "gtar", "bsdtar", "star", "ar"})  # options without a dash
_OPTIONS_LAST = frozenset({"find"})
_ENDS_OPTIONS = frozenset(
    """ls cat head tail wc du df cp mv rm rmdir mkdir touch ln chmod chown chgrp stat file grep sort uniq cut diff cmp comm
    basename dirname realpath readlink md5sum sha1sum sha256sum sha512sum tee tar gzip gunzip bzip2 xz zip unzip which
    truncate shred split rsync curl wget""".split()
)


class RefusedCall(ToolwireError):
    """A call that is not allowed to become a command line."""


class CommandLine(Value, frozen=True):
    """A command line that may be shown and run: the vector and its effect."""

    command: SystemCommand
    vector: tuple[str, ...]
    effect: CommandEffect


def make_command_line(command: SystemCommand, arguments: Mapping[str, Any], *, home: str | None = None) -> CommandLine:
    """Return the command line of a call. Raise RefusedCall for arguments that do not fit or are not safe.

    `home`: the folder for a `~` at the start of a path, which no shell expands.
    """
    reason = refusal_reason(command.words[0])
    if reason is None and starts_programs(command):
        reason = "it starts the program that its arguments name"
    if reason is not None:
        raise RefusedCall(f"{command.words[0]} is refused: {reason}", hint="run it yourself if you trust it")
    problems = validator(declare_command(command).input_schema).problems(dict(arguments))
    if problems:
        raise RefusedCall(f"the arguments do not fit {command.name}: {'; '.join(map(str, problems[:5]))}")
    options: list[str] = []
    used: list[str] = []
    operands: list[tuple[Operand, str]] = []
    for name, part in command_properties(command).items():
        if name not in arguments:
            continue
        if isinstance(part, Operand):
            operands += [(part, value) for value in _write_operand(part, arguments[name], home)]
        elif written := _write_option(part, arguments[name]):
            _refuse_joined_letters(command, part, written)
            options += written
            used.append(part.name)
    vector = _join(command, options, operands)
    effect = judge_effect(command.words, vector, used)
    if effect.is_read_only and any(char in _SHELL_CHARACTERS for word in vector for char in word):
        effect = replace(effect, is_read_only=False)  # harmless without a shell, but a person should see it
    return CommandLine(command, vector, effect)


def _write_option(option: CommandOption, value: Any) -> list[str]:
    if value is False:
        return []
    if value is True:
        return [option.name]
    values = value if isinstance(value, list) else [value]
    return [word for one in values for word in _write_value(option, _check_value(str(one), option.name))]


def _write_value(option: CommandOption, value: str) -> list[str]:
    """Return the words of an option with a value. A separate value must not look like an option.

    Raise RefusedCall if it does.
    """
    if option.style != "separate":
        return [f"{option.name}={value}" if option.name.startswith("--") else f"{option.name}{value}"]
    if value.startswith("-") and not value[1:].isdigit():
        raise RefusedCall(f"the value of {option.name} looks like an option: {_show_value(value)}")
    return [option.name, value]


def _refuse_joined_letters(command: SystemCommand, option: CommandOption, written: list[str]) -> None:
    """Refuse `-xVALUE` if the program could read the value as further options: a page may declare a flag like this."""
    is_joined = not option.name.startswith("--") and len(option.name) == 2 and option.style in ("attached", "optional")
    values = [word[2:] for word in written] if is_joined and has_withheld_letters(command.words) else []
    if not all(value.isdigit() for value in values if value):
        raise RefusedCall(f"the value of {option.name} could be read as options of {command.words[0]}")


def _write_operand(operand: Operand, value: Any, home: str | None) -> list[str]:
    values = [_check_value(one, operand.name) for one in (value if isinstance(value, list) else [value])]
    if home is not None and _PATH.search(operand.name):
        values = [f"{home}{one[1:]}" if one == "~" or one.startswith("~/") else one for one in values]
    return [one if one.startswith(operand.prefix) else f"{operand.prefix}{one}" for one in values]


def _check_value(value: str, name: str) -> str:
    """Return a value. Raise RefusedCall if it is empty, too long, or has invisible characters."""
    if not value:
        raise RefusedCall(f"the value of {name} is empty")
    if len(value) > MAX_VALUE:
        raise RefusedCall(f"the value of {name} is longer than {MAX_VALUE} characters")
    if reveal_line(value) != value:
        raise RefusedCall(f"the value of {name} has characters that cannot be seen: {_show_value(value)}")
    return value


def _join(command: SystemCommand, options: list[str], operands: list[tuple[Operand, str]]) -> tuple[str, ...]:
    """Join the arguments of a command so that no operand can be read as an option.

    Raises `RefusedCall` if the command cannot separate them (`--`), and for a call that is too long or contains
    invisible characters, because a person must be able to read it before it runs.
    """
    program = command.words[0]
    values: list[str] = []
    needs_end = any(value.startswith("-") for _, value in operands)
    if program in _OPTIONS_LAST:
        _refuse_expressions(operands)
        leading = [option for option in options if option in _LEADING]
        rest = [option for option in options if option not in _LEADING]
        vector = (*command.words, *leading, *(value for _, value in operands), *rest)
    else:
        if needs_end and not (program in _ENDS_OPTIONS or (program == "git" and _all_after_dashes(operands))):
            shown = next(value for _, value in operands if value.startswith("-"))
            raise RefusedCall(f"an argument of {command.name} looks like an option: {_show_value(shown)}")
        has_end = needs_end and program in _ENDS_OPTIONS
        values += ["--"] if has_end else []
        for operand, value in operands:
            if operand.after_dashes and not has_end:
                values.append("--")
                has_end = True
            values.append(value)
        if program in _OLD_STYLE and not options and values:
            raise RefusedCall(
                f"{program} would read the first argument as options", hint="set one of its options as well"
            )
        vector = (*command.words, *options, *values)
    if len(vector) > _MAX_VECTOR or sum(map(len, vector)) > _MAX_TOTAL:
        raise RefusedCall(f"the call of {command.name} has too many arguments to be read before the question")
    for word in vector:
        if reveal_line(word) != word or _SPACES in word:
            raise RefusedCall(f"a word of the command cannot be seen: {_show_value(word)}")
    return vector


def _all_after_dashes(operands: list[tuple[Operand, str]]) -> bool:
    return all(operand.after_dashes or not value.startswith("-") for operand, value in operands)


def _refuse_expressions(operands: list[tuple[Operand, str]]) -> None:
    """Refuse operands that `find` would read as a part of its expression."""
    for _, value in operands:
        if value[0] in "-(),!":
            raise RefusedCall(f"a path looks like an expression: {_show_value(value)}", hint="write ./ before the path")


def _show_value(value: str) -> str:
    return repr(reveal_line(value[:80]))
