"""Translate between wires: fit a request to its target, restore the answer, report every loss."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .detection import Detected, detect
    from .document_translation import (
        translate,
        translate_error,
        translate_request,
        translate_response,
        translate_tools,
    )
    from .emulation import Emulation, emulate
    from .emulation_settings import EmulationSettings
    from .exchange import Exchange
    from .preparation import Prepared, prepare
    from .server_grammar import GuidedRequest, guided_request
    from .shortcuts import calls, list_tools, results
    from .stable_prefix import mark_stable_prefix
    from .stream_translation import StreamTranslation, translate_stream
    from .translation import Translation
    from .versions import encode_best_version
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "preparation": ("Prepared", "prepare"),
            "document_translation": (
                "translate",
                "translate_error",
                "translate_request",
                "translate_response",
                "translate_tools",
            ),
            "translation": ("Translation",),
            "stream_translation": ("StreamTranslation", "translate_stream"),
            "emulation": ("Emulation", "emulate"),
            "emulation_settings": ("EmulationSettings",),
            "detection": ("Detected", "detect"),
            "shortcuts": ("calls", "list_tools", "results"),
            "exchange": ("Exchange",),
            "server_grammar": ("GuidedRequest", "guided_request"),
            "stable_prefix": ("mark_stable_prefix",),
            "versions": ("encode_best_version",),
        },
    )

__all__ = [
    "Detected",
    "Emulation",
    "EmulationSettings",
    "Exchange",
    "GuidedRequest",
    "Prepared",
    "StreamTranslation",
    "Translation",
    "calls",
    "detect",
    "emulate",
    "encode_best_version",
    "guided_request",
    "list_tools",
    "mark_stable_prefix",
    "prepare",
    "results",
    "translate",
    "translate_error",
    "translate_request",
    "translate_response",
    "translate_stream",
    "translate_tools",
]
