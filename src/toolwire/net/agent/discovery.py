"""Skills and tools that a model finds during a run.

Skills are instructions in Markdown files, which a model loads when it needs them. A retriever selects the tools of the
first request, and a tool search finds others.

    skills/refunds.md                 a skill in one file
    skills/reports/SKILL.md           a skill in a folder, with further files beside it

A skill begins with front matter: `name` and `description`, between lines of `---`. Models see these two; the tool
`load_skill` returns the text.

A skill may come from someone else, such as a cloned repository. So no symbolic link is followed: it could show any file
of the user to a model. A pipe or a device is refused before it is read: it could block forever.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...ir.errors import ConfigError
from ...ir.tools import SEARCH_TOOLS, Tool
from ...ir.value import Value
from ...run.calls.context import ToolError
from ...run.calls.observe import Retriever, ToolSearcher
from ...run.calls.runtime_tools import ToolSearch, add_search_tool
from ...run.session.loop import Session
from ...run.tools.function_tool import FunctionTool, tool
from ..tools.runner import Runner

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


SKILL_TOOL = "load_skill"
_MAX_SKILLS = 200  # each adds up to 1,024 characters to the tool's description, in every request
# Bytes of a file, far more than instructions for a model; another file is probably in the folder by mistake.
_MAX_SIZE = 256 * 1024
_OPEN = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # neither is on Windows
_MAX_DESCRIPTION = 1024  # characters that are offered; the limit of a description in the Agent Skills format


class Skill(Value, frozen=True):
    """One skill. `folder` is None for a skill without further files."""

    name: str
    description: str
    file: Path
    folder: Path | None = None


def load_skills(folder: str | Path) -> tuple[Skill, ...]:
    """Read the front matter of all skills in a folder, in alphabetical order of their files.

    Raise ConfigError if the folder does not exist, or a skill is a link, has no description or the name of another.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"the skills folder {root} does not exist", hint="pass a folder of Markdown files")
    linked = [folder for folder in root.iterdir() if folder.is_symlink() and (folder / "SKILL.md").exists()]
    if linked:
        message = f"the skill {linked[0]} is a symbolic link"
        raise ConfigError(message, hint="symbolic links are not followed: copy the folder")
    files = sorted([*root.glob("*.md"), *root.glob("*/SKILL.md")])
    if len(files) > _MAX_SKILLS:
        raise ConfigError(f"{root} has {len(files)} skills; at most {_MAX_SKILLS} are supported")
    skills = [_read_skill(file, root) for file in files]
    for first, second in zip(ordered := sorted(skills, key=lambda skill: skill.name), ordered[1:], strict=False):
        if first.name == second.name:
            raise ConfigError(f"two skills have the name {first.name!r}: {first.file} and {second.file}")
    return tuple(skills)


def skill_tool(skills: tuple[Skill, ...]) -> FunctionTool[..., str]:
    """Return the tool that loads a skill or a file of it. Its description lists the skills."""
    by_name = {skill.name: skill for skill in skills}

    @tool(name=SKILL_TOOL, description=_describe(skills), effect="read")
    def load_skill(name: str, file: str = "") -> str:
        skill = by_name.get(name)
        if skill is None:
            raise ToolError(f"There is no skill {name!r}. Skills: {', '.join(by_name)}.")
        if file:
            return _read_text(_find_file(skill, file))
        return _split_front_matter(_read_text(skill.file))[1].strip()

    return load_skill


def _describe(skills: tuple[Skill, ...]) -> str:
    listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)
    return (
        "Load the instructions of a skill before you start a task that it describes. "
        f"`file` is a further file of the skill, relative to its folder.\nSkills:\n{listed}"
    )


def _read_skill(file: Path, root: Path) -> Skill:
    """Return the skill in a file. By default, the file or folder names it.

    Raise ConfigError if the front matter has no description.
    """
    lines, _ = _split_front_matter(_read_text(file))
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    default_name = file.parent.name if file.name == "SKILL.md" else file.stem
    description = _unquote(fields.get("description", ""))
    if not description:
        hint = "begin the file with ---, name: …, description: …, ---"
        raise ConfigError(f"the skill {file} has no description in its front matter", hint=hint)
    folder = file.parent if file.parent != root else None
    return Skill(_unquote(fields.get("name", "")) or default_name, description[:_MAX_DESCRIPTION], file, folder)


