"""The endpoints besides chats, as data; and the lookup of a path.

A path belongs to one API, and is sent to upstreams of that API only. The objects of a collection (a file, a batch, a job)
have ids, which belong to the upstream and the client that made them; see `objects`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..request.routes import INGRESSES, Route, guess_ingress, resolve_client_path

Collection: TypeAlias = Literal["", "create", "list", "object"]
"""The meaning of a path in a collection: create an object, list the objects, or use the object with an id."""

_OPENAI = ("openai_chat", "openai_responses")


class RelayPath(Struct, frozen=True):
    """One endpoint, or all endpoints of a collection."""

    wires: tuple[str, ...] = _OPENAI  # of the upstreams that have it
    model: Literal["required", "optional", "path", "none"] = "none"
    runs_models: bool = False  # which its body, files or path name, so that a key for some models cannot be checked
    is_embedding: bool = False  # it can be translated for upstreams of other wires


class RelayRoute(Route, frozen=True):
    """A route to an endpoint. `path` is the client's path without the prefix of the version."""

    relay: RelayPath = RelayPath()
    path: str = ""
    collection: Collection = ""


_WITH_MODEL, _MAY_HAVE_MODEL = RelayPath(model="required"), RelayPath(model="optional")
_FIXED = {
    "/embeddings": RelayPath(model="required", is_embedding=True),
    "/completions": _WITH_MODEL,
    "/moderations": _MAY_HAVE_MODEL,
    "/rerank": RelayPath((*_OPENAI, "cohere"), "required"),
    "/v2/rerank": RelayPath((*_OPENAI, "cohere"), "required"),
    "/v2/embed": RelayPath(("cohere",), "required", is_embedding=True),
    "/images/generations": _MAY_HAVE_MODEL,
    "/images/edits": _MAY_HAVE_MODEL,
    "/images/variations": _MAY_HAVE_MODEL,
    "/audio/speech": _WITH_MODEL,
    "/audio/transcriptions": _WITH_MODEL,
    "/audio/translations": _WITH_MODEL,
    "/api/embed": RelayPath(("ollama",), "required", is_embedding=True),
    "/api/embeddings": RelayPath(("ollama",), "required"),
    "/api/generate": RelayPath(("ollama",), "required"),
}
"""The paths of POST requests that create no object."""
_COLLECTIONS = {
    "/files": RelayPath(),
    "/uploads": RelayPath(),
    "/batches": RelayPath(runs_models=True),
    "/fine_tuning/jobs": RelayPath(model="optional", runs_models=True),
    "/vector_stores": RelayPath(),
    "/videos": _MAY_HAVE_MODEL,
    "/messages/batches": RelayPath(("anthropic",), runs_models=True),
}
_GEMINI = RelayPath(("gemini",), "path", is_embedding=True)
_match_collection = re.compile(
    rf"({'|'.join(_COLLECTIONS)})(?:/(?P<id>[A-Za-z0-9][A-Za-z0-9_-]{{0,255}})(?:/[A-Za-z0-9][A-Za-z0-9_/-]{{0,255}})?)?"
).fullmatch
_match_gemini = re.compile(
    r"/v1(?:beta|alpha)?/models/(?P<model>[^:]{1,512}):(?:embedContent|batchEmbedContents)"
).fullmatch
_METHODS = ("GET", "POST", "DELETE")
_has_dot_segment = re.compile(r"(?:^|/)\.{1,2}(?:/|$)|//|[\\\x00-\x1f?#%]").search
_MAX_PATH = 1024  # characters; more than any API has


def find_route(method: str, path: str, headers: Container[str], further: Sequence[str]) -> RelayRoute | None:
    """Return the endpoint of a path, or None. `further` are patterns `METHOD /path` of the settings.

    Files have the same path at OpenAI and Anthropic, so there the headers decide.
    """
    if len(path) > _MAX_PATH:
        return None
    is_anthropic = "anthropic-version" in headers
    route = _find(method, path, is_anthropic)
    if route is None:
        meant, model = resolve_client_path(path)
        route = None if meant == path else _find(method, meant, is_anthropic or path.startswith("/anthropic/"))
        if route is not None and model:
            return replace(route, path_model=model)
    if route is None and _is_allowed(method, path, further):
        ingress = guess_ingress(path, headers)
        wires = _OPENAI if ingress.wire in _OPENAI else (ingress.wire,)
        # Such a path may name its model anywhere, such as in a query, so a key for some models cannot be checked.
        relay = RelayPath(wires, "optional", runs_models=True)
        # A base URL of Gemini has no version.
        return RelayRoute("relay", ingress, relay=relay, path=path if wires == ("gemini",) else _unversioned(path))
    return route


def _unversioned(path: str) -> str:
    """Return a path without the segment `/v1`. `/v1beta` is another version."""
    return path.removeprefix("/v1") if path.startswith("/v1/") else path


@lru_cache(1024)
def _find(method: str, path: str, is_anthropic: bool) -> RelayRoute | None:
    unversioned = _unversioned(path)
    relay, model = _FIXED.get(unversioned), None
    if relay is None and (found := _match_gemini(path)) is not None:
        relay, model, unversioned = _GEMINI, found["model"], path
    if relay is not None:
        return _route(relay, unversioned, model) if method == "POST" else None
    found = _match_collection(unversioned) if method in _METHODS else None
    if found is None:
        return None
    relay, object_id = _COLLECTIONS[found[1]], found["id"] or ""
    if is_anthropic and found[1] == "/files":
        relay = RelayPath(("anthropic",))
    if object_id:
        relay = replace(relay, model="none")
        return _route(relay, unversioned, None, "object", object_id)
    if method == "DELETE":
        return None
    return _route(relay, unversioned, None, "create" if method == "POST" else "list")


def _route(
    relay: RelayPath, path: str, model: str | None, collection: Collection = "", object_id: str = ""
) -> RelayRoute:
    ingress = INGRESSES.get(relay.wires[0], INGRESSES["openai_chat"])
    return RelayRoute("relay", ingress, model, None, object_id, relay=relay, path=path, collection=collection)


def _is_allowed(method: str, path: str, further: Sequence[str]) -> bool:
    if not further or _has_dot_segment(path) is not None:
        return False
    return any(fnmatchcase(f"{method} {path}", pattern) for pattern in further)


def relayed_methods(path: str) -> list[str]:
    """List the methods of a path among the endpoints."""
    return sorted({method for method in _METHODS if _find(method, resolve_client_path(path).path, False) is not None})
