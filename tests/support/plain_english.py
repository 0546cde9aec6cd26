"""Find the phrases that the language rules of the project exclude (CONTRIBUTING.md).

Run as a script on a checkout, it prints every hit and their number:

    python tests/support/plain_english.py PATH

It reads the docstrings, comments and messages of `src/` and the prose of the Markdown pages. Code is not read: inline
code, fenced blocks, doctests, regular expressions and the allow-list below are left out.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from source_text import comments, walk

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/rules/*.md",
    "docs/tutorials/*.md",
    "docs/migrate/*.md",
    "docs/experiments/*.md",
)
_CODE = re.compile(r"`[^`\n]*`|(?<=\w)\.\w+|\b\w+\(")  # inline code, an attribute, a call
WITH_TEXTS = (ast.Expr, ast.Call, ast.JoinedStr, ast.Constant)
MESSAGE_WORDS = 3  # a string literal with fewer words is a name or a value


class Text(NamedTuple):
    """A piece of prose: `kind` is docstring, comment, message or page."""

    path: str
    line: int
    kind: str
    text: str


class Pattern(NamedTuple):
    """An excluded phrase, the reason, and the kinds of text in which it is excluded."""

    name: str
    regex: re.Pattern[str]
    reason: str
    kinds: frozenset[str] = frozenset({"docstring", "comment", "message", "page"})


class Allowed(NamedTuple):
    """A text that may contain excluded phrases: `part` is a substring of it."""

    path: str
    part: str
    reason: str


class Hit(NamedTuple):
    path: str
    line: int
    pattern: Pattern
    found: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.pattern.name}: {self.found!r} ({self.pattern.reason})"


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b", re.IGNORECASE)


_VERBS = (
    r"is|was|are|were|has|have|had|comes?|came|goes|went|asks?|asked|wants?|waits?|does|did|do|can|may|cannot|might|must"
    r"|stands?|says?|said|needs?|uses?|takes?|gives?|gets?|holds?|keeps?|knows?|follows?|would|could|should|will|only"
)
_SUBJECTS = r"there|it|they|we|you|a|an|the|its|their|this|that|these|those|one|each|every|no|some|came"

PATTERNS = (
    Pattern(
        "clause first",
        re.compile(r"\A(?:What|Who|Where|Which|How|Why|That|The same (?:as|but|for|in|of|when|with))\b(?![^.]*\?)"),
        "start with an imperative or a noun phrase",
        frozenset({"docstring", "comment", "message"}),
    ),
    Pattern(
        "whether first",
        re.compile(r"\AWhether\b"),
        "a predicate returns something: `Return whether …`",
        frozenset({"docstring"}),
    ),
    Pattern(
        "clause heading", re.compile(r"\A#+ (?:What|Who|Where|Which|How|Why|That)\b"), "a heading is a noun phrase"
    ),
    Pattern(
        "who/what clause",
        re.compile(rf"\b(?:who|what)\s+(?:{_VERBS}|{_SUBJECTS})\b(?![^.\n]*\?)", re.IGNORECASE),
        "name the thing: a noun instead of a relative clause",
    ),
    Pattern("the same for who", _any(r"the same for (?:who|what)"), "name the difference: `Like x, but …`"),
    Pattern("indefinite person", _any("nobody", "somebody", "anybody", "whoever"), "name the client, user or caller"),
    Pattern("behind", _any("behind"), "`after` for an order, `beyond` or `through` for a proxy"),
    Pattern(
        "stands",
        re.compile(r"\b(?:stood|stand(?:s|ing)?)\b(?! for\b| alone\b| in for\b)", re.IGNORECASE),
        "`is`",
    ),
    Pattern(
        "words",
        re.compile(r"(?<!bare )(?<!reserved )\bwords?\b(?! set| boundar)", re.IGNORECASE),
        "`message` or `text`",
    ),
    Pattern(
        "speech",
        _any("says?", "said", "saying", "tells?", "told", "telling", "heard", "hears?", "speaks?", "spoken", "hush"),
        "programs return, raise, log, report and receive",
    ),
    Pattern("comes of it", _any(r"(?:came|comes?) of (?:it|this|that|them)", "of its own accord"), "`the result`"),
    Pattern("may we in", _any("may we", "is there", "at hand", "alike"), "use the term of art"),
    Pattern("than nothing", _any("than nothing", "has to be more than"), "`must be positive, got 0`"),
    Pattern(
        "question",
        re.compile(r"\A(?!.*\bdid you mean\b).*[\w}'\"]\?\s*\Z", re.IGNORECASE | re.DOTALL),
        "a hint is an imperative; only `did you mean …?` is idiomatic",
        frozenset({"message"}),
    ),
)

_PROMPT = "a prompt for a model: its wording is data and was measured"
_USER = "a question of a user, as an example"
_PINNED = "a vector contains this text"

ALLOWED = (
    Allowed("src/toolwire/audit/quality_rules.py", "word", "similarity is computed over real words"),
    Allowed("src/toolwire/audit/tokens.py", "word", "tokens are estimated from real words"),
    Allowed(
        "src/toolwire/audit/provider_rules/openai_shared.py", "must contain the word", "OpenAI's own error message"
    ),
    Allowed("src/toolwire/audit/injection_rules.py", "do not|don't|never|must not", "the wording that the rule finds"),
    Allowed("src/toolwire/audit/injection_rules.py", "without|avoid", "the wording that the rule finds"),
    Allowed("docs/audit.md", '"do not tell the user"', "the wording that the rule finds"),
    Allowed("docs/rules/TW112.md", "must contain the word", "OpenAI's own error message"),
    Allowed("src/toolwire/ir/prompt_size.py", "word", "the least tokens of a prompt are its real words"),
    Allowed("docs/gateway.md", "the number of its words", "the least tokens of a prompt are its real words"),
    Allowed("src/toolwire/run/tools/words.py", "word", "requests and tools are compared by real words"),
    Allowed("src/toolwire/cli/terminal/layout.py", "word", "lines wrap between real words"),
    Allowed("docs/glossary.md", "searched by words", "an index contains real words"),
    Allowed("docs/retrieval.md", "word", "an index contains real words"),
    Allowed("src/toolwire/cli/tools/evaluation.py", "word", "an index contains real words"),
    Allowed("src/toolwire/cli/tools/index.py", "word", "an index contains real words"),
    Allowed("src/toolwire/cli/tools/groups.py", "word", "an index contains real words"),
    Allowed("src/toolwire/cli/tools/command.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/api_call.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/documents.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/index.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/postgres_index.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/qdrant_index.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/ranking.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/ranking.py", "word", "the words that a query and a tool have in common"),
    Allowed("src/toolwire/retrieve/shared_index.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/word_index.py", "word", "an index contains real words"),
    Allowed("src/toolwire/local/nearest.py", "word", "functions are ranked by real words"),
    Allowed("src/toolwire/run/tools/words.py", "word", "it splits texts into real words"),
    Allowed("src/toolwire/retrieve/evaluation.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/index_file.py", "word", "an index contains real words"),
    Allowed("src/toolwire/retrieve/qdrant_index.py", "ords", "an index contains real words"),
    Allowed("src/toolwire/retrieve/section_file.py", "word", "an index contains real words"),
    *(
        Allowed(f"src/toolwire/retrieve/commands/{name}.py", "word", "the words of a command line, a text or a request")
        for name in (
            *(
                "catalogue",
                "command",
                "command_index",
                "command_tool",
                "effects",
                "manual_text",
                "manuals",
                "read_only",
            ),
        )
    ),
    *(
        Allowed(path, "words", "the words of a request")
        for path in (
            "src/toolwire/cli/do/command.py",
            "src/toolwire/cli/do/execution.py",
            "src/toolwire/cli/do/candidates.py",
            "docs/do.md",
        )
    ),
    Allowed("src/toolwire/retrieve/commands/common_tasks.py", "w", "tasks as users describe them"),
    Allowed("src/toolwire/bridge/emulation/requests.py", "Answer in words; do not call a function.", _PROMPT),
    Allowed("src/toolwire/bridge/emulation/requests.py", "and say nothing else.", _PROMPT),
    Allowed("src/toolwire/cli/agent/chat.py", 'echo "Say hello."', _USER),
    Allowed("src/toolwire/cli/demo.py", "Weather in Paris?", _USER),
    Allowed("src/toolwire/cli/demo_details.py", "Weather in Paris and Rome?", _USER),
    Allowed("src/toolwire/cli/serve/demo_gateway.py", "What is the weather in Paris?", _USER),
    Allowed("src/toolwire/local/plan.py", "the result", _PROMPT),
    Allowed("src/toolwire/local/plan.py", "None of these functions does what the user asks for.", _PROMPT),
    Allowed("src/toolwire/run/tools/refusal.py", "None of these functions does what the user asks for.", _PROMPT),
    Allowed("src/toolwire/text/engine/prompt.py", "To call a function, write exactly this", _PROMPT),
    Allowed(
        "src/toolwire/wire/gemini/part_writer.py",
        "words of a result",
        "the name of a loss, which clients may filter by",
    ),
    Allowed("src/toolwire/wire/openai_fault.py", "`toolwire audit` finds what is wrong with it", _PINNED),
    Allowed("docs/experiments/toolkengpt.md", "twice, one word", _PROMPT),
    Allowed("docs/violations.md", "a word that is only near the enum", _PINNED),
)


def python_texts(path: str, source: str) -> Iterator[Text]:
    """Yield the docstrings, comments and messages of a module."""
    return texts_of_nodes(path, source, walk(ast.parse(source)))


def texts_of_nodes(path: str, source: str, nodes: list[ast.AST]) -> Iterator[Text]:
    """Like `python_texts`; `nodes` are the module's."""
    yield from _strings(path, nodes)
    yield from (Text(path, comment.line, "comment", comment.text) for comment in comments(source))


