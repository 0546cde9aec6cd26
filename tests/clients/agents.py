"""How to run each coding agent without a terminal, with a fake key and the gateway's address."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

KEY = "not-a-key"
MODEL = "scripted"
PROMPT = "Read the notes of this folder and tell me what they say."


class Agent(NamedTuple):
    """A coding agent. `read` returns the call that reads a file, or None if the agent puts files into its prompt.

    `settle` writes the agent's settings into its home. `finish` is the tool with which it expects the final answer.
    `parallel` is False if the agent runs only one call of a turn.
    """

    name: str
    package: str
    front: str
    command: tuple[str, ...]
    environment: Callable[[str], dict[str, str]]
    read: Callable[[Path], tuple[str, dict[str, Any]]] | None
    settle: Callable[[Path, str], None] = lambda home, url: None
    finish: str | None = None
    parallel: bool = True


def codex_settings(home: Path, url: str, more: str = "") -> None:
    folder = home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "toolwire"\n\n'
        f'[model_providers.toolwire]\nname = "toolwire"\nbase_url = "{url}/v1"\nenv_key = "TOOLWIRE_KEY"\n'
        f'wire_api = "responses"\nmodel_catalog_url = "{url}/v1/models"\n{more}'
    )


def _gemini_settings(home: Path, url: str) -> None:
    folder = home / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))


def _opencode_settings(home: Path, url: str) -> None:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    options = {"baseURL": f"{url}/v1", "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {MODEL: {"tool_call": True}}}
    (folder / "opencode.json").write_text(json.dumps({"provider": {"toolwire": provider}, "autoupdate": False}))


AGENTS = (
    Agent(
        "Claude Code",
        "@anthropic-ai/claude-code",
        "anthropic",
        ("claude", "-p", PROMPT, "--model", MODEL, "--allowedTools", "Read"),
        lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        lambda path: ("Read", {"file_path": str(path)}),
    ),
    Agent(
        "Codex",
        "@openai/codex",
        "openai_responses",
        ("codex", "exec", "--skip-git-repo-check", "--sandbox", "read-only", PROMPT),
        lambda url: {"TOOLWIRE_KEY": KEY},
        lambda path: ("exec_command", {"cmd": f"cat {path}"}),
        codex_settings,
    ),
    Agent(
        "Gemini CLI",
        "@google/gemini-cli",
        "gemini",
        ("gemini", "-p", PROMPT, "--model", MODEL, "--skip-trust"),
        lambda url: {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url},
        lambda path: ("read_file", {"file_path": str(path)}),
        _gemini_settings,
    ),
    Agent(
        "Qwen Code",
        "@qwen-code/qwen-code",
        "openai_chat",
        ("qwen", "-p", PROMPT, "--auth-type", "openai"),
        lambda url: {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL},
        lambda path: ("read_file", {"file_path": str(path)}),
    ),
    Agent(
        "opencode",
        "opencode-ai",
        "openai_chat",
        ("opencode", "run", "--model", f"toolwire/{MODEL}", PROMPT),
        lambda url: {},
        lambda path: ("read", {"filePath": str(path)}),
        _opencode_settings,
    ),
    Agent(
        "Cline",
        "cline",
        "openai_chat",
        # Cline declares tools only to models that it knows; to others it describes them in the prompt.
        ("sh", "-c", f'cline auth -p openai -k {KEY} -m gpt-5.1 -b "$BASE_URL" && cline --yolo --json "{PROMPT}"'),
        lambda url: {"BASE_URL": f"{url}/v1"},
        lambda path: ("read_file", {"path": path.name}),
        finish="attempt_completion",
        parallel=False,
    ),
    Agent(
        "aider",
        "aider-chat",
        "openai_chat",
        (
            "aider",
            "--model",
            f"openai/{MODEL}",
            "--no-git",
            "--yes-always",
            "--no-analytics",
            "--no-check-update",
            "--no-show-model-warnings",
            "--message",
            PROMPT,
            "note-01.txt",
            "note-02.txt",
        ),
        lambda url: {
            "OPENAI_API_BASE": f"{url}/v1",
            "OPENAI_API_KEY": KEY,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise it is downloaded
        },
        None,
    ),
)
