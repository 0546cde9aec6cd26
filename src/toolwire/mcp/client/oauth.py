"""OAuth 2.1 as MCP requires it, sans-IO: fetches and user visits come out, their results go in.

    steps = authorize(url, challenge, app, known)      → Fetch | OpenBrowser …, and Grant at the end

Each step uses an address or a name from the step before, and the first of them comes from a server that is not trusted.
So each has a check against the attack that it allows:

    resource metadata     of the MCP server (RFC 9728). It must be of the server's origin and cover its URL: else one
                          server could have tokens issued for another.
    authorization server  its metadata (RFC 8414, OpenID) must name the issuer that was asked for: a mix-up would send
                          the code to an attacker. A server without metadata is its own authorization server, as in MCP
                          2025-03-26.
    PKCE                  S256 must be supported, before anything is registered: it binds the code to this client.
    registration          given, by a metadata document, known, or dynamic (RFC 7591). It belongs to one issuer and is
                          never sent to another.
    code                  in the browser. The response must carry our state, and the right issuer if it names one (RFC
                          9207).
    token                 for this resource only (RFC 8707), so that a server cannot use it elsewhere.

All addresses must be https, except on this machine. A server elsewhere cannot name addresses of this machine or of a
private network, where services may trust every request. Scopes only grow: a request for more includes those of earlier
grants, because a new token replaces the old one.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Generator
from hashlib import sha256
from typing import TypeAlias
from urllib.parse import SplitResult, parse_qs, quote, urlencode, urlsplit, urlunsplit

from msgspec.structs import replace

from ...ir.errors import ConfigError, ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.terminal import neutralise_line
from ...ir.text import to_bytes
from ...ir.value import Value
from ...stream.strict import parse
from ...wire.loopback import is_loopback, is_private
from .failures import NotAuthorized

_FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
_METHODS = ("none", "client_secret_basic", "client_secret_post")
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_PARAMETER = re.compile(r'(?<![a-zA-Z_])([a-zA-Z_]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))')


class Fetch(Value, frozen=True):
    """An HTTP request. Answer it with a FetchResult."""

    method: str
    url: str
    headers: dict[str, str] = {}
    body: bytes = b""


class FetchResult(Value, frozen=True):
    """The response to a Fetch."""

    status: int
    body: bytes = b""

    def document(self, label: str) -> Object:
        """Parse the body as a JSON object; raise NotAuthorized otherwise. `label` names the document in the error."""
        try:
            value = parse(self.body)
        except ProtocolError:
            value = None
        if type(value) is not dict:
            raise NotAuthorized(f"the {label} is not a JSON object (HTTP {self.status})")
        return value


class OpenBrowser(Value, frozen=True):
    """A URL for the user to visit. Answer it with the URL that the user is redirected to."""

    url: str


class OAuthClient(Value, frozen=True):
    """The client application.

    `client_id` and `secret`: an existing registration at the authorization server `issuer`, which a secret requires:
    the MCP server names an authorization server, and must not be able to name one that collects secrets.
    `metadata_url`: the URL of a client metadata document, for authorization servers that support it. `random` returns
    a number of unguessable characters.
    """

    redirect: str
    random: Callable[[int], str]
    name: str = "toolwire"
    client_id: str | None = None
    secret: str | None = None
    issuer: str | None = None
    metadata_url: str | None = None

    def __post_init__(self) -> None:
        if self.secret is not None and self.issuer is None:
            raise ConfigError(
                "a client secret needs the issuer where it was registered",
                hint='pass issuer="https://…", the URL of that authorization server',
            )


class ClientRegistration(Value, frozen=True):
    """The registration of the client at one authorization server."""

    client_id: str
    secret: str | None = None
    method: str = "none"


class Challenge(Value, frozen=True):
    """The parameters of a `WWW-Authenticate` header."""

    metadata: str | None = None
    scope: str | None = None

    @classmethod
    def read(cls, header: str) -> Challenge:
        found = {key.lower(): quoted or bare for key, quoted, bare in _PARAMETER.findall(header)}
        return cls(found.get("resource_metadata"), found.get("scope"))


class AuthorizationServer(Value, frozen=True):
    """An authorization server. `document` is its metadata, empty if it has none (before 2025-06-18)."""

    issuer: str
    document: Object = {}
    resource: str = ""  # the URL of the MCP server

    def endpoint(self, name: str, fallback: str) -> str | None:
        found = self.document.get(name)
        if type(found) is not str:
            return None if self.document else self.issuer + fallback
        return _check_address(found, self.resource)


class Grant(Value, frozen=True):
    """A token for one server. `scopes` are the requested scopes, so that the next request asks for no less."""

    token: str
    issuer: str
    resource: str
    token_endpoint: str
    client: ClientRegistration
    refresh_token: str | None = None
    scopes: frozenset[str] = frozenset()


OAuthSteps: TypeAlias = "Generator[Fetch | OpenBrowser, FetchResult | str, Grant]"
_Fetching: TypeAlias = "Generator[Fetch | OpenBrowser, FetchResult | str, Object | None]"


def authorize(
    url: str,
    challenge: Challenge,
    app: OAuthClient,
    known: dict[str, ClientRegistration],
    asked: frozenset[str] = frozenset(),
) -> OAuthSteps:
    """Obtain a token: find the authorization server, register, ask the user, and exchange the code.

    `known`: registrations by issuer, updated in place; `asked`: scopes of earlier grants. NotAuthorized if a step
    fails.
    """
    resource, resource_metadata = yield from _resource_metadata(url, challenge)
    server = yield from _find_authorization_server(resource_metadata, url)
    _check_pkce(server)
    client = yield from _find_registration(server, app, known)
    scopes = _required_scopes(challenge, resource_metadata, server) | asked
    code, verifier = yield from _request_code(server, client, app, resource, scopes)
    endpoint = server.endpoint("token_endpoint", "/token")
    if endpoint is None:
        raise NotAuthorized(f"{server.issuer} has no token endpoint")
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": app.redirect,
        "code_verifier": verifier,
        "resource": resource,
    }
    grant = Grant("", server.issuer, resource, endpoint, client, scopes=scopes)
    return (yield from _request_token(grant, form))


def refresh(grant: Grant) -> OAuthSteps:
    """Obtain a new token with a refresh token."""
    assert grant.refresh_token is not None
    form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token, "resource": grant.resource}
    return (yield from _request_token(grant, form))


# find the authorization server


def _resource_metadata(
    url: str, challenge: Challenge
) -> Generator[Fetch | OpenBrowser, FetchResult | str, tuple[str, Object]]:
    """Return the resource identifier of the server and its metadata, which is empty if there is none.

    NotAuthorized for metadata of another origin or server.
    """
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
    if challenge.metadata and _origin(challenge.metadata) != _origin(url):
        named = neutralise_line(challenge.metadata[:200])
        raise NotAuthorized(f"the server names metadata of another origin: {named}")
    candidates = [challenge.metadata] if challenge.metadata else [root + parts.path.rstrip("/"), root]
    for candidate in dict.fromkeys(candidates):
        document = yield from _fetch_metadata(candidate, url, "metadata of the server")
        if document is None:
            continue
        resource = document.get("resource")
        if type(resource) is not str or not _covers(resource, url):
            raise NotAuthorized(f"the metadata belongs to another server: {neutralise_line(str(resource)[:200])}")
        return resource, document
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")), {}


def _covers(resource: str, url: str) -> bool:
    """Return True if `url` is `resource` or below it."""
    parent_path, child_path = _split_url(resource).path.rstrip("/"), urlsplit(url).path.rstrip("/")
    is_below = child_path == parent_path or child_path.startswith(f"{parent_path}/")
    return is_below and _origin(url) == _origin(resource)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = _split_url(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.netloc.rpartition("@")[0] + (parts.hostname or ""), port


def _fetch_metadata(url: str, resource: str, label: str) -> _Fetching:
    """Fetch a document that the MCP server at `resource` names; None if it does not exist."""
    found = yield Fetch("GET", _check_address(url, resource), {"accept": "application/json"})
    assert isinstance(found, FetchResult)
    if found.status != 200:
        return None
    return found.document(label)


def _find_authorization_server(
    resource_metadata: Object, url: str
) -> Generator[Fetch | OpenBrowser, FetchResult | str, AuthorizationServer]:
    """Return the authorization server that the metadata names, or the server itself if there is no metadata.

    NotAuthorized if its own metadata is missing, or names another issuer.
    """
    named = resource_metadata.get("authorization_servers")
    parts = urlsplit(url)
    issuer = f"{parts.scheme}://{parts.netloc}"
    if type(named) is list and named and type(named[0]) is str:
        issuer = named[0]
    for candidate in _well_known(issuer):
        document = yield from _fetch_metadata(candidate, url, "metadata of the authorization server")
        if document is None:
            continue
        if document.get("issuer") != issuer:
            other = neutralise_line(str(document.get("issuer"))[:200])
            raise NotAuthorized(f"the metadata of {issuer} names another issuer: {other}")
        return AuthorizationServer(issuer, document, url)
    if resource_metadata:
        raise NotAuthorized(f"{issuer} has no authorization server metadata")
    return AuthorizationServer(issuer, resource=url)


def _well_known(issuer: str) -> list[str]:
    """Return the URLs of an issuer's metadata in the order to try. With a path there are two OpenID forms."""
    parts = _split_url(issuer)
    root, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    if not path:
        return [root + oauth, root + openid]
    return [root + oauth + path, root + openid + path, root + path + openid]