def _strings(path: str, nodes: list[ast.AST]) -> Iterator[Text]:
    skipped: set[ast.AST] = set()
    for node in nodes:
        if type(node) not in WITH_TEXTS or node in skipped:
            continue
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                skipped.add(constant)
                yield Text(path, node.lineno, "docstring", _without_examples(text))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
                skipped.update(walk(node))
            case ast.JoinedStr():
                skipped.update(part for part in node.values if isinstance(part, ast.Constant))
                yield from _message(path, node, _template(node))
            case ast.Constant(value=str(text)):
                yield from _message(path, node, text)


def _template(node: ast.JoinedStr) -> str:
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def _message(path: str, node: ast.expr, text: str) -> Iterator[Text]:
    if len(text.split()) >= MESSAGE_WORDS:
        yield Text(path, node.lineno, "message", text)


def _without_examples(docstring: str) -> str:
    """Blank the doctests of a docstring; the number of lines stays the same."""
    lines, example = [], False
    for line in docstring.split("\n"):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        lines.append("" if example else line)
    return "\n".join(lines)


def page_texts(path: str, source: str) -> Iterator[Text]:
    """Yield the paragraphs of a Markdown page outside fenced code blocks."""
    fenced = False
    block: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        fenced = fenced != fence
        if line.strip() and not fence and not fenced:
            block.append(line)
        elif block:
            yield Text(path, number - len(block), "page", "\n".join(block))
            block = []


