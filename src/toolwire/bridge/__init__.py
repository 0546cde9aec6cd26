"""Translate between wires: fit a request to its target, restore the answer, report every loss."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .emulation.requests import Emulation, emulate
    from .emulation.settings import EmulationSettings
    from .fitting.cache_marks import mark_stable_prefix
    from .translation.detection import Detected, detect
    from .translation.documents import (
        StreamTranslation,
        translate,
        translate_error,
        translate_request,
        translate_response,
        translate_stream,
    )
    from .translation.exchange import Exchange
    from .translation.outcome import Translation
    from .translation.preparation import Prepared, encode_best_version, prepare
    from .translation.server_grammar import GuidedRequest, guided_request
    from .translation.shortcuts import calls, list_tools, results
    from .translation.tool_lists import translate_tools
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "translation.preparation": ("Prepared", "encode_best_version", "prepare"),
            "translation.documents": (
                "StreamTranslation",
                "translate",
                "translate_error",
                "translate_request",
                "translate_response",
                "translate_stream",
            ),
            "translation.tool_lists": ("translate_tools",),
            "translation.outcome": ("Translation",),
            "emulation.requests": ("Emulation", "emulate"),
            "emulation.settings": ("EmulationSettings",),
            "translation.detection": ("Detected", "detect"),
            "translation.shortcuts": ("calls", "list_tools", "results"),
            "translation.exchange": ("Exchange",),
            "translation.server_grammar": ("GuidedRequest", "guided_request"),
            "fitting.cache_marks": ("mark_stable_prefix",),
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