def _check_address(url: str, resource: str) -> str:
    """Return a URL that the MCP server at `resource` names, if it may be used.

    It must be https, except on this machine. Only a server on this machine or on a private network may name addresses
    there, because services at such addresses may trust every request. Raise NotAuthorized if not.
    """
    parts, host = _split_url(url), urlsplit(resource).hostname or ""
    if is_private(parts.hostname or "") and not is_private(host):
        raise NotAuthorized(f"{neutralise_line(url[:200])} is not public; {host} must not name it")
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return url
    raise NotAuthorized(f"{neutralise_line(url[:200])} is not encrypted; tokens are not sent there")


def _split_url(url: str) -> SplitResult:
    """Split a URL from an untrusted source. Raise NotAuthorized if it is invalid."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise NotAuthorized(f"{neutralise_line(url[:200])} is not a valid URL: {error}") from None
    return parts


def _check_pkce(server: AuthorizationServer) -> None:
    methods = server.document.get("code_challenge_methods_supported")
    if server.document and not (type(methods) is list and "S256" in methods):
        raise NotAuthorized(f"{server.issuer} does not support PKCE with S256")


# register the client


def _find_registration(
    server: AuthorizationServer, app: OAuthClient, known: dict[str, ClientRegistration]
) -> Generator[Fetch | OpenBrowser, FetchResult | str, ClientRegistration]:
    """Return the client's registration: given, by its metadata document, known, or new."""
    if app.client_id is not None and app.issuer in (None, server.issuer):
        return ClientRegistration(app.client_id, app.secret, _choose_auth_method(server, app.secret))
    if app.metadata_url is not None and server.document.get("client_id_metadata_document_supported") is True:
        return ClientRegistration(app.metadata_url)
    if server.issuer not in known:
        known[server.issuer] = yield from _register(server, app)
    return known[server.issuer]


