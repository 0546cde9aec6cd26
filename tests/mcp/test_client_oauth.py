"""The way to a token, step by step, without a network."""

import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tables import every_case
from toolwire.ir.errors import ConfigError
from toolwire.mcp.client.failures import NotAuthorized
from toolwire.mcp.client.oauth import Challenge, FetchResult, OAuthClient, OpenBrowser, authorize, refresh

URL = "https://mcp.example.com/tools"
AUTHORIZATION_SERVER = "https://login.example.com"
SERVER = {"resource": URL, "authorization_servers": [AUTHORIZATION_SERVER]}
METADATA = {
    "issuer": AUTHORIZATION_SERVER,
    "authorization_endpoint": f"{AUTHORIZATION_SERVER}/authorize",
    "token_endpoint": f"{AUTHORIZATION_SERVER}/token",
    "registration_endpoint": f"{AUTHORIZATION_SERVER}/register",
    "code_challenge_methods_supported": ["S256"],
    "token_endpoint_auth_methods_supported": ["none"],
}
TOKEN = {"access_token": "t0", "token_type": "Bearer", "refresh_token": "r0"}
RESPONSES_BY_URL = {
    "https://mcp.example.com/.well-known/oauth-protected-resource/tools": SERVER,
    f"{AUTHORIZATION_SERVER}/.well-known/oauth-authorization-server": METADATA,
    f"{AUTHORIZATION_SERVER}/register": {"client_id": "us"},
    f"{AUTHORIZATION_SERVER}/token": TOKEN,
}


def app(**more):
    numbers = iter(range(100))
    return OAuthClient("http://127.0.0.1:8765/callback", lambda length: str(next(numbers)).rjust(length, "x"), **more)


def approve(query):
    return {"code": "c0", "state": query["state"]}


def run_flow(places=RESPONSES_BY_URL, back=approve, challenge="", known=None, asked=frozenset(), **more):
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


def authorization_query(said):
    (visit,) = [step for step in said if isinstance(step, OpenBrowser)]
    return {key: values[0] for key, values in parse_qs(urlsplit(visit.url).query).items()}


def form(said):
    return {key: values[0] for key, values in parse_qs(said[-1].body.decode()).items()}


def test_authorization_code_flow_gets_a_token():
    grant, said = run_flow()
    assert (grant.token, grant.refresh_token, grant.issuer) == ("t0", "r0", AUTHORIZATION_SERVER)
    asked, sent = authorization_query(said), form(said)
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


def test_scopes_of_the_challenge_are_added_to_earlier_scopes():
    _, said = run_flow(challenge='Bearer scope="a b", error="insufficient_scope"', asked=frozenset({"c"}))
    assert authorization_query(said)["scope"] == "a b c"


def test_scopes_come_from_metadata_and_include_offline_access():
    places = {
        **RESPONSES_BY_URL,
        "https://mcp.example.com/.well-known/oauth-protected-resource/tools": {**SERVER, "scopes_supported": ["read"]},
        f"{AUTHORIZATION_SERVER}/.well-known/oauth-authorization-server": {
            **METADATA,
            "scopes_supported": ["offline_access"],
        },
    }
    assert authorization_query(run_flow(places)[1])["scope"] == "offline_access read"


def test_client_registration_is_kept_per_authorization_server():
    known = {}
    run_flow(known=known)
    _, said = run_flow(known=known)
    assert list(known) == [AUTHORIZATION_SERVER]
    assert not any("register" in step.url for step in said)


def test_preregistered_client_is_not_registered_again():
    metadata = {**METADATA, "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"]}
    places = {**RESPONSES_BY_URL, f"{AUTHORIZATION_SERVER}/.well-known/oauth-authorization-server": metadata}
    _, said = run_flow(places, client_id="known", secret="s:1", issuer=AUTHORIZATION_SERVER)
    assert said[-1].headers["authorization"] == "Basic a25vd246cyUzQTE="
    assert "client_id" not in form(said)
    _, said = run_flow(places, client_id="known", secret="s", issuer="https://other.example")
    assert authorization_query(said)["client_id"] == "us"


def test_client_metadata_document_is_used_as_the_client_id():
    metadata = {**METADATA, "client_id_metadata_document_supported": True}
    places = {**RESPONSES_BY_URL, f"{AUTHORIZATION_SERVER}/.well-known/oauth-authorization-server": metadata}
    _, said = run_flow(places, metadata_url="https://us.example/client.json")
    assert authorization_query(said)["client_id"] == "https://us.example/client.json"


def with_server(**changes):
    return {
        **RESPONSES_BY_URL,
        "https://mcp.example.com/.well-known/oauth-protected-resource/tools": {**SERVER, **changes},
    }


def with_authorization_server(**changes):
    metadata = {key: value for key, value in {**METADATA, **changes}.items() if value is not None}
    return {**RESPONSES_BY_URL, f"{AUTHORIZATION_SERVER}/.well-known/oauth-authorization-server": metadata}


