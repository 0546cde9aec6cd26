"""The way to a token, step by step, without a network."""

import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from toolwire.mcp.client.failures import NotAuthorized
from toolwire.mcp.client.oauth import Challenge, FetchResult, OAuthClient, OpenBrowser, authorize, refresh

URL = "https://mcp.example.com/tools"
GUARD = "https://login.example.com"
SERVER = {"resource": URL, "authorization_servers": [GUARD]}
METADATA = {
    "issuer": GUARD,
    "authorization_endpoint": f"{GUARD}/authorize",
    "token_endpoint": f"{GUARD}/token",
    "registration_endpoint": f"{GUARD}/register",
    "code_challenge_methods_supported": ["S256"],
    "token_endpoint_auth_methods_supported": ["none"],
}
TOKEN = {"access_token": "t0", "token_type": "Bearer", "refresh_token": "r0"}
PLACES = {
    "https://mcp.example.com/.well-known/oauth-protected-resource/tools": SERVER,
    f"{GUARD}/.well-known/oauth-authorization-server": METADATA,
    f"{GUARD}/register": {"client_id": "us"},
    f"{GUARD}/token": TOKEN,
}


def app(**more):
    numbers = iter(range(100))
    return OAuthClient("http://127.0.0.1:8765/callback", lambda length: str(next(numbers)).rjust(length, "x"), **more)


def agree(query):
    return {"code": "c0", "state": query["state"]}


def way(places=PLACES, back=agree, challenge="", known=None, asked=frozenset(), **more):
    """(the grant, what was fetched and where we went)"""
    steps, said = authorize(URL, Challenge.read(challenge), app(**more), {} if known is None else known, asked), []
    try:
        step = next(steps)
        while True:
            said.append(step)
            if isinstance(step, OpenBrowser):
                query = {key: values[0] for key, values in parse_qs(urlsplit(step.url).query).items()}
                step = steps.send(f"http://127.0.0.1:8765/callback?{urlencode(back(query))}")
            else:
                found = places.get(step.url)
                step = steps.send(FetchResult(404) if found is None else FetchResult(200, json.dumps(found).encode()))
    except StopIteration as done:
        return done.value, said


def visited(said):
    (visit,) = [step for step in said if isinstance(step, OpenBrowser)]
    return {key: values[0] for key, values in parse_qs(urlsplit(visit.url).query).items()}


def form(said):
    return {key: values[0] for key, values in parse_qs(said[-1].body.decode()).items()}


def test_the_whole_way():
    grant, said = way()
    assert (grant.token, grant.refresh_token, grant.issuer) == ("t0", "r0", GUARD)
    asked, sent = visited(said), form(said)
    assert asked["resource"] == sent["resource"] == URL
    assert asked["code_challenge_method"] == "S256"
    verifier = sent["code_verifier"].encode()
    assert asked["code_challenge"] == urlsafe_b64encode(sha256(verifier).digest()).rstrip(b"=").decode()
    assert sent["client_id"] == "us"
    assert "scope" not in asked
    registration = json.loads(
        next(step for step in said if not isinstance(step, OpenBrowser) and "register" in step.url).body
    )
    assert registration["application_type"] == "native"
    assert registration["grant_types"] == ["authorization_code", "refresh_token"]


def test_scopes_come_from_the_challenge_and_grow():
    _, said = way(challenge='Bearer scope="a b", error="insufficient_scope"', asked=frozenset({"c"}))
    assert visited(said)["scope"] == "a b c"


def test_scopes_of_the_metadata_and_to_be_remembered():
    places = {
        **PLACES,
        "https://mcp.example.com/.well-known/oauth-protected-resource/tools": {**SERVER, "scopes_supported": ["read"]},
        f"{GUARD}/.well-known/oauth-authorization-server": {**METADATA, "scopes_supported": ["offline_access"]},
    }
    assert visited(way(places)[1])["scope"] == "offline_access read"


def test_what_one_guard_knows_us_as_is_kept_for_it_alone():
    known = {}
    way(known=known)
    _, said = way(known=known)
    assert list(known) == [GUARD]
    assert not any("register" in step.url for step in said)