def _register(
    server: AuthorizationServer, app: OAuthClient
) -> Generator[Fetch | OpenBrowser, FetchResult | str, ClientRegistration]:
    """Register the client dynamically (RFC 7591) and return its id and, if there is one, its secret.

    NotAuthorized if the server has no registration or refuses it.
    """
    endpoint = server.endpoint("registration_endpoint", "/register")
    if endpoint is None:
        raise NotAuthorized(
            f"{server.issuer} requires an existing registration",
            hint="pass client_id, and a secret if there is one, to Login",
        )
    asked = {
        "client_name": app.name,
        "redirect_uris": [app.redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _choose_auth_method(server, None, registering=True),
        "application_type": "native" if urlsplit(app.redirect).hostname in _LOCAL else "web",
    }
    reply = yield Fetch("POST", endpoint, {"content-type": "application/json"}, to_bytes(asked))
    assert isinstance(reply, FetchResult)
    if reply.status not in (200, 201):
        raise NotAuthorized(f"{server.issuer} refused to register the client{_error_text(reply)}")
    document = reply.document("registration")
    client_id, secret = document.get("client_id"), document.get("client_secret")
    if type(client_id) is not str:
        raise NotAuthorized(f"the registration at {server.issuer} has no client_id")
    secret = secret if type(secret) is str else None
    method = document.get("token_endpoint_auth_method")
    return ClientRegistration(client_id, secret, method if method in _METHODS else _choose_auth_method(server, secret))


def _choose_auth_method(server: AuthorizationServer, secret: str | None, *, registering: bool = False) -> str:
    """Choose the authentication method for the token endpoint: the simplest that the authorization server allows."""
    supported = server.document.get("token_endpoint_auth_methods_supported")
    offered = supported if type(supported) is list else ["client_secret_basic"] if secret else ["none"]
    preferred = _METHODS if registering or secret is None or offered == ["none"] else _METHODS[1:]
    return next((method for method in preferred if method in offered), "none")


# request a code and a token


def _required_scopes(challenge: Challenge, resource_metadata: Object, server: AuthorizationServer) -> frozenset[str]:
    """Return the scopes that the server requires, and offline_access if the authorization server supports it."""
    wanted = (
        set(challenge.scope.split())
        if challenge.scope
        else set(_string_items(resource_metadata.get("scopes_supported")))
    )
    if "offline_access" in _string_items(server.document.get("scopes_supported")):
        wanted.add("offline_access")
    return frozenset(wanted)


def _string_items(values: JSON) -> list[str]:
    return [item for item in values if type(item) is str] if type(values) is list else []


def _request_code(
    server: AuthorizationServer, client: ClientRegistration, app: OAuthClient, resource: str, scopes: frozenset[str]
) -> Generator[Fetch | OpenBrowser, FetchResult | str, tuple[str, str]]:
    """Send the user to the authorization server, and return the authorization code and its PKCE verifier.

    Raise NotAuthorized if it has no such endpoint, or refuses.
    """
    endpoint = server.endpoint("authorization_endpoint", "/authorize")
    if endpoint is None:
        raise NotAuthorized(f"{server.issuer} has no authorization endpoint")
    verifier, state = app.random(64), app.random(32)
    code_challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": app.redirect,
        "state": state,
        "code_challenge": code_challenge,
        "code_challenge_method": "S256",
        "resource": resource,
        **({"scope": " ".join(sorted(scopes))} if scopes else {}),
    }
    redirect_url = yield OpenBrowser(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}")
    assert isinstance(redirect_url, str)
    return _read_redirect(redirect_url, state, server), verifier


