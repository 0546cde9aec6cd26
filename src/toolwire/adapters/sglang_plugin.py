"""The plugin for SGLang, which loads it by the entry point `toolwire` of the group `sglang.srt.plugins`.

SGLang loads the plugins of all installed packages in each of its processes, before it reads its arguments. The parsers are
expensive to import, so they are registered only if an argument names one. Other programs call `register_detectors`.
"""

from __future__ import annotations

import sys

from .. import text
from ..text.engine.format import Format
from .model_format import has_separate_reasoning


def load_plugin() -> None:
    """Register the detectors if the command line names one."""
    if any("toolwire" in argument for argument in sys.argv[1:]):
        register_detectors()


def register_detectors() -> list[str]:
    """Register `toolwire_FORMAT` for every format whose reasoning and calls can be read separately; return the names."""
    from .sglang_detectors import detector_classes

    from sglang.srt.function_call.function_call_parser import FunctionCallParser  # isort: skip
    from sglang.srt.parser.reasoning_parser import ReasoningParser  # isort: skip

    registered = []
    for form in filter(_can_be_read_in_two_steps, map(text.get, text.names())):
        name = f"toolwire_{form.name}"
        reasoning, calls = detector_classes(form)
        FunctionCallParser.ToolCallParserEnum[name] = calls
        if reasoning is not None:
            ReasoningParser.DetectorMap[name] = reasoning
        registered.append(name)
    return registered


def _can_be_read_in_two_steps(form: Format) -> bool:
    """Return whether the reasoning ends before the first call."""
    return has_separate_reasoning(form) and not form.calls_in_reasoning