@every_case(
    ("places", "back", "words"),
    [
        (with_server(resource="https://evil.example/tools"), approve, "belongs to another server"),
        (with_server(resource="https://mcp.example.com/other"), approve, "belongs to another server"),
        (
            with_authorization_server(issuer="https://evil.example"),
            approve,
            "names another issuer: https://evil.example",
        ),
        (with_authorization_server(issuer=f"{AUTHORIZATION_SERVER}/"), approve, "names another issuer"),
        (with_authorization_server(code_challenge_methods_supported=["plain"]), approve, "PKCE"),
        (with_authorization_server(code_challenge_methods_supported=None), approve, "PKCE"),
        (with_authorization_server(registration_endpoint=None), approve, "requires an existing registration"),
        (with_authorization_server(token_endpoint="http://login.example.com/token"), approve, "is not encrypted"),
        (RESPONSES_BY_URL, lambda query: {"code": "c0", "state": "other"}, "belongs to another request"),
        (RESPONSES_BY_URL, lambda query: {**approve(query), "iss": "https://evil.example"}, "not from"),
        (RESPONSES_BY_URL, lambda query: {**approve(query), "iss": f"{AUTHORIZATION_SERVER}/"}, "not from"),
        (
            with_authorization_server(authorization_response_iss_parameter_supported=True),
            approve,
            "must name its issuer",
        ),
        (
            RESPONSES_BY_URL,
            lambda query: {"error": "access_denied", "state": query["state"]},
            "denied authorization: access_denied",
        ),
        (
            {**RESPONSES_BY_URL, f"{AUTHORIZATION_SERVER}/token": {"token_type": "Bearer"}},
            approve,
            "did not return a bearer token",
        ),
        (
            {**RESPONSES_BY_URL, f"{AUTHORIZATION_SERVER}/token": {**TOKEN, "token_type": "DPoP"}},
            approve,
            "did not return a bearer token",
        ),
        ({**RESPONSES_BY_URL, f"{AUTHORIZATION_SERVER}/register": {}}, approve, "has no client_id"),
        ({**RESPONSES_BY_URL, f"{AUTHORIZATION_SERVER}/register": None}, approve, "refused to register the client"),
    ],
)
def test_invalid_answers_end_the_flow(places, back, words):
    with pytest.raises(NotAuthorized, match=words):
        run_flow(places, back)


def test_refresh_token_renews_the_access_token():
    grant, _ = run_flow()
    steps = refresh(grant)
    step = next(steps)
    sent = {key: values[0] for key, values in parse_qs(step.body.decode()).items()}
    assert (sent["grant_type"], sent["refresh_token"], sent["resource"]) == ("refresh_token", "r0", URL)
    with pytest.raises(StopIteration) as done:
        steps.send(FetchResult(200, json.dumps({"access_token": "t1", "token_type": "bearer"}).encode()))
    assert (done.value.value.token, done.value.value.refresh_token) == ("t1", "r0")


def test_www_authenticate_challenge_is_parsed():
    said = 'Bearer error="insufficient_scope", scope="a b", resource_metadata="https://x.example/m?a=1,2"'
    assert Challenge.read(said) == Challenge("https://x.example/m?a=1,2", "a b")
    assert Challenge.read("Basic") == Challenge()


@pytest.mark.finding("Z14")
@pytest.mark.parametrize(
    "named",
    [
        "http://127.0.0.1:6379/x",
        "http://localhost:9200/x",
        "https://login.example.com/.well-known/oauth-protected-resource/tools",
        "https://mcp.example.com:8443/.well-known/oauth-protected-resource/tools",
        "http://mcp.example.com/.well-known/oauth-protected-resource/tools",
        "https://mcp.example.com@evil.example/x",
        "https://evil@mcp.example.com/x",
        "file:///etc/passwd",
    ],
)
def test_metadata_of_another_origin_is_not_fetched(named):
    steps = authorize(URL, Challenge.read(f'Bearer resource_metadata="{named}"'), app(), {})
    with pytest.raises(NotAuthorized, match="another origin"):
        next(steps)


@pytest.mark.finding("Z14")
def test_metadata_of_the_same_origin_is_fetched():
    named = "https://MCP.example.com:443/metadata"
    grant, said = run_flow({**RESPONSES_BY_URL, named: SERVER}, challenge=f'Bearer resource_metadata="{named}"')
    assert grant.token == "t0" and said[0].url == named


PRIVATE = (
    "http://127.0.0.1:8080",
    "https://localhost",
    "https://10.0.0.1",
    "https://192.168.1.1:8443",
    "https://169.254.169.254",
    "https://[::1]",
    "https://[::ffff:127.0.0.1]",
    "https://[fd00::1]",
    "https://2130706433",
    "https://0x7f.1",
    "https://printer",
    "https://db.internal",
)


@pytest.mark.finding("Z14")
@every_case("address", PRIVATE)
def test_public_server_names_no_private_authorization_server(address):
    with pytest.raises(NotAuthorized, match=r"is not public; mcp\.example\.com must not name it"):
        run_flow(with_server(authorization_servers=[address]))


@pytest.mark.finding("Z14")
@pytest.mark.parametrize("endpoint", ["token_endpoint", "registration_endpoint", "authorization_endpoint"])
def test_public_authorization_server_names_no_private_endpoint(endpoint):
    with pytest.raises(NotAuthorized, match="is not public"):
        run_flow(with_authorization_server(**{endpoint: "http://127.0.0.1:6379/"}))


@pytest.mark.finding("Z14")
def test_secret_is_sent_to_its_issuer_only():
    metadata = {**METADATA, "token_endpoint_auth_methods_supported": ["client_secret_post"]}
    places = {**RESPONSES_BY_URL, f"{AUTHORIZATION_SERVER}/.well-known/oauth-authorization-server": metadata}
    with pytest.raises(ConfigError, match="needs the issuer"):
        app(client_id="known", secret="s1")
    _, said = run_flow(places, client_id="known", secret="s1", issuer=AUTHORIZATION_SERVER)
    assert form(said)["client_secret"] == "s1"
    _, said = run_flow(places, client_id="known", secret="s1", issuer="https://other.example")
    assert not any(b"s1" in getattr(step, "body", b"") for step in said)
    _, said = run_flow(places, client_id="public")
    assert authorization_query(said)["client_id"] == "public"
