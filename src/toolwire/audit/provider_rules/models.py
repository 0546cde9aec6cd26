"""Names of models: the family and the version that a name states. Names without a known prefix have no family."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["ModelName", "parse_model"]

_CLAUDE = re.compile(
    r"claude-(?:(?P<tier>opus|sonnet|haiku|fable|mythos)-(?P<major>\d)(?:-(?P<minor>\d{1,2}))?(?!\d)"
    r"|(?P<old>[1-3])(?:-(?P<old_minor>\d))?(?!\d)(?:-(?P<old_tier>opus|sonnet|haiku))?)"
)
_GPT = re.compile(r"(?:ft:)?(?:chatgpt|gpt)-(?P<major>\d)(?:[.-](?P<minor>\d)(?!\d))?")
_O_SERIES = re.compile(r"(?:ft:)?o(?P<major>\d)(?:-|$)")
_GEMINI = re.compile(r"gemini-(?P<major>\d)(?:[.-](?P<minor>\d)(?!\d))?")


class ModelName(NamedTuple):
    """A name without the path before it, its family ("claude-opus", "gpt", "o", "gemini", ""), and its version."""

    name: str
    family: str = ""
    version: tuple[int, int] = (0, 0)

    @property
    def claude(self) -> bool:
        return self.family.startswith("claude")

    @property
    def openai(self) -> bool:
        return self.family in ("gpt", "o")

    @property
    def reasons(self) -> bool:
        """Return True for OpenAI's reasoning models: the o series, and GPT-5 except its chat variants."""
        return self.family == "o" or (self.family == "gpt" and self.version >= (5, 0) and "-chat" not in self.name)


@lru_cache(256)
def parse_model(name: str) -> ModelName:
    """Parse the name of a model. A path (`models/…`, `publishers/google/models/…`) before the name is ignored."""
    bare = name.rpartition("/")[2].lower()
    dashed = bare.replace(".", "-").replace("@", "-")
    if found := _CLAUDE.search(dashed):
        tier = found["tier"] or found["old_tier"] or ""
        version = (int(found["major"] or found["old"]), int(found["minor"] or found["old_minor"] or 0))
        return ModelName(bare, f"claude-{tier}" if tier else "claude", version)
    for family, pattern in (("gpt", _GPT), ("o", _O_SERIES), ("gemini", _GEMINI)):
        if found := pattern.match(bare):
            minor = found["minor"] if family != "o" else None
            return ModelName(bare, family, (int(found["major"]), int(minor or 0)))
    return ModelName(bare)
