"""Call BAML's schema-aligned parser without a model: once for any JSON, once with the schemas as its own classes."""

import types

from baml_py import BamlRuntime
from pydantic import BaseModel, create_model

_CLIENT = """
client<llm> Nobody {
  provider openai
  options {
    model "none"
    api_key "none"
  }
}
type Anything = int | float | bool | string | null | Anything[] | map<string, Anything>
"""
_FUNCTION = """
function {name}() -> {kind} {{
  client Nobody
  prompt #"x"#
}}
"""
_TYPES = {"integer": "int", "number": "float", "boolean": "bool", "string": "string", "null": "null"}


class Baml:
    """Write one function per schema."""

    def __init__(self, schemas: dict) -> None:
        self._schemas = schemas
        self._module = types.ModuleType("classes")
        self._classes: list[str] = []
        functions = [_FUNCTION.format(name="ParseAny", kind="map<string, Anything>")]
        for name, schema in schemas.items():
            functions.append(_FUNCTION.format(name=f"Parse_{name}", kind=self._kind(schema, f"C_{name}")))
        source = "".join([_CLIENT, *self._classes, *functions])
        self._runtime = BamlRuntime.from_files("baml_src", {"baml_src/main.baml": source}, {})
        self._context = self._runtime.create_context_manager()

    def any_json(self, text: str) -> object:
        return self._parse("ParseAny", text)

    def typed(self, text: str, schema: str) -> object:
        return _plain(self._parse(f"Parse_{schema}", text), self._schemas[schema])

    def _parse(self, function: str, text: str) -> object:
        module = self._module
        return self._runtime.parse_llm_response(
            function, text, module, module, module, False, self._context, None, None, {}
        )

    def _kind(self, schema: dict, name: str) -> str:
        said = schema["type"]
        if isinstance(said, list):
            return " | ".join(_TYPES[one] for one in said)
        if said == "array":
            return f"{self._kind(schema['items'], name)}[]"
        if said != "object":
            return _TYPES[said]
        if "properties" not in schema:
            return "map<string, Anything>"
        fields = [
            f"  {key} {self._optional(self._kind(one, f'{name}_{key}'), key in schema['required'])}\n"
            for key, one in schema["properties"].items()
        ]
        self._classes.append(f"class {name} {{\n{''.join(fields)}}}\n")
        setattr(self._module, name, create_model(name, **{key: (object, None) for key in schema["properties"]}))
        return name

    @staticmethod
    def _optional(kind: str, required: bool) -> str:
        return kind if required else f"({kind})?"


def _plain(value: object, schema: dict) -> object:
    """Return the value as JSON. A class cannot represent absent, so None of an optional property counts as absent."""
    if isinstance(value, list):
        return [_plain(one, schema["items"]) for one in value]
    if not isinstance(value, BaseModel):
        return value
    given = {key: (getattr(value, key), one) for key, one in schema["properties"].items()}
    return {
        key: _plain(item, one) for key, (item, one) in given.items() if item is not None or key in schema["required"]
    }
