"""The documents for all candidates: recorded requests and responses of the official clients (tests/fixtures/clients)."""

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
    """Return the second turn: two tools, two parallel calls and their results."""
    return json.loads((CLIENTS / f"{FILES[wire]}-nonstream.02.json").read_text())["body"]


def response(wire: str) -> dict:
    """Return the response to the first turn: two parallel calls."""
    return json.loads((CLIENTS / f"{FILES[wire]}-nonstream.01.json").read_text())["mock_response"]["json"]
