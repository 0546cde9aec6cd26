"""Convert a page of the repository into a page of the site.

The pages are written for GitHub. Python-Markdown differs in four things: the title of a code block, blank lines around
it, nested lists, and escaped pipes in the code of a table. Links between pages are mapped to the paths of the site, and links to other files
lead to the repository, at the tag of the version.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

__all__ = ["convert", "first_paragraph", "outside_fences", "title"]

REPOSITORY = "https://github.com/toolwire/toolwire"
_LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^(\s*```\w+) ([^\s`{][^\n`]*)$")
_ESCAPED_PIPE = re.compile(r"`[^`\n]*`")


def convert(text: str, page: str, pages: Mapping[str, str], version: str) -> str:
    """Convert the text of a page; `pages` maps a path of the repository to its path on the site."""
    lines: list[str] = []
    was_code = False
    for line, is_code in outside_fences(text):
        if is_code:
            titled = _FENCE.match(line)
            opens = line.startswith("```") and not was_code
            lines += [""] if opens else []
            lines.append(f'{titled[1]} title="{titled[2]}"' if titled else line)
            lines += [""] if line == "```" and was_code else []
            was_code = opens or line != "```"
            continue
        was_code = False
        indent = len(line) - len(line.lstrip(" "))
        line = " " * indent + line
        if line.startswith("|"):
            line = _ESCAPED_PIPE.sub(lambda code: code[0].replace("\\|", "|"), line)
        lines.append(_LINK.sub(_mapped(page, pages, version), line))
    return "\n".join(lines) + "\n"


def outside_fences(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and True if it belongs to a code block."""
    is_code = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        yield line, is_code or is_fence
        is_code ^= is_fence


def _mapped(page: str, pages: Mapping[str, str], version: str) -> Callable[[re.Match[str]], str]:
    folder = posixpath.dirname(pages[page])

    def replace(link: re.Match[str]) -> str:
        target, anchor = link[2], link[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        path = f"{path}/README.md" if f"{path}/README.md" in pages else path
        if path in pages:
            return f"{link[1]}{posixpath.relpath(pages[path], folder or '.')}{anchor}{link[4]}"
        return f"{link[1]}{REPOSITORY}/blob/v{version}/{path}{anchor}{link[4]}"

    return replace


def title(text: str) -> str:
    """Return the first heading."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if not found:
        raise ValueError("the page has no heading; begin it with `# Title`")
    return re.sub(r" \{ #\S+ \}$", "", found[1]).replace("`", "")


def first_paragraph(text: str) -> str:
    """Return the first paragraph as plain text, without links and emphasis."""
    prose = "\n".join("" if is_code else line for line, is_code in outside_fences(text.partition("\n")[2]))
    paragraphs = (part.strip() for part in re.split(r"\n\s*\n", prose))
    paragraph = next((part for part in paragraphs if part and not part.startswith(("#", "|", "<", "-", "["))), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    return " ".join(plain.replace("**", "").split())
