"""The measured gateways, with their installation, configuration and start."""

import io
import json
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WORK = HERE / ".work"
KEY = "sk-bench-0123456789"
UPSTREAM = 7801  # the port of the mock upstream
TARGETS = ("same", "cross", "paced")


@dataclass(frozen=True)
class Candidate:
    """A gateway. Its targets are a Chat (`same`), an Anthropic (`cross`) and a paced Anthropic upstream (`paced`).

    `models` and `paths`: the model and the path of a request to each target; `target_headers`: headers that depend on it.
    `skipped`: jobs that it cannot do.
    `picks_port`: it chooses its own port, and prints it.
    """

    name: str
    command: Callable[[int, int], list[str]]
    models: Mapping[str, str] = field(default_factory=lambda: {target: target for target in TARGETS})
    paths: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(TARGETS, "/v1/chat/completions"))
    skipped: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=lambda: {"authorization": f"Bearer {KEY}"})
    target_headers: Mapping[str, dict[str, str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    is_slow: bool = False
    picks_port: bool = False


def _python(name: str, *packages: str) -> str:
    folder = WORK / name
    ready = folder / "ready"
    if not ready.exists() or ready.read_text() != "\n".join(packages):
        venv.create(folder, with_pip=True, clear=True)
        install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *packages], check=True)
        ready.write_text("\n".join(packages))
    return str(folder / "bin" / "python")


def _write(name: str, text: str) -> str:
    WORK.mkdir(exist_ok=True)
    path = WORK / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def _toolwire(port: int, upstream: int) -> list[str]:
    from toolwire.gateway.keys import hash_key

    base = f"http://127.0.0.1:{upstream}"
    config = f"""
[upstreams]
chat = {{ base_url = "{base}", wire = "openai_chat" }}
claude = {{ base_url = "{base}", wire = "anthropic" }}
slow = {{ base_url = "{base}/pace", wire = "anthropic" }}
[models]
same = {{ upstream = "chat", model = "m" }}
cross = {{ upstream = "claude", model = "m" }}
paced = {{ upstream = "slow", model = "m" }}
[log]
to = "nowhere"
[keys.bench]
hash = "{hash_key(KEY)}"
requests_per_minute = 100000000
"""
    return [
        sys.executable,
        "-m",
        "toolwire",
        "serve",
        "--quiet",
        "--config",
        _write("toolwire.toml", config),
        "--port",
        str(port),
    ]


def _nginx(port: int, upstream: int) -> list[str]:
    folder = WORK / "nginx"
    folder.mkdir(parents=True, exist_ok=True)
    config = f"""
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder}; client_max_body_size 64m;
  upstream mock {{ server 127.0.0.1:{upstream}; keepalive 64; }}
  server {{ listen 127.0.0.1:{port};
    location / {{ proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }} }}
}}
"""
    return ["nginx", "-c", _write("nginx.conf", config), "-p", str(folder)]


def _litellm(port: int, upstream: int) -> list[str]:
    python = _python("litellm", "litellm[proxy]==1.106.2")
    base = f"http://127.0.0.1:{upstream}"
    rows = [
        ("same", {"model": "openai/m", "api_base": f"{base}/v1", "api_key": "none"}),
        ("cross", {"model": "anthropic/m", "api_base": base, "api_key": "none"}),
        ("paced", {"model": "anthropic/m", "api_base": f"{base}/pace", "api_key": "none"}),
    ]
    config = {
        "model_list": [{"model_name": name, "litellm_params": params} for name, params in rows],
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"num_retries": 0},
    }
    file = _write("litellm.yaml", json.dumps(config))
    return [
        str(Path(python).parent / "litellm"),
        "--config",
        file,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--num_workers",
        "1",
    ]


def _rosetta(port: int, upstream: int) -> list[str]:
    python = _python("rosetta", "llm-rosetta==0.13.0")
    base = f"http://127.0.0.1:{upstream}"
    config = {
        "providers": {
            "openai_chat": {"api_key": "none", "base_url": f"{base}/v1"},
            "anthropic": {"api_key": "none", "base_url": base},
        },
        "models": {"same": "openai_chat", "cross": "anthropic"},
        "server": {"host": "127.0.0.1", "port": port, "open_on_no_keys": True},
    }
    file, data = _write("rosetta.jsonc", json.dumps(config)), str(WORK / "rosetta-data")
    command = str(Path(python).parent / "llm-rosetta-gateway")
    return [command, "--config", file, "--data-dir", data, "--no-banner", "--log-level", "error"]


