"""The documents that all candidates get: what the official clients sent and accepted (tests/fixtures/clients)."""

import json
from pathlib import Path

CLIENTS = Path(__file__).parents[1] / "tests" / "fixtures" / "clients"
FILES = {
    "openai_chat": "openai-py-chat",
    "openai_responses": "openai-py-responses",
    "anthropic": "anthropic-py",
    "gemini": "google-genai-py",
}


def request(wire: str) -> dict:
    """The second turn: two tools, two parallel calls and their results."""
    return json.loads((CLIENTS / f"{FILES[wire]}-nonstream.02.json").read_text())["body"]


def response(wire: str) -> dict:
    """The answer to the first turn: two parallel calls."""
    return json.loads((CLIENTS / f"{FILES[wire]}-nonstream.01.json").read_text())["mock_response"]["json"]
