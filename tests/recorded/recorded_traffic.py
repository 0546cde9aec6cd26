"""Exchanges that other projects recorded with real providers, read from `../shared/data/recorded`.

    exchanges()        every recorded request with its answer
    wire_exchanges()   the exchanges on a wire that the package implements
    refusals()         the exchanges that a provider refused, also on endpoints without a wire
    fixtures()         recorded answers without their requests

An exchange without a wire is skipped for a reason in SKIPPED_PATHS. A path that matches neither a wire
nor a skip rule raises, so that no row is left out unnoticed.

The data is not part of the repository. Where it is absent, the lists are empty and `require_recordings` skips the test, or
fails it where the environment variable CI is set.
"""

import base64
import json
import os
import re
from dataclasses import dataclass, field
from functools import cache

import pytest

from places import ROOT

RECORDED = ROOT.parent / "shared" / "data" / "recorded"
PUBLISHED = 1211
"""Number of exchanges in the published files. Lists are checked for stale entries only where all of them are present."""

FIXTURES = "vercel_fixtures"
WIRE_PATHS = (
    (r"/chat/completions", "openai_chat"),
    (r"/responses", "openai_responses"),
    (r"/v1/messages", "anthropic"),
    (r"/publishers/anthropic/models/[^/]+:(?:streamR|r)awPredict", "anthropic"),
    (r"/models/[^/]+:(?:streamG|g)enerateContent", "gemini"),
    (r"/interactions", "gemini_interactions"),
    (r"/api/chat", "ollama"),
    (r"/v2/chat", "cohere"),
    (r"/model/[^/]+/converse(?:-stream)?", "bedrock"),
    (r"/model/[^/]+/invoke(?:-with-response-stream)?", "anthropic"),
)
"""(pattern for the end of a path without its query, wire)"""

SKIPPED_PATHS = {
    r"/v2/embed|/v1/tokenize": "Cohere's other endpoints: embeddings, tokens",
    r"/model/[^/]+/count-tokens": "token counting: no answer of a model",
    r"/v1/messages/(?:count_tokens|batches(?:/.*)?)": "token counting and batches: no answer of a model",
    r"/models/[^/]+:(?:countTokens|computeTokens)": "token counting: no answer of a model",
    r"/responses/(?:input_tokens|compact|resp_[^/]+(?:/[^/]+)?)": "token counting, compaction and stored answers",
    r"/v1/conversations(?:/.*)?": "conversation storage",
    r"/(?:embeddings?|audio|images|moderations)(?:/.*)?": "endpoints of other models: embeddings, speech, images",
    r"/models/[^/]+:(?:\w*[eE]mbed\w*|predict\w*)": "endpoints of other models: embeddings, images",
    r"/v1/(?:vector_stores|files|uploads|batches|models|containers|skills)(?:/.*)?": "storage and listings",
    r"/v1beta1?/(?:fileSearchStores|files|operations|models)(?:/[^:]*(?::upload\w+)?)?": "storage and listings",
    r"/cachedContents(?:/.*)?": "prompt cache management",
    r"/v1/realtime/\w+": "credentials of a realtime session",
}
"""Pattern for the end of a path: reason."""

PROVIDER_WIRES = {
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "cohere": "cohere",
    "gemini": "gemini",
    "vertex": "gemini",
}
"""The wire whose error format a provider uses on all its endpoints, where that is not OpenAI's."""


class UnknownPath(Exception):
    """A recorded path that is neither a wire nor skipped for a reason."""


