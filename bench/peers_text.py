"""Parse tool calls in text with the peers: sglang's detectors and the response parser of transformers.

sglang is an inference engine; its detectors are a few independent modules of it. They are imported unchanged from the
wheel. Obstacles are replaced for the import: the package's own `__init__`, which starts torch, and packages that a module of
helpers imports but the detectors never call.
"""

import json
import sys
import types
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

STAND_INS = {"pybase64": (), "requests": (), "IPython": (), "IPython.display": ("HTML", "display")}
DETECTORS = {
    "hermes": ("hermes_detector", "HermesDetector"),
    "qwen3_xml": ("qwen3_coder_detector", "Qwen3CoderDetector"),
    "llama3_json": ("llama32_detector", "Llama32Detector"),
    "glm45": ("glm4_moe_detector", "Glm4MoeDetector"),
    "harmony": ("gpt_oss_detector", "GptOssDetector"),
}


class Sglang:
    """Return the detectors of the wheel, by the name of our format."""

    package = "sglang.srt.function_call"

    def __init__(self, tools: list[dict]) -> None:
        _stand_in()
        tool = import_module("sglang.srt.entrypoints.openai.protocol").Tool
        self.tools = [tool(**one) for one in tools]
        self.name = f"sglang {version('sglang')}"

    def imports(self) -> dict[str, list[str]]:
        """Return the detector modules by the reason why they cannot be imported; empty for those that can."""
        found: dict[str, list[str]] = {}
        for file in sorted(Path(next(iter(import_module(self.package).__path__))).glob("*.py")):
            if "class" in file.read_text(encoding="utf-8") and file.stem.endswith(("_detector", "_m2", "_m3")):
                try:
                    import_module(f"{self.package}.{file.stem}")
                    problem = ""
                except Exception as error:
                    problem = f"{type(error).__name__}: {error}"
                found.setdefault(problem, []).append(file.stem)
        return found

    def has(self, form: str) -> bool:
        return form in DETECTORS

    def stream(self, form: str) -> Callable[[str], object]:
        return partial(self._detector(form).parse_streaming_increment, tools=self.tools)

    def given(self, answer: object) -> str:
        """Return the argument text in a result of `stream`."""
        return "".join(call.parameters for call in answer.calls)

    def whole(self, form: str, text: str) -> dict:
        return json.loads(self._detector(form).detect_and_parse(text, self.tools).calls[0].parameters)

    def _detector(self, form: str):
        module, name = DETECTORS[form]
        return getattr(import_module(f"{self.package}.{module}"), name)()


def _stand_in() -> None:
    for name, attributes in STAND_INS.items():
        module = types.ModuleType(name)
        module.__path__ = []
        for attribute in attributes:
            setattr(module, attribute, object)
        sys.modules[name] = module
    package = types.ModuleType("sglang")
    package.__path__ = list(find_spec("sglang").submodule_search_locations)
    sys.modules["sglang"] = package


_CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
_NAMED = {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.parameters}"}}
_PARAMETER = r"<parameter=(?P<key>[^>]+)>{edge}(?P<value>.*?){edge}</parameter>"
_PAIR = r"<arg_key>(?P<key>[^<]+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"


def _tags(pattern: str) -> dict:
    return {
        "content": "xml-inline",
        "content_args": {"tag_pattern": pattern, "value_parser": {"name": "text", "args": {"strip": False}}},
        "transform": _CALL,
    }


REGIONS = {
    "hermes": {
        "open": "<tool_call>",
        "close": "</tool_call>",
        "content": "json",
        "transform": {"type": "function", "function": "{content}"},
    },
    "qwen3_xml": {
        "open_pattern": r"<tool_call>\s*<function=(?P<name>[^>]+)>",
        "close": "</tool_call>",
        **_tags(_PARAMETER.format(edge="\n?")),
    },
    "function_xml": {
        "open_pattern": r"<function=(?P<name>[^>]+)>",
        "close": "</function>",
        **_tags(_PARAMETER.format(edge="")),
    },
    "llama3_json": {"open": "<|python_tag|>", "close": "<|eom_id|>", "content": "json", "transform": _NAMED},
    "glm45": {"open_pattern": r"<tool_call>(?P<name>[^\n<]+)", "close": "</tool_call>", **_tags(_PAIR)},
    "mistral_v11": {
        "open_pattern": r"\[TOOL_CALLS\](?P<name>[^\[]+)\[ARGS\]",
        "content": "json",
        "transform": _CALL,
    },
    "deepseek_v31": {
        "open_pattern": r"<｜tool▁call▁begin｜>(?P<name>[^<]+)<｜tool▁sep｜>",
        "close": "<｜tool▁call▁end｜>",
        "content": "json",
        "transform": _CALL,
    },
    "kimi_k2": {
        "open_pattern": r"<\|tool_call_begin\|>functions\.(?P<name>[^:]+):\d+<\|tool_call_argument_begin\|>",
        "close": "<|tool_call_end|>",
        "content": "json",
        "transform": _CALL,
    },
    "harmony": {
        "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>\S+) <\|constrain\|>json<\|message\|>",
        "close": "<|call|>",
        "content": "json",
        "transform": _CALL,
    },
}


class Transformers:
    """The response parser, with our own response template for each format."""

    def __init__(self, tools: list[dict]) -> None:
        from transformers.utils import chat_parsing

        self.parser = chat_parsing.ResponseParser
        self.tools = tools
        self.name = f"transformers {version('transformers')}"
        load = import_module("transformers.utils.chat_parsing.response_templates").load_response_template
        self.templates = {form: load(_template(region)) for form, region in REGIONS.items()}

    def has(self, form: str) -> bool:
        return form in REGIONS

    def stream(self, form: str) -> Callable[[str], object]:
        return self.parser(self.templates[form], prefix="", tools=self.tools).feed

    def given(self, answer: object) -> str:
        """Return nothing: an argument is available when its region closes. Before that there is only its raw text."""
        return "".join(json.dumps(event["value"]) for event in answer if event["type"] == "region_close")

    def whole(self, form: str, text: str) -> dict:
        parser = self.parser(self.templates[form], prefix="", tools=self.tools)
        parser.feed(text)
        return parser.finalize()[0]["tool_calls"][0]["function"]["arguments"]

    def count(self, form: str, text: str) -> tuple[int, int]:
        """Return the number of calls in the text, and the length of the text around them."""
        parser = self.parser(self.templates[form], prefix="", tools=self.tools)
        parser.feed(text)
        message = parser.finalize()[0]
        return len(message.get("tool_calls") or ()), len((message.get("content") or "").strip("\n"))


def _template(region: dict) -> dict:
    fields = {"content": {"content": "text"}, "tool_calls": {**region, "repeats": True}}
    return {"start_anchor": "<|im_start|>assistant\n", "defaults": {"role": "assistant"}, "fields": fields}