def test_somebody_who_is_known_already_is_not_registered():
    metadata = {**METADATA, "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"]}
    places = {**PLACES, f"{GUARD}/.well-known/oauth-authorization-server": metadata}
    _, said = way(places, client_id="known", secret="s:1")
    assert said[-1].headers["authorization"] == "Basic a25vd246cyUzQTE="
    assert "client_id" not in form(said)
    _, said = way(places, client_id="known", secret="s", issuer="https://other.example")
    assert visited(said)["client_id"] == "us"


def test_a_document_that_says_who_we_are():
    metadata = {**METADATA, "client_id_metadata_document_supported": True}
    places = {**PLACES, f"{GUARD}/.well-known/oauth-authorization-server": metadata}
    _, said = way(places, metadata_url="https://us.example/client.json")
    assert visited(said)["client_id"] == "https://us.example/client.json"


def with_server(**changes):
    return {**PLACES, "https://mcp.example.com/.well-known/oauth-protected-resource/tools": {**SERVER, **changes}}


def with_guard(**changes):
    metadata = {key: value for key, value in {**METADATA, **changes}.items() if value is not None}
    return {**PLACES, f"{GUARD}/.well-known/oauth-authorization-server": metadata}


@pytest.mark.parametrize(
    ("places", "back", "words"),
    [
        (with_server(resource="https://evil.example/tools"), agree, "belongs to another server"),
        (with_server(resource="https://mcp.example.com/other"), agree, "belongs to another server"),
        (with_guard(issuer="https://evil.example"), agree, "names another issuer: https://evil.example"),
        (with_guard(issuer=f"{GUARD}/"), agree, "names another issuer"),
        (with_guard(code_challenge_methods_supported=["plain"]), agree, "PKCE"),
        (with_guard(code_challenge_methods_supported=None), agree, "PKCE"),
        (with_guard(registration_endpoint=None), agree, "requires an existing registration"),
        (with_guard(token_endpoint="http://login.example.com/token"), agree, "is not encrypted"),
        (PLACES, lambda query: {"code": "c0", "state": "other"}, "belongs to another request"),
        (PLACES, lambda query: {**agree(query), "iss": "https://evil.example"}, "not from"),
        (PLACES, lambda query: {**agree(query), "iss": f"{GUARD}/"}, "not from"),
        (with_guard(authorization_response_iss_parameter_supported=True), agree, "must name its issuer"),
        (
            PLACES,
            lambda query: {"error": "access_denied", "state": query["state"]},
            "denied authorization: access_denied",
        ),
        ({**PLACES, f"{GUARD}/token": {"token_type": "Bearer"}}, agree, "did not return a bearer token"),
        ({**PLACES, f"{GUARD}/token": {**TOKEN, "token_type": "DPoP"}}, agree, "did not return a bearer token"),
        ({**PLACES, f"{GUARD}/register": {}}, agree, "has no client_id"),
        ({**PLACES, f"{GUARD}/register": None}, agree, "refused to register the client"),
    ],
)
def test_what_is_not_right_ends_the_way(places, back, words):
    with pytest.raises(NotAuthorized, match=words):
        way(places, back)


def test_a_token_is_renewed():
    grant, _ = way()
    steps = refresh(grant)
    step = next(steps)
    sent = {key: values[0] for key, values in parse_qs(step.body.decode()).items()}
    assert (sent["grant_type"], sent["refresh_token"], sent["resource"]) == ("refresh_token", "r0", URL)
    with pytest.raises(StopIteration) as done:
        steps.send(FetchResult(200, json.dumps({"access_token": "t1", "token_type": "bearer"}).encode()))
    assert (done.value.value.token, done.value.value.refresh_token) == ("t1", "r0")


def test_a_challenge_is_read():
    said = 'Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x.example/m?a=1,2"'
    assert Challenge.read(said) == Challenge("https://x.example/m?a=1,2", "a b")
    assert Challenge.read("Basic") == Challenge()
