"""Tools of an OpenAPI document against a real HTTP server."""

import asyncio
import base64
import gzip
import json
import socket
import threading

import pytest
from api_server import api_server

from tables import every_case
from toolwire import Runner, ToolCall
from toolwire.ir import ConfigError, Media
from toolwire.net import open_store
from toolwire.openapi import toolbox
from toolwire.run.values.results import result_code
from virtual_time import run_virtual

PET = {
    "type": "object",
    "required": ["name"],
    "properties": {"id": {"type": "integer", "readOnly": True}, "name": {"type": "string"}},
}
ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


def document(**more):
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "security": [{"token": []}],
        "paths": {
            "/pets": {
                "get": {
                    "operationId": "listPets",
                    "tags": ["read"],
                    "parameters": [
                        {"name": "limit", "in": "query", "schema": {"type": "integer"}},
                        {
                            "name": "filter",
                            "in": "query",
                            "style": "deepObject",
                            "explode": True,
                            "schema": {"type": "object"},
                        },
                    ],
                },
                "post": {
                    "operationId": "createPet",
                    "requestBody": {"required": True, "content": {"application/json": {"schema": PET}}},
                },
            },
            "/pets/{id}": {
                "parameters": [ID],
                "get": {"operationId": "getPet", "tags": ["read"]},
                "put": {"operationId": "replacePet", "requestBody": {"content": {"application/json": {"schema": PET}}}},
                "delete": {"operationId": "deletePet"},
            },
            "/status": {"get": {"operationId": "status", "security": []}},
        },
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
                "queryKey": {"type": "apiKey", "in": "query", "name": "api_key"},
                "cookieKey": {"type": "apiKey", "in": "cookie", "name": "session"},
                "login": {"type": "http", "scheme": "basic"},
            }
        },
        **more,
    }


@pytest.fixture
def server():
    with api_server() as running:
        yield running


def call(box, name, arguments=None, *, key=None, store="memory:", **options):
    """Run one call through all gates."""

    async def run():
        runner = Runner(box, store=None if store is None else open_store(store), **options)
        try:
            (result,) = await runner.run([ToolCall("c1", name, arguments or {})], keys={"c1": key} if key else None)
            return result
        finally:
            runner.close()
            await box.aclose()

    return asyncio.run(run())


def make(server, **options):
    return toolbox(document(), base_url=f"{server.url}/v1", **options)


@pytest.mark.finding("X3")
def test_operation_is_executed(server):
    result = call(make(server), "getPet", {"id": "7"})
    assert json.loads(result.text)["path"] == ["v1", "pets", "7"]
    assert (server.last.method, server.last.target) == ("GET", "/v1/pets/7")


@pytest.mark.finding("X3")
def test_arguments_reach_their_places(server):
    call(make(server), "listPets", {"limit": 3, "filter": {"name": "a&b=c", "tag": ["x", "y"]}})
    assert server.last.query == [
        ("limit", "3"),
        ("filter[name]", "a&b=c"),
        ("filter[tag][0]", "x"),
        ("filter[tag][1]", "y"),
    ]
    call(make(server), "createPet", {"body": {"name": "Rex"}})
    assert (server.last.method, json.loads(server.last.body)) == ("POST", {"name": "Rex"})
    assert server.last.headers["content-type"] == "application/json"


def test_read_only_properties_are_not_offered(server):
    schema = make(server).find("createPet").tool.input_schema["properties"]["body"]
    assert list(schema["properties"]) == ["name"]


def test_effects_follow_from_methods(server):
    effects = {entry.name: entry.tool.effect for entry in make(server)}
    assert effects == {
        "listPets": "read",
        "createPet": "write",
        "getPet": "read",
        "replacePet": "idempotent",
        "deletePet": "idempotent",
        "status": "read",
    }


