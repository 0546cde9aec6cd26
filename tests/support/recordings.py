"""The requests that real clients sent, and what they were answered."""

import json
from pathlib import Path

from places import TESTS

CLIENTS = TESTS / "fixtures" / "clients"
WIRES = ("anthropic", "bedrock", "gemini", "ollama", "openai_chat", "openai_responses")
_WIRE_OF_PATH = {
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
    "/messages": "anthropic",
    "enerateContent": "gemini",
    "/api/chat": "ollama",
    "/converse": "bedrock",
}


class Recorded:
    """One request of a real client, and what the recording server answered."""

    def __init__(self, path: Path) -> None:
        record = json.loads(path.read_text(encoding="utf-8"))
        self.name = path.stem
        self.body = record.get("body")
        self.answer = record.get("mock_response") or {}
        self.headers = {name.lower(): value for name, value in record["headers"]}
        self.wire = next((wire for part, wire in _WIRE_OF_PATH.items() if part in record["path"]), "")
        if self.wire == "anthropic":
            self.wire = f"anthropic@{self.headers['anthropic-version']}"

    @property
    def bare_wire(self) -> str:
        return self.wire.partition("@")[0]

    @property
    def stream(self) -> bytes:
        return "".join(self.answer.get("sse", ())).encode()

    def __repr__(self) -> str:
        return self.name


RECORDED = [r for r in map(Recorded, sorted(CLIENTS.glob("*.json"))) if r.body]