def _split_front_matter(text: str) -> tuple[list[str], str]:
    """Return the lines between the first two lines of `---`, and the text after them.

    Without front matter, return no lines and the whole text.
    """
    first, _, rest = text.removeprefix("\ufeff").partition("\n")
    if first.strip() != "---":
        return [], text
    lines = rest.splitlines(keepends=True)
    end = next((number for number, line in enumerate(lines) if line.strip() == "---"), None)
    return ([], text) if end is None else (lines[:end], "".join(lines[end + 1 :]))


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _find_file(skill: Skill, name: str) -> Path:
    """Return a file of the skill's folder. Raise ToolError if it does not exist, is outside, or is a link."""
    folder = None if skill.folder is None else skill.folder.resolve()
    path = None if folder is None or "\x00" in name else folder / name
    try:
        is_own = path is not None and folder is not None and path.is_relative_to(folder) and path.resolve() == path
        if path is None or not is_own or not path.is_file():
            raise ToolError(f"The skill {skill.name} has no file {name!r}.")
    except OSError:  # such as a name that is too long
        raise ToolError(f"The skill {skill.name} has no file {name[:200]!r}.") from None
    return path


def _read_text(file: Path) -> str:
    """Read a regular file of UTF-8 text, without following a link. Raise ConfigError for anything else.

    It does not wait for a pipe's writer.
    """
    try:
        with os.fdopen(os.open(file, _OPEN), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise ConfigError(f"{file} is not a regular file", hint="replace it by a Markdown file")
            data = opened.read(_MAX_SIZE + 1)
        if len(data) > _MAX_SIZE:
            raise ConfigError(f"{file} has more than {_MAX_SIZE:,} bytes", hint="split it into several files")
        return data.decode()
    except OSError as error:
        hint = "symbolic links are not followed: copy the file" if error.errno == errno.ELOOP else ""
        raise ConfigError(f"cannot read {file}: {error.strerror}", hint=hint) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not valid UTF-8") from None


_THREADS = 16  # as many as the calls that run at the same time; not measured
_RetrieverResult = TypeVar("_RetrieverResult")


class RetrievingAgent(Protocol):
    """The parts of an `Agent` that its search for tools uses."""

    runner: Runner
    retriever: Retriever | None


def prepare_retriever(retriever: Retriever, runner: Runner) -> None:
    """Add `search_tools` if the retriever can search.

    A retriever with a method `check_tools` checks its settings, unless the tools of the agent may change.
    """
    check = getattr(retriever, "check_tools", None)
    if check is not None and not runner.box.is_live:
        check(runner.box.tools)
    if isinstance(retriever, ToolSearcher):
        add_search_tool(runner.box)


def first_tools(agent: RetrievingAgent, tools: tuple[Tool, ...], offered: Sequence[str] = ()) -> tuple[Tool, ...]:
    """Return the tools that a run offers from the start; with a retriever, the tools that the conversation has so far."""
    if agent.retriever is None:
        return tools
    known = {tool.name: tool for tool in tools}
    if isinstance(agent.retriever, ToolSearcher):
        known[SEARCH_TOOLS] = add_search_tool(agent.runner.box)
    return tuple(known[name] for name in offered if name in known)


def make_tool_search(agent: RetrievingAgent, session: Session) -> ToolSearch | None:
    """Return the search for the tools of an agent, or None for a run that cannot offer others."""
    box, retriever = agent.runner.box, agent.retriever
    if retriever is None or session.state.has_fixed_tools or not isinstance(retriever, ToolSearcher):
        return None
    return ToolSearch(retriever, lambda: box.filter_available(box.tools))


async def run_in_retriever_thread(function: Callable[[], _RetrieverResult]) -> _RetrieverResult:
    """Run a function in a thread for retrievers.

    Runs wait there while another one encodes its tools. In the threads of the event loop they would block file access,
    DNS and the tools of all other runs.
    """
    return await asyncio.get_running_loop().run_in_executor(_open_threads(), copy_context().run, function)


@cache
def _open_threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=_open_threads.cache_clear)  # a forked process has no threads
    return ThreadPoolExecutor(_THREADS, "toolwire-retriever")