@pytest.mark.parametrize("value", ["..", ".", "../admin", "a/../../admin", "..\\admin", ""])
def test_path_argument_cannot_address_another_resource(server, value):
    result = call(make(server), "deletePet", {"id": value})
    assert result.is_error
    assert "Nothing was sent" in result.text
    assert server.requests == []


@pytest.mark.parametrize("value", ["a?admin=1", "a#b", "a/b", "a b", "ä", "a%2Fb", "x;y=1", "@evil.example", "//evil"])
def test_path_argument_stays_one_segment(server, value):
    call(make(server), "getPet", {"id": value})
    assert server.last.segments == ["v1", "pets", value]
    assert server.last.query == []


@pytest.mark.parametrize(
    ("auth", "field", "expected"),
    [
        ("secret-token", "authorization", "Bearer secret-token"),
        ({"token": "secret-token"}, "authorization", "Bearer secret-token"),
        ({"token": "${PETS_TOKEN}"}, "authorization", "Bearer secret-token"),
        ({"token": lambda: "secret-token"}, "authorization", "Bearer secret-token"),
    ],
)
def test_bearer_token_is_sent_and_removed_from_the_result(server, auth, field, expected):
    result = call(make(server, auth=auth, environment={"PETS_TOKEN": "secret-token"}), "getPet", {"id": "7"})
    assert server.last.headers[field] == expected
    assert "secret-token" not in result.text
    assert "[redacted]" in result.text


async def fresh_token():
    return "fresh-token"


@pytest.mark.parametrize(
    ("scheme", "credential", "found"),
    [
        ("key", "secret key", lambda request: request.headers["x-api-key"] == "secret key"),
        ("queryKey", "secret&key", lambda request: ("api_key", "secret&key") in request.query),
        ("cookieKey", "secret;key", lambda request: request.headers["cookie"] == "session=secret%3Bkey"),
        ("cookieKey", "secret+/%key==", lambda request: request.headers["cookie"] == "session=secret+/%key=="),
        ("login", ("me", "secret"), lambda request: request.headers["authorization"] == "Basic bWU6c2VjcmV0"),
        ("login", "me:secret", lambda request: request.headers["authorization"] == "Basic bWU6c2VjcmV0"),
        ("token", fresh_token, lambda request: request.headers["authorization"] == "Bearer fresh-token"),
    ],
)
def test_each_scheme_has_its_place_and_is_not_returned(server, scheme, credential, found):
    source = document(security=[{scheme: []}])
    result = call(toolbox(source, base_url=server.url, auth={scheme: credential}), "getPet", {"id": "7"})
    assert found(server.last)
    for text in ("secret", "bWU6c2VjcmV0", "fresh-token"):
        assert text not in result.text


def test_client_certificate_beside_a_token_needs_no_value(server):
    source = document(security=[{"certificate": [], "token": []}])
    source["components"]["securitySchemes"]["certificate"] = {"type": "mutualTLS"}
    call(toolbox(source, base_url=server.url, auth={"token": "secret-token"}), "getPet", {"id": "7"})
    assert server.last.headers["authorization"] == "Bearer secret-token"


def test_operation_without_security_gets_no_credentials(server):
    call(make(server, auth="secret-token"), "status")
    assert "authorization" not in server.last.headers


def test_secret_is_removed_from_error_messages(server):
    server.will_answer(403, {"message": "the token secret-token is not valid"})
    result = call(make(server, auth="secret-token"), "getPet", {"id": "7"})
    assert "403" in result.text
    assert "the token [redacted] is not valid" in result.text


@pytest.mark.parametrize("status", [200, 403])
def test_secret_is_removed_in_any_spelling_and_at_a_cut(server, status):
    secret = 'se"cret/token'
    server.will_answer(status, {f"x{secret}": [f"a {secret} b"], "é": secret}, content_type="application/json")
    text = call(make(server, auth=secret), "getPet", {"id": "7"}).text
    assert "cret" not in text
    server.will_answer(status, b"x" * 94 + b"secret-token", content_type="text/plain")
    text = call(make(server, auth="secret-token", max_response=100), "getPet", {"id": "7"}).text
    assert "secre" not in text
    server.will_answer(403, b"x" * 1994 + b"secret-token" * 9000, content_type="text/plain")
    text = call(make(server, auth="secret-token"), "getPet", {"id": "7"}).text
    assert "secre" not in text


