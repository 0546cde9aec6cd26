"""The shell commands that `toolwire serve` prints at its start: one per client that can use the configured models."""

from __future__ import annotations

from shlex import quote

from ..ir.terminal import neutralise_line
from .client_models import AvailableModels, ChosenModels, choose_models
from .gateway_models import UNKNOWN_LIMITS, ModelLimits

__all__ = ["ANY_KEY", "claude_variables", "client_commands", "shell_words"]

ANY_KEY = "local"  # a gateway without keys accepts any key
_MAX_NAMES = 6


def client_commands(url: str, available: AvailableModels, key: str = ANY_KEY) -> list[str]:
    """Return one line per client. Coding agents that cannot use any model of the gateway are omitted."""
    lines = [f"  openai  OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}{_model_note(available)}"]
    claude, codex, gemini = (choose_models(client, available) for client in ("claude", "codex", "gemini"))
    if claude is not None:
        variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": key, **claude_variables(claude)}
        lines.append(f"  claude  {shell_words(variables)} claude -p 'Read a.txt'")
    if codex is not None:
        model = "" if codex.main is None else f" --model {quote(codex.main)}"
        command = f"toolwire serve client codex --url {url}{model}"
        if key == ANY_KEY:
            lines.append(f"  codex   {command} --write && TOOLWIRE_KEY={key} codex exec 'Read a.txt'")
        else:  # both commands read the key
            command = f"export TOOLWIRE_KEY={key}; {command} --key-env TOOLWIRE_KEY --write"
            lines.append(f"  codex   {command} && codex exec 'Read a.txt'")
    if gemini is not None:
        model = "" if gemini.main is None else f" -m {quote(gemini.main)}"
        variables = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": key}
        lines.append(f"  gemini  {shell_words(variables)} gemini{model} -p 'Read a.txt'")
    lines.append(f"  ollama  OLLAMA_HOST={url}{_model_note(available)}")
    if available.upstreams:
        upstreams = ", ".join(available.upstreams)
        lines.append(f"  No model has a name here: replace MODEL by a model of the upstream ({upstreams}).")
    return [neutralise_line(line) for line in lines]


def claude_variables(chosen: ChosenModels, limits: ModelLimits = UNKNOWN_LIMITS) -> dict[str, str]:
    """Return the environment variables that select the models of Claude Code, with the known limits of the main one.

    Without them it assumes its own for an unknown name: a smaller model refuses the prompt before Claude Code compacts
    it (anthropics/claude-code#57964).
    """
    if chosen.main is None or chosen.small is None:
        return {}
    variables = {"ANTHROPIC_MODEL": chosen.main, "ANTHROPIC_DEFAULT_HAIKU_MODEL": chosen.small}
    if limits.window is not None:
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(limits.window)
    if limits.max_output is not None:
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(limits.max_output)
    return variables


def shell_words(variables: dict[str, str]) -> str:
    """Format variable assignments for a shell. A value that is itself a variable stays one."""
    return " ".join(f"{name}={value if value.startswith('$') else quote(value)}" for name, value in variables.items())


def _model_note(available: AvailableModels) -> str:
    """Return a shell comment with the names of the models."""
    if not available.names:
        return ""
    rest = len(available.names) - _MAX_NAMES
    names = ", ".join(available.names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
    return f"   # model: {names}"