@dataclass(frozen=True)
class Exchange:
    """One recorded request with its answer. `wire` is None where `skip_reason` is set."""

    source: str
    provider: str
    path: str
    request: dict
    status: int
    request_headers: dict = field(default_factory=dict)
    response_headers: dict = field(default_factory=dict)
    response: object = None
    """The answer as JSON, or None where it is a stream."""
    stream: bytes | None = None
    """The answer as bytes, where it was not recorded as JSON."""
    wire: str | None = None
    skip_reason: str | None = None

    @property
    def accepted(self):
        return 200 <= self.status < 300

    @property
    def streamed(self):
        return self.stream is not None and self.accepted

    @property
    def model_in_path(self):
        """The model that a path of Google or Bedrock names, or None."""
        found = re.search(r"/models/([^/:]+):", self.path) or re.search(r"/model/([^/]+)/", self.path)
        return found and found[1]

    @property
    def error_body(self):
        """The body of a refusal. A provider may send JSON under another content type, which is then recorded as text."""
        if self.stream is None:
            return self.response
        try:
            return json.loads(self.stream)
        except ValueError:
            return self.stream.decode(errors="replace")

    @property
    def error_wire(self):
        """The wire whose error format the provider uses, also on endpoints without a wire."""
        return self.wire or PROVIDER_WIRES.get(self.provider, "openai_chat")

    def __repr__(self):
        return f"{self.provider}: {self.source.removeprefix('pydantic-ai ')}"


@dataclass(frozen=True)
class Fixture:
    """A recorded answer without its request: one `document`, or the `chunks` of a stream, each a JSON text."""

    source: str
    package: str
    document: object = None
    chunks: tuple = ()

    def __repr__(self):
        return self.source


def wire_of(path):
    """The wire of a request path, or None."""
    bare = re.split(r"[?#]", path)[0]
    return next((wire for pattern, wire in WIRE_PATHS if re.search(pattern + r"\Z", bare)), None)


def skip_reason_of(path):
    """Why an exchange is not run, or None. Raise UnknownPath for a path that is neither a wire nor skipped."""
    if wire_of(path) is not None:
        return None
    rule = skip_rule_of(path)
    if rule is None:
        hint = "add a row to WIRE_PATHS, or to SKIPPED_PATHS with its reason"
        raise UnknownPath(f"{path} is neither a wire nor skipped: {hint}")
    return SKIPPED_PATHS[rule]


def skip_rule_of(path):
    bare = re.split(r"[?#]", path)[0]
    return next((pattern for pattern in SKIPPED_PATHS if re.search(pattern + r"\Z", bare)), None)


def read_exchange(row):
    """An exchange from one line of a recording."""
    provider, path = row["provider"], row["path"]
    reason = skip_reason_of(path)
    if "response_base64" in row:
        stream = base64.b64decode(row["response_base64"])
    else:
        stream = row["response_text"].encode() if "response_text" in row else None
    return Exchange(
        source=row["source"],
        provider=provider,
        path=path,
        request=row["request"],
        status=row["status"],
        request_headers=row.get("request_headers") or {},
        response_headers=row.get("response_headers") or {},
        response=row.get("response"),
        stream=stream,
        wire=None if reason else wire_of(path),
        skip_reason=reason,
    )


@cache
def rows(directory=RECORDED):
    """The lines of all exchange files, as recorded."""
    files = sorted(path for path in directory.glob("*.jsonl") if path.stem != FIXTURES)
    return [json.loads(line) for path in files for line in _lines(path)]


def _lines(path):
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line]


@cache
def exchanges():
    return [read_exchange(row) for row in rows()]


def wire_exchanges():
    return [exchange for exchange in exchanges() if exchange.wire is not None]


def refusals():
    """Refused exchanges. An endpoint without a wire uses the error format of its provider, so it counts too."""
    return [one for one in exchanges() if not one.accepted]


@cache
def fixtures():
    path = RECORDED / f"{FIXTURES}.jsonl"
    if not path.exists():
        return []
    found = [json.loads(line) for line in _lines(path)]
    return [Fixture(one["source"], one["package"], one.get("document"), tuple(one.get("chunks", ()))) for one in found]


def require_recordings(directory=RECORDED):
    """Skip the test where the recordings are absent, or fail it where CI is set."""
    if any(directory.glob("*.jsonl")):
        return
    if os.environ.get("CI"):
        pytest.fail(f"no recordings in {directory}, and CI is set")
    pytest.skip(f"no recordings in {directory}")