def test_writes_use_a_fresh_connection(server):
    async def run():
        async with make(server) as box:
            for name, arguments in (("getPet", {"id": "7"}), ("createPet", {"body": {"name": "Rex"}})):
                for _ in range(3):
                    await box.find(name).function(**arguments)

    asyncio.run(run())
    assert (len(server.requests), server.connections) == (6, 1 + 3)


def test_missing_credentials_are_named_after_a_401(server):
    server.will_answer(401, {"message": "log in"})
    assert "configure auth for token" in call(make(server), "getPet", {"id": "7"}).text


def test_failing_credential_function_reveals_nothing(server):
    def broken():
        raise RuntimeError("secret-token")

    result = call(make(server, auth=broken), "createPet", {"body": {"name": "Rex"}})
    assert result.is_error
    assert "secret-token" not in result.text
    assert server.requests == []


def test_idempotency_key_is_sent_with_writes_only(server):
    call(make(server), "createPet", {"body": {"name": "Rex"}}, key="order-7")
    assert server.last.headers["idempotency-key"] == "order-7"
    call(make(server), "getPet", {"id": "7"})
    assert "idempotency-key" not in server.last.headers


@pytest.mark.finding("X3")
def test_write_without_a_store_sends_one_key_for_all_attempts(server):
    for _ in range(2):
        server.will_answer(429, {"message": "slow down"}, retry_after="0")
        assert not call(make(server), "createPet", {"body": {"name": "Rex"}}, store=None).is_error
    keys = [request.headers.get("idempotency-key") for request in server.requests]
    assert len(keys) == 4
    assert keys[0] is not None
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_key_of_the_caller_is_sent_without_a_store(server):
    call(make(server), "createPet", {"body": {"name": "Rex"}}, key="order-8", store=None)
    assert server.last.headers["idempotency-key"] == "order-8"


def test_sync_credential_function_does_not_block_the_event_loop(server):
    thread_ids = []

    def fetch_token():
        thread_ids.append(threading.get_ident())
        return "secret-token"

    result = call(make(server, auth=fetch_token), "getPet", {"id": "7"})
    assert not result.is_error
    assert server.last.headers["authorization"] == "Bearer secret-token"
    assert threading.get_ident() not in thread_ids


@pytest.mark.parametrize("secret", ["1234567890", "12345.75"])
def test_secret_that_is_a_number_is_removed(server, secret):
    server.will_answer(200, {"token": float(secret), "tokens": [int(float(secret)), 17], "id": 5})
    text = call(make(server, auth=secret), "getPet", {"id": "7"}).text
    assert secret not in text
    assert '"id":5' in text.replace(" ", "")


@pytest.mark.parametrize(("location", "scheme"), [("query", "queryKey"), ("cookie", "cookieKey")])
def test_members_of_an_object_cannot_replace_a_credential(server, location, scheme):
    source = document(security=[{scheme: []}])
    source["paths"]["/status"]["get"] = {
        "operationId": "search",
        "parameters": [{"name": "filter", "in": location, "explode": True, "schema": {"type": "object"}}],
    }
    parameter = source["components"]["securitySchemes"][scheme]["name"]
    result = call(
        toolbox(source, base_url=server.url, auth={scheme: "secret-key"}), "search", {"filter": {parameter: "other"}}
    )
    assert "would replace a credential" in result.text
    assert server.requests == []
    call(toolbox(source, base_url=server.url, auth={scheme: "secret-key"}), "search", {"filter": {"a": "b"}})
    assert len(server.requests) == 1


