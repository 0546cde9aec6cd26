"""Calls of Functionary 3.2: messages to recipients, each after three angle brackets; `all` is the user.

`>>>all` Let me look. `>>>f` {"a": 1}, with a line break after each name.
"""

from __future__ import annotations

from .engine.format import Format
from .engine.recipient_calls import RecipientCalls

__all__ = ["FORMAT"]

FORMAT = Format(
    name="functionary_v32",
    title=">>>name and JSON on the next line",
    families=("*functionary*v3.2*",),
    calls=RecipientCalls(),
    noise=("<|eot_id|>",),
)
