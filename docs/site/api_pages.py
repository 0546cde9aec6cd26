"""Write the API reference: a page per public name of `toolwire`, and a page per other package with an entry per name.

A name has one entry, in `toolwire` if it is exported there, or else in the first package that exports it; other packages link to it.
Searches find a name by the title of its page or entry. Fields are in lists without headings, because a thousand headings such as
`text` would hide the pages about texts.
"""

import functools
import re
from collections.abc import Iterator

from api_examples import examples
from api_objects import Described, Member, definition, describe, format_signatures, package_text, public_names

__all__ = ["api_pages", "entries"]

TOP = "toolwire"


@functools.cache
def entries() -> dict[str, str]:
    """Return the page and anchor that describe each public name, by the name's path. Several paths may have one entry."""
    names = public_names()
    homes: dict[tuple[str, str], str] = {}
    found = {}
    for package, exported in names.items():
        for name in exported:
            path = f"{package}.{name}"
            home = homes.setdefault((definition(package, name).module, name), path)
            parent = home.rpartition(".")[0]
            found[path] = f"api/{home if home in names or parent == TOP else parent}.md#{home}"
    return found


@functools.cache
def api_pages() -> dict[str, str]:
    """Return the text of each page, by its path on the site; the first is the index."""
    names = public_names()
    described = _formatted(
        {(package, name): describe(definition(package, name)) for package in names for name in names[package]}
    )
    places, shown = entries(), examples()
    pages = {}
    for package in names:
        pages[f"api/{package}.md"] = _package_page(package, names[package], described, places, shown)
    for name in names[TOP]:
        path = f"{TOP}.{name}"
        if path not in names:
            head = [f"# {name} {{ #{path} }}", "", f"`from {TOP} import {name}`", ""]
            entry = _entry(path, described[TOP, name], shown.get(path, ""), "##")
            pages[f"api/{path}.md"] = "\n".join([*head, *entry])
    return {"api/index.md": _index(names), **pages}


def _formatted(described: dict[tuple[str, str], Described]) -> dict[tuple[str, str], Described]:
    signatures = [item.signature for entry in described.values() for item in (entry, *entry.members)]
    formatted = iter(format_signatures(signatures))
    return {
        key: entry._replace(
            signature=next(formatted),
            members=tuple(member._replace(signature=next(formatted)) for member in entry.members),
        )
        for key, entry in described.items()
    }


def _index(names: dict[str, list[str]]) -> str:
    lines = [
        "# API reference",
        "",
        "Every public name, by package. Import from `toolwire` or from one of these packages.",
        "",
        "| package | purpose | names |",
        "|---|---|---|",
    ]
    lines += [f"| [{package}]({package}.md) | {_first_line(package)} | {len(names[package])} |" for package in names]
    return "\n".join([*lines, ""])


def _first_line(package: str) -> str:
    return package_text(package).partition("\n")[0].replace("|", "\\|")


def _package_page(
    package: str,
    names: list[str],
    described: dict[tuple[str, str], Described],
    places: dict[str, str],
    shown: dict[str, str],
) -> str:
    lines = [f"# {package} {{ #{package} }}", "", package_text(package), "", *_example(shown.get(package, ""))]
    lines += ["| name | purpose |", "|---|---|"]
    page = f"api/{package}.md"
    for name in names:
        purpose = described[package, name].text.partition("\n")[0].replace("|", "\\|")
        lines.append(f"| [{name}]({places[f'{package}.{name}'].removeprefix('api/')}) | {purpose} |")
    lines.append("")
    for name in names:
        path = f"{package}.{name}"
        if places[path] == f"{page}#{path}":
            lines += [f"## {name} {{ #{path} }}", "", *_entry(path, described[package, name], "", "###")]
    return "\n".join(lines)


def _entry(path: str, described: Described, example: str, level: str) -> Iterator[str]:
    yield from _code(described.signature)
    yield from (_prose(described.text), "")
    if described.fields:
        yield from ("Attributes:", "", *map(_field, described.fields), "")
    yield from _example(example)
    for member in described.members:
        yield from (
            f"{level} {member.name} {{ #{path}.{member.name} }}",
            "",
            *_code(member.signature),
            _prose(member.text),
            "",
        )


def _prose(text: str) -> str:
    """Return a docstring with its doctests as code blocks."""
    return re.sub(r"^>>> .*(?:\n.+)*", lambda found: f"```pycon\n{found[0]}\n```", text, flags=re.MULTILINE)


def _code(text: str) -> list[str]:
    return ["```python", text, "```", ""] if text else []


def _field(field: Member) -> str:
    text = " ".join(field.text.split())
    return f"- `{field.signature}`" + (f": {text}" if text else "")


def _example(text: str) -> list[str]:
    return [text, ""] if text else []