def test_property_that_another_schema_hides_is_not_required(server):
    base = {"type": "object", "properties": {"id": {"type": "integer", "readOnly": True}, "name": {"type": "string"}}}
    source = document()
    source["components"]["schemas"] = {
        "Base": base,
        "New": {"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "name"]}]},
        "Either": {**base, "anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
    }
    for name in ("New", "Either"):
        body = {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}
        source["paths"]["/pets"]["post"]["requestBody"] = body
        result = call(toolbox(source, base_url=server.url), "createPet", {"body": {"name": "Rex"}})
        assert not result.is_error, result.text
    source["paths"]["/pets"]["post"]["requestBody"] = {
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}
    }
    assert "'name' is missing" in call(toolbox(source, base_url=server.url), "createPet", {"body": {}}).text


def test_declared_idempotency_key_is_not_an_argument(server):
    source = document()
    source["paths"]["/pets"]["post"]["parameters"] = [
        {"name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string"}}
    ]
    box = toolbox(source, base_url=server.url)
    assert list(box.find("createPet").tool.input_schema["properties"]) == ["body"]
    call(box, "createPet", {"body": {"name": "Rex"}})
    assert server.last.headers["idempotency-key"]


@pytest.mark.parametrize("status", [400, 404, 409, 422])
def test_client_error_is_a_refusal_that_the_model_reads(server, status):
    server.will_answer(status, {"title": "No", "detail": "name is too long"}, content_type="application/problem+json")
    result = call(make(server), "createPet", {"body": {"name": "Rex"}})
    assert result.is_error
    assert result_code(result) == "failed"
    assert f"{status}" in result.text
    assert "name is too long" in result.text
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_transient_failure_of_a_read_is_retried(server, status):
    server.will_answer(status, {"message": "busy"}, retry_after="0")
    result = call(make(server), "getPet", {"id": "7"})
    assert not result.is_error
    assert len(server.requests) == 2


def test_write_that_the_server_rejected_with_429_is_retried(server):
    server.will_answer(429, {"message": "slow down"}, retry_after="0")
    assert not call(make(server), "createPet", {"body": {"name": "Rex"}}).is_error
    assert len(server.requests) == 2


def test_write_that_failed_with_503_is_not_repeated(server):
    server.will_answer(503, {"message": "busy"})
    result = call(make(server), "createPet", {"body": {"name": "Rex"}})
    assert result_code(result) == "outcome_unknown"
    assert len(server.requests) == 1


def test_redirect_is_refused(server):
    with api_server() as other:
        server.will_answer(302, b"", location=f"{other.url}/stolen")
        result = call(make(server, auth="secret-token"), "getPet", {"id": "7"})
        assert result.is_error
        assert "Redirects are not followed" in result.text
        assert other.requests == []


def test_empty_response_is_an_empty_result(server):
    server.will_answer(204)
    assert call(make(server), "deletePet", {"id": "7"}).text == ""


def test_text_is_decoded_with_its_charset(server):
    server.will_answer(200, "Grüße".encode("latin-1"), content_type="text/plain; charset=iso-8859-1")
    assert call(make(server), "getPet", {"id": "7"}).text == "Grüße"


def test_compressed_response_is_decoded(server):
    server.will_answer(200, gzip.compress(b'{"name": "Rex"}'), content_type="application/json", content_encoding="gzip")
    assert json.loads(call(make(server), "getPet", {"id": "7"}).text) == {"name": "Rex"}


def test_image_becomes_media(server):
    server.will_answer(200, b"\x89PNG", content_type="image/png")
    (part,) = call(make(server), "getPet", {"id": "7"}).parts
    assert part == Media("image", "image/png", base64.b64encode(b"\x89PNG").decode())


def test_other_binary_content_is_only_described(server):
    server.will_answer(200, b"PK\x03\x04", content_type="application/zip")
    assert call(make(server), "getPet", {"id": "7"}).text == "[application/zip content, 4 bytes, not shown]"