def all_page_texts(root: Path) -> Iterator[Text]:
    """Yield the paragraphs of all pages of a checkout."""
    for page in PAGES:
        for file in sorted(root.glob(page)):
            yield from page_texts(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))


def hits(text: Text) -> Iterator[Hit]:
    """Yield the excluded phrases of a text."""
    prose = _CODE.sub("``", text.text)
    for pattern in PATTERNS:
        if text.kind in pattern.kinds:
            for found in pattern.regex.finditer(prose):
                line = text.line + prose.count("\n", 0, found.start())
                yield Hit(text.path, line, pattern, found.group().strip())


def is_allowed(text: Text, entry: Allowed) -> bool:
    return text.path == entry.path and entry.part in text.text


def scan(texts: Iterable[Text]) -> tuple[list[Hit], list[Allowed]]:
    """Return the excluded phrases of all texts, and the entries of the allow-list that they no longer need."""
    reported: list[Hit] = []
    used: set[Allowed] = set()
    for text in texts:
        found = list(hits(text))
        entries = [entry for entry in ALLOWED if found and is_allowed(text, entry)]
        used.update(entries)
        if not entries:
            reported += found
    return reported, [entry for entry in ALLOWED if entry not in used]


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    sources = {file: file.read_text(encoding="utf-8") for file in sorted((root / "src").rglob("*.py"))}
    modules = (python_texts(file.relative_to(root).as_posix(), source) for file, source in sources.items())
    found, _ = scan(chain(*modules, all_page_texts(root)))
    for hit in found:
        print(hit)
    print(f"{len(found)} hits in {len({hit.path for hit in found})} files")


if __name__ == "__main__":
    main()