def _read_redirect(redirect_url: str, state: str, server: AuthorizationServer) -> str:
    """Return the code of an authorization response; NotAuthorized for a wrong state or issuer, or without a code."""
    parameters = {key: values[0] for key, values in parse_qs(urlsplit(redirect_url).query).items()}
    if parameters.get("state") != state:
        raise NotAuthorized("the authorization response belongs to another request (state)")
    issuer = parameters.get("iss")
    if issuer is None and server.document.get("authorization_response_iss_parameter_supported") is True:
        raise NotAuthorized(f"the response of {server.issuer} must name its issuer, and does not (iss)")
    if issuer is not None and issuer != server.issuer:  # exact string comparison: RFC 9207
        raise NotAuthorized(f"the response comes from {neutralise_line(issuer[:200])}, not from {server.issuer} (iss)")
    if "code" not in parameters:
        description = parameters.get("error_description") or parameters.get("error") or "no code"
        raise NotAuthorized(f"{server.issuer} denied authorization: {neutralise_line(description[:200])}")
    return parameters["code"]


def _request_token(grant: Grant, form: dict[str, str]) -> OAuthSteps:
    """Request a token and return `grant` with it; NotAuthorized if it is refused or not a bearer token.

    The refresh token is kept if the answer contains no new one.
    """
    client, headers = grant.client, dict(_FORM)
    if client.method == "client_secret_basic" and client.secret is not None:
        credentials = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        headers["authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
    else:
        form = {**form, "client_id": client.client_id}
        if client.method == "client_secret_post" and client.secret is not None:
            form["client_secret"] = client.secret
    reply = yield Fetch("POST", grant.token_endpoint, headers, urlencode(form).encode())
    assert isinstance(reply, FetchResult)
    if reply.status != 200:
        raise NotAuthorized(f"{grant.issuer} refused to issue a token{_error_text(reply)}")
    document = reply.document("token")
    token, new_refresh_token = document.get("access_token"), document.get("refresh_token")
    if type(token) is not str or str(document.get("token_type", "bearer")).lower() != "bearer":
        raise NotAuthorized(f"{grant.issuer} did not return a bearer token")
    return replace(
        grant,
        token=token,
        refresh_token=new_refresh_token if type(new_refresh_token) is str else grant.refresh_token,
    )


def _error_text(found: FetchResult) -> str:
    """Return the reason in an OAuth error response, or its HTTP status, as the end of an error message."""
    try:
        document = found.document("answer")
    except NotAuthorized:
        return f" (HTTP {found.status})"
    description = document.get("error_description") or document.get("error") or f"HTTP {found.status}"
    return f": {neutralise_line(str(description)[:200])}"
