"""Translate between wires: fit a request to its target, restore the answer, report every loss."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .comparison.documents import ComparedDocument as ComparedDocument
    from .comparison.documents import Comparison as Comparison
    from .comparison.documents import PlacedLoss as PlacedLoss
    from .comparison.documents import compare as compare
    from .comparison.places import Placed as Placed
    from .emulation.requests import Emulation as Emulation
    from .emulation.requests import emulate as emulate
    from .emulation.settings import EmulationSettings as EmulationSettings
    from .fitting.cache_marks import mark_stable_prefix as mark_stable_prefix
    from .translation.detection import Detected as Detected
    from .translation.detection import detect as detect
    from .translation.documents import StreamTranslation as StreamTranslation
    from .translation.documents import translate as translate
    from .translation.documents import translate_error as translate_error
    from .translation.documents import translate_request as translate_request
    from .translation.documents import translate_response as translate_response
    from .translation.documents import translate_stream as translate_stream
    from .translation.exchange import Exchange as Exchange
    from .translation.outcome import Translation as Translation
    from .translation.preparation import Prepared as Prepared
    from .translation.preparation import encode_best_version as encode_best_version
    from .translation.preparation import prepare as prepare
    from .translation.server_grammar import GuidedRequest as GuidedRequest
    from .translation.server_grammar import guided_request as guided_request
    from .translation.shortcuts import calls as calls
    from .translation.shortcuts import list_tools as list_tools
    from .translation.shortcuts import results as results
    from .translation.tool_lists import translate_tools as translate_tools
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "comparison.documents": "ComparedDocument Comparison PlacedLoss compare",
            "comparison.places": "Placed",
            "emulation.requests": "Emulation emulate",
            "emulation.settings": "EmulationSettings",
            "fitting.cache_marks": "mark_stable_prefix",
            "translation.detection": "Detected detect",
            "translation.documents": (
                "StreamTranslation translate translate_error translate_request translate_response translate_stream"
            ),
            "translation.exchange": "Exchange",
            "translation.outcome": "Translation",
            "translation.preparation": "Prepared encode_best_version prepare",
            "translation.server_grammar": "GuidedRequest guided_request",
            "translation.shortcuts": "calls list_tools results",
            "translation.tool_lists": "translate_tools",
        },
    )
