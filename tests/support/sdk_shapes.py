"""Derive the shapes of request bodies from the types of the official SDKs.

python tests/support/sdk_shapes.py    write src/toolwire/audit/provider_rules/shapes/*.toml

The notation is described in `toolwire.audit.provider_rules.shapes`.
"""

import importlib.metadata
import json
import re
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence

import typing_extensions
from google.genai import types as google_types
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from places import ROOT

SHAPES = ROOT / "src" / "toolwire" / "audit" / "provider_rules" / "shapes"
_PLAIN = {str: "str", int: "int", float: "num", bool: "bool", type(None): "null", bytes: "str"}
_GOOGLE_BODY = {
    "contents*": "[@Content]",
    "systemInstruction": "@Content|str",
    "tools": "[@Tool]",
    "toolConfig": "@ToolConfig",
    "safetySettings": "[@SafetySetting]",
    "generationConfig": "@GenerationConfig",
    "cachedContent": "str",
    "labels": "object",
    "modelArmorConfig": "@ModelArmorConfig",
    "serviceTier": "str",
    "store": "bool",
    "model": "str",
}
"""The fields of generateContent: google-genai has no type for the body."""


class Shapes:
    """Collects the shapes that are reachable from a type."""

    def __init__(self):
        self.rows = {}
        self.names = {}

    def name_of(self, kind):
        if kind not in self.names:
            name = re.sub(r"^Beta|Params?$", "", kind.__name__)
            while name in self.names.values():
                name += "_"
            self.names[kind] = name
            self.rows[name] = None
            self.rows[name] = self.row_of(kind)
        return self.names[kind]

    def row_of(self, kind):
        if issubclass(kind, BaseModel):
            fields = {to_camel(name): field.annotation for name, field in kind.model_fields.items()}
            return " ".join(f"{name}:{self.kind_of(hint)}" for name, hint in fields.items())
        hints = typing_extensions.get_type_hints(kind, include_extras=True)
        return " ".join(
            f"{name}{'*' if _is_required(hint) else ''}:{self.kind_of(hint)}" for name, hint in hints.items()
        )

    def kind_of(self, hint):
        alternatives = dict.fromkeys(self.alternatives(hint))
        return "any" if "any" in alternatives else "|".join(alternatives)

    def alternatives(self, hint):
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if hint in _PLAIN:
            return [_PLAIN[hint]]
        if origin in (typing.Required, typing_extensions.Required, typing_extensions.NotRequired, typing.Annotated):
            return self.alternatives(inner[0])
        if origin in (typing.Union, types.UnionType):
            found = [one for each in inner for one in self.alternatives(each)]
            return [one for one in found if not (one.startswith("'") and "str" in found)]
        if origin in (typing.Literal, typing_extensions.Literal):
            # sorted: equal literals share one object, whose order depends on the order of the imports
            return sorted(f"'{one}'" if isinstance(one, str) else _PLAIN[type(one)] for one in inner)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return ["object"]
        if isinstance(origin, type) and issubclass(origin, (Iterable, Sequence, list)):
            return [f"[{self.kind_of(inner[0])}]"]
        return self.class_alternatives(hint)

    def class_alternatives(self, hint):
        if typing_extensions.is_typeddict(hint):
            return [f"@{self.name_of(hint)}"]
        if isinstance(hint, type) and issubclass(hint, BaseModel) and not hint.__module__.startswith("google"):
            return []  # the type of an answer, which the SDKs accept as a shortcut
        if isinstance(hint, type) and issubclass(hint, BaseModel):
            # the schemas of tools and answers have their own rules
            return ["object" if hint is google_types.Schema else f"@{self.name_of(hint)}"]
        if hint is google_types.SchemaUnion or hint is dict or hint is Mapping:
            return ["object"]
        if isinstance(hint, type) and issubclass(hint, str):
            return ["str"]
        return ["any"]


def _is_required(hint):
    return typing.get_origin(hint) in (typing.Required, typing_extensions.Required)


def anthropic_shapes():
    from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming

    found = Shapes()
    row = found.row_of(MessageCreateParamsNonStreaming)
    row = re.sub(r" betas:\S+| stream:\S+| output_format:\S+", "", row)
    return {
        "Body": row + " stream:bool temperature:num top_p:num top_k:int anthropic_version:str anthropic_beta:[str]"
    }, found


def openai_chat_shapes():
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

    found = Shapes()
    row = found.row_of(CompletionCreateParamsNonStreaming)
    return {"Body": re.sub(r" stream:\S+", " stream:bool|null", row)}, found


def openai_responses_shapes():
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

    found = Shapes()
    row = found.row_of(ResponseCreateParamsNonStreaming)
    return {"Body": re.sub(r" stream:\S+", " stream:bool|null", row)}, found


def gemini_shapes():
    found = Shapes()
    for name in ("Content", "Tool", "ToolConfig", "SafetySetting", "GenerationConfig", "ModelArmorConfig"):
        found.name_of(getattr(google_types, name))
    return {"Body": " ".join(f"{name}:{kind}" for name, kind in _GOOGLE_BODY.items())}, found


ADDED = {
    ("openai_responses", "Body"): "client_metadata:object",  # sent by Codex
    ("openai_responses", "EasyInputMessage"): "id:str",  # sent by Codex
    ("openai_chat", "ChatCompletionMessageFunctionToolCall"): "index:int",  # sent by clients that return stream deltas
}
"""Fields that real clients send and the servers accept, although the types do not have them."""
OPTIONAL = {("openai_responses", "FunctionTool"): ("parameters", "strict")}
"""Fields that the types require and the server does not: the AI SDK leaves `strict` out."""
SOURCES = {
    "anthropic": (anthropic_shapes, "anthropic"),
    "openai_chat": (openai_chat_shapes, "openai"),
    "openai_responses": (openai_responses_shapes, "openai"),
    "gemini": (gemini_shapes, "google-genai"),
}


def render(wire):
    """The shapes of a wire as the text of their file."""
    derive, package = SOURCES[wire]
    body, found = derive()
    lines = [
        f"# Generated by tests/support/sdk_shapes.py from {package} {importlib.metadata.version(package)}.",
        "",
    ]
    for name, row in (body | found.rows).items():
        row = " ".join(filter(None, (row, ADDED.get((wire, name)))))
        for field in OPTIONAL.get((wire, name), ()):
            row = row.replace(f"{field}*:", f"{field}:")
        lines.append(f"{name} = {json.dumps(row)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for wire in SOURCES:
        (SHAPES / f"{wire}.toml").write_text(render(wire), encoding="utf-8")
        print(wire, file=sys.stderr)