def test_large_response_is_truncated(server):
    server.will_answer(200, {"text": "x" * 5000})
    result = call(make(server, max_response=1000), "getPet", {"id": "7"})
    assert result.text.endswith("[truncated after 1000 bytes]")
    assert len(result.text) < 1100


def test_large_json_is_converted(server):
    async def run():
        async with make(server, auth="secret-token") as box:
            return await box.find("getPet").function(id="7")

    server.will_answer(200, {"items": ["x" * 1000] * 400, "token": "secret-token"})
    assert asyncio.run(run()) == {"items": ["x" * 1000] * 400, "token": "[redacted]"}


def test_invalid_json_is_returned_as_text(server):
    server.will_answer(200, b"{oops", content_type="application/json")
    assert call(make(server), "getPet", {"id": "7"}).text == "{oops"


def test_unreachable_server_is_a_transient_failure_that_had_no_effect():
    with socket.socket() as unused:  # nobody else can listen on its port
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        result = call(toolbox(document(), base_url=url), "createPet", {"body": {"name": "Rex"}})
    assert result_code(result) == "failed"
    assert "no connection" in result.text


def test_server_that_does_not_answer_ends_at_the_timeout():
    async def run():
        async def hold(reader, writer):
            while await reader.read(10_000):
                pass
            writer.close()

        silent = await asyncio.start_server(hold, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        async with toolbox(document(), base_url=f"http://127.0.0.1:{port}", timeout=0.2) as box:
            runner = Runner(box)
            (result,) = await runner.run([ToolCall("c1", "createPet", {"body": {"name": "Rex"}})])
            runner.close()
        silent.close()
        return result

    result = run_virtual(run())
    assert result_code(result) == "outcome_unknown"
    assert "within 0.2 seconds" in result.text


def test_headers_of_the_operator_are_not_arguments(server):
    source = document()
    source["paths"]["/status"]["get"]["parameters"] = [
        {"name": "X-Version", "in": "header", "required": True, "schema": {"type": "string"}}
    ]
    box = toolbox(
        source,
        base_url=server.url,
        headers={"x-version": "2", "X-Team": "${TEAM}"},
        environment={"TEAM": "secret-team"},
    )
    assert box.find("status").tool.input_schema["properties"] == {}
    result = call(box, "status")
    assert server.last.headers["x-version"] == "2"
    assert server.last.headers["x-team"] == "secret-team"
    assert "secret-team" not in result.text


def test_preview_describes_the_request_without_sending_it(server):
    box = make(server, auth="secret-token")
    preview = box.find("createPet").options.preview(body={"name": "Rex"})
    assert preview == f"POST {server.url}/v1/pets, 14 bytes of application/json"
    assert box.find("getPet").options.preview(id="a b") == f"GET {server.url}/v1/pets/a%20b"
    assert server.requests == []


def test_dry_run_shows_the_request_and_sends_nothing(server):
    result = call(make(server, auth="secret-token"), "createPet", {"body": {"name": "Rex"}}, dry_run=True)
    assert f"POST {server.url}/v1/pets, 14 bytes of application/json" in result.text
    assert "secret-token" not in result.text
    assert server.requests == []


def test_selection_by_tag_and_by_name(server):
    assert [entry.name for entry in make(server, tags=["read"])] == ["listPets", "getPet"]
    assert [entry.name for entry in make(server, operations=["*Pet", "GET /status"])] == [
        "createPet",
        "getPet",
        "replacePet",
        "deletePet",
        "status",
    ]
    assert [entry.name for entry in make(server, operations=lambda tool: tool.method == "DELETE")] == ["deletePet"]


@every_case(
    ("options", "message"),
    [
        ({"tags": ["reed"]}, "no operation has the tag 'reed'"),
        ({"operations": ["getPets"]}, "did you mean 'getPet'"),
        ({"tags": "read"}, "must be lists"),
        ({"auth": {"tokn": "x"}}, "no security scheme 'tokn'"),
        ({"auth": {"login": "x"}}, "must be \\(user, password\\)"),
        ({"auth": {"key": "a\nb"}}, "printable ASCII"),
        ({"auth": "${NO_SUCH_VARIABLE}"}, "NO_SUCH_VARIABLE is not set"),
        ({"base_url": "https://u:p@example.com"}, "must not contain a user"),
        ({"base_url": "http://example.com"}, "unencrypted"),
        ({"base_url": "ftp://example.com"}, "form http"),
        ({"timeout": 0}, "must be positive"),
    ],
)
def test_wrong_usage_is_reported(options, message):
    with pytest.raises(ConfigError, match=message):
        toolbox(document(), **{"base_url": "https://example.com", "environment": {}, **options})


def test_servers_of_the_document_are_used_only_if_trusted():
    source = document(servers=[{"url": "/v1"}, {"url": "https://api.example.com/v1"}])
    with pytest.raises(ConfigError, match=r"pass trust_servers=True to use https://api\.example\.com/v1"):
        toolbox(source)
    assert len(toolbox(source, trust_servers=True)) == 6
    with pytest.raises(ConfigError, match="base_url is missing"):
        toolbox(document(servers=[{"url": "http://169.254.169.254/latest"}]), trust_servers=True)


SERVERS_ELSEWHERE = [
    {"url": "/../../adm"},
    {"url": "/v1/../adm"},
    {"url": "/v1/%2e%2e/adm"},
    {"url": "/v1/%252E%252e/adm"},
    {"url": "/v1/..%2fadm"},
    {"url": "/v1\\..\\adm"},
    {"url": "/v1/..%5cadm"},
    {"url": "/v1/./../adm"},
    {"url": "/adm"},
    {"url": "/v10"},
    {"url": "/v1%2fadm"},
    {"url": "//evil.example/v1"},
    {"url": "../adm"},
    {"url": "adm"},
    {"url": "{origin}/v1/../adm"},
    {"url": "{origin}/adm"},
    {"url": "/v1/{x}", "variables": {"x": {"default": "../adm"}}},
    {"url": "/v1/{x}{x}/adm", "variables": {"x": {"default": "."}}},
    {"url": "{x}", "variables": {"x": {"default": "//evil.example/v1"}}},
    {"url": "/v1/{x}"},
]


@pytest.mark.finding("SE10")
@pytest.mark.parametrize("row", SERVERS_ELSEWHERE, ids=lambda row: row["url"])
@pytest.mark.parametrize("place", ["operation", "path"])
def test_operation_with_a_server_outside_the_path_of_base_url_is_not_offered(server, row, place):
    source = document()
    item = source["paths"]["/status"]
    row = {**row, "url": row["url"].replace("{origin}", server.url)}
    (item["get"] if place == "operation" else item)["servers"] = [row]
    box = toolbox(source, base_url=f"{server.url}/v1")
    assert "status" not in [entry.name for entry in box.tools]
    assert len(box.problems) == 1
    assert str(box.problems[0]).startswith("GET /status: ")


@pytest.mark.finding("SE10")
def test_operation_with_a_server_below_the_path_of_base_url_is_called_there(server):
    source = document()
    source["paths"]["/pets"]["get"]["servers"] = [{"url": "/v1/eu"}]
    call(toolbox(source, base_url=f"{server.url}/v1/"), "listPets")
    assert server.last.target == "/v1/eu/pets"


def test_operation_with_a_server_on_another_host_is_not_offered(server):
    source = document()
    source["paths"]["/status"]["get"]["servers"] = [{"url": "https://evil.example"}]
    source["paths"]["/pets"]["get"]["servers"] = [{"url": "/{version}", "variables": {"version": {"default": "v2"}}}]
    box = toolbox(source, base_url=f"{server.url}/v1", trust_servers=True)
    assert [str(problem) for problem in box.problems] == [
        "GET /status: the operation has a server on another host than base_url"
    ]
    call(box, "listPets")
    assert server.last.target == "/v2/pets"
