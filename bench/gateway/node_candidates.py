"""The measured gateways that are programs of node."""

import json
import os
import shutil
import subprocess
import time
from http.client import HTTPConnection
from pathlib import Path

from candidate import TARGETS, UPSTREAM_URL, Candidate
from installation import WORK, find_node, install_node

_PORTKEY = "1.15.2"
_NINE_ROUTER = "0.5.69"
_OMNIROUTE = "3.7.9"
_SETUP_PORT = 7790
_PASSWORD = "bench"
_STARTING = 120.0  # seconds
# Both routers store their settings in a database. A prefix of a model's name selects the upstream.
_ROUTES = (
    ("same", "openai-compatible", "/v1"),
    ("cross", "anthropic-compatible", "/v1"),
    ("paced", "anthropic-compatible", "/pace/v1"),
)


def _install_portkey() -> Path:
    return install_node("portkey", f"@portkey-ai/gateway@{_PORTKEY}") / "@portkey-ai" / "gateway"


def _portkey(port: int, _: int) -> list[str]:
    return [str(find_node()), str(_install_portkey() / "build" / "start-server.js"), f"--port={port}", "--headless"]


def _portkey_route(provider: str, path: str) -> dict[str, str]:
    return {"x-portkey-provider": provider, "x-portkey-custom-host": f"{UPSTREAM_URL}{path}"}


def _install_nine_router() -> Path:
    return install_node("9router", f"9router@{_NINE_ROUTER}") / "9router" / "app" / "custom-server.js"


def _install_omniroute() -> Path:
    # its interface requires a version of this package that the registry does not have
    overrides = {"mdast-util-to-markdown-cjk-friendly": "1.0.0"}
    modules = install_node("omniroute", f"omniroute@{_OMNIROUTE}", overrides=overrides, compiled=("better-sqlite3",))
    app = modules / "omniroute" / "app"
    compiled = Path("better-sqlite3/build/Release/better_sqlite3.node")
    if not (target := app / "node_modules" / compiled).exists():
        target.parent.mkdir(parents=True)
        shutil.copy(modules / compiled, target)
    return app / "server.js"


def _router(name: str, script: Path, port: int) -> list[str]:
    """Return the command of 9router or OmniRoute, which get the port and the folder of their data in variables."""
    if not (WORK / f"{name}-data" / "ready").exists():
        _configure_router(name, script)
    return ["env", f"PORT={port}", str(find_node()), str(script)]


def _router_environment(name: str) -> dict[str, str]:
    data = str(WORK / f"{name}-data")
    return {
        "HOSTNAME": "127.0.0.1",
        "HOME": data,
        "DATA_DIR": data,
        "INITIAL_PASSWORD": _PASSWORD,
        "NODE_ENV": "production",
        "DISABLE_BACKGROUND_TOKEN_REFRESH": "1",
        "OMNIROUTE_DISABLE_BACKGROUND_SERVICES": "true",
        "RATE_LIMIT_AUTO_ENABLE": "false",  # otherwise OmniRoute waits 200 ms between two requests
        "APP_LOG_LEVEL": "error",
        "APP_LOG_TO_FILE": "false",
    }


def _configure_router(name: str, script: Path) -> None:
    """Add the upstreams through the API of the dashboard, because no file of settings can do it."""
    data = WORK / f"{name}-data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    environment = {**os.environ, **_router_environment(name), "PORT": str(_SETUP_PORT)}
    with (data / "setup.log").open("w") as log:
        process = subprocess.Popen([find_node(), script], stdout=log, stderr=log, env=environment)
    try:
        dashboard = _Dashboard()
        dashboard.ask("POST", "/api/auth/login", {"password": _PASSWORD})
        for prefix, kind, path in _ROUTES:
            base_url = f"{UPSTREAM_URL}{path}"
            node = {"name": prefix, "prefix": prefix, "type": kind, "apiType": "chat", "baseUrl": base_url}
            provider = dashboard.ask("POST", "/api/provider-nodes", node)["node"]["id"]
            dashboard.ask("POST", "/api/providers", {"provider": provider, "apiKey": "none", "name": prefix})
        dashboard.ask("PATCH", "/api/settings", {"requireApiKey": False})
        (data / "ready").touch()
    finally:
        process.terminate()
        process.wait(20)


class _Dashboard:
    """The API of a router's dashboard, with the cookie of its session."""

    def __init__(self) -> None:
        self._cookie = ""
        deadline = time.monotonic() + _STARTING
        while True:
            try:
                self.ask("GET", "/api/auth/status", None)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def ask(self, method: str, path: str, body: object) -> dict:
        connection = HTTPConnection("127.0.0.1", _SETUP_PORT, timeout=60)
        headers = {"content-type": "application/json", "cookie": self._cookie}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
        if method != "GET" and response.status >= 300:
            raise RuntimeError(f"{method} {path} returned {response.status}: {text[:300]!r}")
        if cookies := response.headers.get_all("set-cookie"):
            self._cookie = "; ".join(cookie.partition(";")[0] for cookie in cookies)
        return json.loads(text) if method != "GET" else {}


_PREFIXED = {target: f"{target}/m" for target in TARGETS}
# without this header they answer a request that has no `stream` with a stream
_WHOLE = {"accept": "application/json"}

NODE_CANDIDATES = (
    Candidate(
        "portkey",
        _portkey,
        title="Portkey",
        version=_PORTKEY,
        install=_install_portkey,
        headers={"authorization": "Bearer none"},
        target_headers={
            "same": _portkey_route("openai", "/v1"),
            "cross": _portkey_route("anthropic", "/v1"),
            "paced": _portkey_route("anthropic", "/pace/v1"),
        },
        environment={"NODE_ENV": "production"},
        is_slow=True,
    ),
    Candidate(
        "9router",
        lambda port, _: _router("9router", _install_nine_router(), port),
        title="9router",
        version=_NINE_ROUTER,
        install=_install_nine_router,
        models=_PREFIXED,
        headers=_WHOLE,
        environment=_router_environment("9router"),
        is_slow=True,
    ),
    Candidate(
        "omniroute",
        lambda port, _: _router("omniroute", _install_omniroute(), port),
        title="OmniRoute",
        version=_OMNIROUTE,
        install=_install_omniroute,
        models=_PREFIXED,
        headers=_WHOLE,
        environment=_router_environment("omniroute"),
        is_slow=True,
    ),
)