def _portkey(port: int, _: int) -> list[str]:
    folder = WORK / "portkey"
    gateway = folder / "node_modules" / "@portkey-ai" / "gateway"
    if not gateway.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # newer versions of hono break its streams
        packages = ["@portkey-ai/gateway@1.15.2", "hono@4.9.7", "@hono/node-server@1.14.0"]
        subprocess.run(["npm", "install", "--silent", "--prefix", folder, *packages], check=True)
    return ["node", str(gateway / "build" / "start-server.js"), f"--port={port}", "--headless"]


_PORTKEY_HEADERS = {"x-portkey-custom-host": f"http://127.0.0.1:{UPSTREAM}/v1", "authorization": "Bearer none"}
_PORTKEY_PROVIDERS = {
    target: {"x-portkey-provider": provider} for target, provider in (("same", "openai"), ("cross", "anthropic"))
}


def _tensorzero(_: int, upstream: int) -> list[str]:
    python = _python("tensorzero", "tensorzero==2026.6.0", "openai")
    base = f"http://127.0.0.1:{upstream}"
    config = "".join(
        f"""
[models.{model}]
routing = ["only"]
[models.{model}.providers.only]
type = "{kind}"
model_name = "m"
api_base = "{base}{path}"
api_key_location = "env::NO_KEY"
"""
        for model, kind, path in (
            ("same", "openai", "/v1/"),
            ("cross", "anthropic", "/v1/"),
            ("paced", "anthropic", "/pace/v1/"),
        )
    )
    return [python, str(HERE / "tensorzero_embedded.py"), _write("tensorzero.toml", config)]


def _uvicorn(port: int, _: int) -> list[str]:
    return [sys.executable, str(HERE / "bare_server.py"), str(port)]


def _uvicorn_client(port: int, upstream: int) -> list[str]:
    return [sys.executable, str(HERE / "bare_server.py"), str(port), str(upstream)]


def add_before(commit: str) -> None:
    """Add the gateway of another commit, with the same packages, as the candidate `toolwire-before`."""
    folder = WORK / f"before-{commit}"
    if not folder.exists():
        WORK.mkdir(exist_ok=True)
        source = subprocess.run(["git", "-C", ROOT, "archive", commit, "src"], check=True, stdout=subprocess.PIPE)
        with tarfile.open(fileobj=io.BytesIO(source.stdout)) as archive:
            archive.extractall(folder, filter="data")
    environment = {"PYTHONPATH": str(folder / "src")}
    CANDIDATES["toolwire-before"] = Candidate("toolwire-before", _toolwire, environment=environment)


_OWN_SOURCE = {"PYTHONPATH": str(ROOT / "src")}
# Forwarders take the target from the path, and send the bytes of the request and of the response unchanged.
_FORWARDED = {"same": "/v1/chat/completions", "cross": "/v1/messages", "paced": "/pace/v1/messages"}
_STREAMS = ("burst", "paced", "first")
_PACED = ("paced", "first")

CANDIDATES = {
    "uvicorn": Candidate("uvicorn", _uvicorn, skipped=_STREAMS, environment=_OWN_SOURCE),
    "uvicorn-client": Candidate("uvicorn-client", _uvicorn_client, paths=_FORWARDED, environment=_OWN_SOURCE),
    "toolwire": Candidate("toolwire", _toolwire, environment=_OWN_SOURCE),
    "nginx": Candidate("nginx", _nginx, paths=_FORWARDED),
    "litellm": Candidate(
        "litellm", _litellm, is_slow=True, environment={"LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
    ),
    "llm-rosetta": Candidate("llm-rosetta", _rosetta, skipped=_PACED, is_slow=True),
    "portkey": Candidate(
        "portkey",
        _portkey,
        skipped=_PACED,
        headers=_PORTKEY_HEADERS,
        target_headers=_PORTKEY_PROVIDERS,
        is_slow=True,
    ),
    "tensorzero": Candidate(
        "tensorzero",
        _tensorzero,
        models={target: f"tensorzero::model_name::{target}" for target in TARGETS},
        paths=dict.fromkeys(TARGETS, "/openai/v1/chat/completions"),
        environment={"NO_KEY": "none"},
        picks_port=True,
    ),
}
