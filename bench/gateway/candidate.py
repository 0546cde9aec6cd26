"""A measured gateway: its installation, configuration, start, and requests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

KEY = "sk-bench-0123456789"
UPSTREAM = 7801  # the port of the mock upstream
UPSTREAM_URL = f"http://127.0.0.1:{UPSTREAM}"
TARGETS = ("same", "cross", "paced")


@dataclass(frozen=True)
class Candidate:
    """A gateway. Its targets are a Chat (`same`), an Anthropic (`cross`) and a paced Anthropic upstream (`paced`).

    `title` and `version`: of a peer; a candidate without them is not compared in docs/compare.md.
    `install`: is called before the first start, and may use the network; everything else happens without it.
    `models` and `paths`: the model and the path of a request to each target; `target_headers`: headers that depend on it.
    `skipped`: jobs that it cannot do, with the reasons.
    `picks_port`: it chooses its own port, and prints it.
    """

    name: str
    command: Callable[[int, int], list[str]]
    title: str = ""
    version: str = ""
    install: Callable[[], object] = lambda: None
    models: Mapping[str, str] = field(default_factory=lambda: {target: target for target in TARGETS})
    paths: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(TARGETS, "/v1/chat/completions"))
    skipped: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=lambda: {"authorization": f"Bearer {KEY}"})
    target_headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    is_slow: bool = False
    picks_port: bool = False
