"""The measured gateways, with their installation, configuration and start."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

from candidate import KEY, TARGETS, UPSTREAM, Candidate
from installation import WORK, install_python, write_settings
from node_candidates import NODE_CANDIDATES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
__all__ = ["CANDIDATES", "KEY", "MISSING", "UPSTREAM", "WORK", "add_before"]

_LITELLM = "1.109.1"
_ROSETTA = "0.13.0"
_TENSORZERO = "2026.6.0"
# Peers that cannot be measured, with what was tried.
MISSING = {
    "claude-code-router": "3.1.1 requires @the-next-ai/ai-gateway, which the npm registry does not have; 2.0.0 routes only "
    "requests of the Messages API, and answers a Chat request with “Provider 'undefined' not found”",
}


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
[limits]
loop_delay = 10  # the jobs use the whole CPU on purpose; toolwire alone would refuse the excess, as overload.py measures
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
        write_settings("toolwire.toml", config),
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
    return ["nginx", "-c", write_settings("nginx.conf", config), "-p", str(folder)]


def _install_litellm() -> Path:
    # the registry does not have the newest versions of these, which it requires; the first is a list of certificates, the
    # others are for its database and its commercial features
    newest = ("certifi", "litellm-proxy-extras", "litellm-enterprise")
    return install_python("litellm", f"litellm[proxy]=={_LITELLM}", any_version=newest)


def _litellm(port: int, upstream: int) -> list[str]:
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
    file = write_settings("litellm.yaml", json.dumps(config))
    return [
        str(_install_litellm() / "litellm"),
        "--config",
        file,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--num_workers",
        "1",
    ]


def _install_rosetta() -> Path:
    return install_python("rosetta", f"llm-rosetta=={_ROSETTA}")


def _rosetta(port: int, upstream: int) -> list[str]:
    base = f"http://127.0.0.1:{upstream}"
    config = {
        "providers": {
            "openai_chat": {"api_key": "none", "base_url": f"{base}/v1"},
            "anthropic": {"api_key": "none", "base_url": base},
            "slow": {"type": "anthropic", "api_key": "none", "base_url": f"{base}/pace"},
        },
        "models": {"same": "openai_chat", "cross": "anthropic", "paced": "slow"},
        "server": {"host": "127.0.0.1", "port": port, "open_on_no_keys": True},
    }
    file, data = write_settings("rosetta.jsonc", json.dumps(config)), str(WORK / "rosetta-data")
    command = str(_install_rosetta() / "llm-rosetta-gateway")
    return [command, "--config", file, "--data-dir", data, "--no-banner", "--log-level", "error"]


def _install_tensorzero() -> Path:
    return install_python("tensorzero", f"tensorzero=={_TENSORZERO}", "openai")


def _tensorzero(_: int, upstream: int) -> list[str]:
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
    return [
        str(_install_tensorzero() / "python"),
        str(HERE / "tensorzero_embedded.py"),
        write_settings("tensorzero.toml", config),
    ]


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
_NO_STREAMS = dict.fromkeys(("burst", "paced", "first"), "sends a fixed response")

_ALL = (
    Candidate("uvicorn", _uvicorn, skipped=_NO_STREAMS, environment=_OWN_SOURCE),
    Candidate("uvicorn-client", _uvicorn_client, paths=_FORWARDED, environment=_OWN_SOURCE),
    Candidate("toolwire", _toolwire, title="toolwire", environment=_OWN_SOURCE),
    Candidate("nginx", _nginx, paths=_FORWARDED),
    Candidate(
        "litellm",
        _litellm,
        title="LiteLLM",
        version=_LITELLM,
        install=_install_litellm,
        environment={"LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        is_slow=True,
    ),
    Candidate("llm-rosetta", _rosetta, title="llm-rosetta", version=_ROSETTA, install=_install_rosetta, is_slow=True),
    Candidate(
        "tensorzero",
        _tensorzero,
        title="TensorZero",
        version=_TENSORZERO,
        install=_install_tensorzero,
        models={target: f"tensorzero::model_name::{target}" for target in TARGETS},
        paths=dict.fromkeys(TARGETS, "/openai/v1/chat/completions"),
        environment={"NO_KEY": "none", "TENSORZERO_DISABLE_PSEUDONYMOUS_USAGE_ANALYTICS": "1"},
        picks_port=True,
    ),
    *NODE_CANDIDATES,
)
CANDIDATES = {candidate.name: candidate for candidate in _ALL}
