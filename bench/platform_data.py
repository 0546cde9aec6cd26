"""The catalogue of `platform_catalogue.py`: endpoints of real REST services, chosen by a fixed seed, and requests of users.

The declarations are public: OpenAPI documents of GitHub and OpenAI, and the specs of Gorilla's API zoo. The requests in
`platform_requests.jsonl` were written by hand, in other words than the declarations where a person would use other words,
for endpoints that were drawn at random, and before any retriever was run on them.
"""

import json
import random
import re
from typing import NamedTuple

from retrieval_data import DATA, HERE, read_lines
from toolwire import Tool

SEED = 13
CATALOGUE = 520
LARGE_CATALOGUE = 5_000


class Service(NamedTuple):
    """A service: its endpoints in the small catalogue, the file of its declarations, and a prefix of their names."""

    count: int
    file: str
    prefix: str = ""


SERVICES = {
    "github": Service(60, "tool_schemas/openapi_github.jsonl"),
    "openai": Service(60, "tool_schemas/openapi_openai.jsonl"),
    "datadog": Service(60, "apizoo/Datadog_API.json"),
    "servicenow": Service(50, "apizoo/servicenow.json"),
    "zoom_phone": Service(40, "apizoo/Zoom_API.json", "Zoom Phone API"),
    "zoom_meetings": Service(40, "apizoo/Zoom_API.json", "Zoom REST API"),
    "zoom_chat": Service(30, "apizoo/Zoom_API.json", "Zoom Team Chat API"),
    "google_calendar": Service(30, "apizoo/Google_Calendar_API.json"),
    "google_drive": Service(30, "apizoo/Google_Drive_API.json"),
    "youtube": Service(30, "apizoo/Youtube_API.json"),
    "oracle_integration": Service(30, "apizoo/REST_API_for_Oracle_Integration_3.json"),
    "oracle_documents": Service(30, "apizoo/REST_API_for_Documents.json"),
    "oracle_database": Service(20, "apizoo/Oracle_REST_Data_Services_API.json"),
    "google_sheets": Service(10, "apizoo/Google_Sheets_API.json"),
}
MORE_SERVICES = {  # only in the large catalogue
    "zoom_other": Service(0, "apizoo/Zoom_API.json", "Zoom "),
    "oracle_process": Service(0, "apizoo/REST_API_for_Oracle_Cloud_Infrastructure_Process_Automation.json"),
    "primavera": Service(0, "apizoo/Oracle_Primavera_Cloud_REST_API.json"),
}
_MARKUP = re.compile(r"<[^>]{1,80}>")
_OTHER = re.compile(r"[^A-Za-z0-9]+")


class Endpoint(NamedTuple):
    service: str
    tool: Tool

    @property
    def id(self) -> str:
        return f"{self.service}/{self.tool.name}"


def load_catalogue() -> list[Endpoint]:
    """Return the 520 endpoints of the 14 services."""
    chosen = []
    for name, service in SERVICES.items():
        endpoints = _read_service(name, service)
        chosen += random.Random(f"{SEED} {name}").sample(endpoints, service.count)
    assert len(chosen) == CATALOGUE
    return chosen


def load_large_catalogue() -> list[Endpoint]:
    """Return 5,000 endpoints: the 520, and others of the same services and of three more."""
    chosen = load_catalogue()
    known = {endpoint.id for endpoint in chosen}
    read = {endpoint.tool.description for endpoint in chosen}
    others = []
    for name, service in {**SERVICES, **MORE_SERVICES}.items():
        for endpoint in _read_service(name, service):
            is_repeated = name == "zoom_other" and endpoint.tool.description in read
            if endpoint.id not in known and not is_repeated:
                others.append(endpoint)
                read.add(endpoint.tool.description)
    return chosen + random.Random(SEED).sample(others, LARGE_CATALOGUE - len(chosen))


def load_requests() -> list[dict]:
    """Return the requests of users: `request`, and `endpoints`, the ids that are right (usually one)."""
    return read_lines(HERE / "platform_requests.jsonl")


def _read_service(name: str, service: Service) -> list[Endpoint]:
    path = DATA / service.file
    lines = read_lines(path) if path.suffix == ".jsonl" else json.loads(path.read_text("utf-8"))
    tools = [
        Tool(line["name"], line["description"], line["input_schema"]) if "input_schema" in line else _read_spec(line)
        for line in lines
        if line.get("api_name", "").startswith(service.prefix)
    ]
    return [Endpoint(name, tool) for tool in {tool.name: tool for tool in tools}.values()]


def _read_spec(spec: dict) -> Tool:
    """Return a spec of the API zoo as a tool."""
    title = spec["api_name"].partition(" - ")[2] or spec["api_name"]
    if spec["api_call"].startswith("servicenow."):
        title = spec["api_call"].removeprefix("servicenow.").partition("(")[0]
    properties, required = {}, []
    for name, text in (spec.get("api_arguments") or {}).items():
        text = text.get("description", "") if isinstance(text, dict) else str(text)
        if text.startswith("[REQUIRED]"):
            required.append(name)
        kind, _, rest = text.removeprefix("[REQUIRED]").strip().partition(":")
        known = kind if kind in ("string", "integer", "number", "boolean", "array", "object") else None
        properties[name] = {"type": known or "string", "description": _clean(rest if known else text)}
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(_OTHER.sub("_", title).strip("_"), _clean(spec["functionality"]), schema)


def _clean(text: str) -> str:
    return " ".join(_MARKUP.sub(" ", text).split())
