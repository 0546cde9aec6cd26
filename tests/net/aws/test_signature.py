"""Signature Version 4: equal to botocore's for random requests, and secrets are never shown."""

import random
from datetime import UTC, datetime, timedelta
from unittest.mock import patch
from urllib.parse import quote

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from toolwire.net.model.aws.signature import AwsCredentials, SignedRequest, SigningScope, sign

MODELS = (
    "us.anthropic.claude-opus-4-6-v1:0",
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-4-6-v1:0",
    "openai.gpt-oss-120b-1:0",
    "model with spaces & (brackets)!",
    "modèle~*'+,;=@$",
)
PATHS = ("", "/", "/a//b/./c/../d/", "/..", "/model/%2F%3A/x", "/%7Eme/~me", "/a=b;c,d", "/v1/messages")
HEADER_NAMES = ("Content-Type", "anthropic-version", "X-Amz-Target", "Accept", "x-amzn-bedrock-trace", "X-B", "x-a-b")


def by_botocore(request, credentials, scope, now):
    theirs = AWSRequest(request.method, request.url, dict(request.headers), request.body)
    secrets = Credentials(credentials.access_key, credentials.secret_key, credentials.session_token)
    with patch.object(botocore.auth, "get_current_datetime", lambda: now.replace(tzinfo=None)):
        botocore.auth.SigV4Auth(secrets, scope.service, scope.region).add_auth(theirs)
    return {name.lower(): value for name, value in theirs.headers.items()}


def check(request, credentials, scope, now):
    ours = {name.lower(): value for name, value in request.headers.items()} | sign(request, credentials, scope, now)
    assert ours == by_botocore(request, credentials, scope, now)


def random_request(source):
    path = source.choice(PATHS)
    if source.random() < 0.5:
        model = quote(source.choice(MODELS), safe=source.choice(("", ":", ":/", "@:;")))
        path = f"/model/{model}/{source.choice(('converse', 'invoke', 'invoke-with-response-stream'))}"
    pairs = [
        quote(source.choice("aAbB~-_.ü /"), safe="") + source.choice(("", "=", "=1", "=%20", "=b%2Fc", "=~", "=x=y"))
        for _ in range(source.randrange(5))
    ]
    host = source.choice(("bedrock-runtime.us-east-1.amazonaws.com", "HOST.example:8443", "h.example:443", "[::1]:80"))
    url = f"{source.choice(('https', 'http'))}://{host}{path}{'?' if pairs else ''}{'&'.join(pairs)}"
    headers = {
        name: source.choice(("a", "a  b ", " x", "application/json; charset=utf-8", "a,b", "1\t2"))
        for name in source.sample(HEADER_NAMES, source.randrange(len(HEADER_NAMES)))
    }
    body = source.randbytes(source.choice((0, 1, 40, 5000)))
    return SignedRequest(source.choice(("GET", "POST", "put", "DELETE")), url, headers, body)


def test_signatures_of_500_random_requests_are_equal_to_botocores():
    source = random.Random(38)
    for _ in range(500):
        token = source.choice((None, "token/+=" * source.randrange(1, 100)))
        credentials = AwsCredentials(f"AKIA{source.randrange(10**9)}", f"s/+{source.random()}", token)
        scope = SigningScope(
            source.choice(("us-east-1", "cn-north-1")), source.choice(("bedrock", "bedrock-mantle", "sts"))
        )
        now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=source.randrange(10**8))
        check(random_request(source), credentials, scope, now)


@given(
    path=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="?#[]\\"), max_size=30),
    query=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#[]"), max_size=30),
    body=st.binary(max_size=50),
)
def test_any_path_and_query_are_signed_as_by_botocore(path, query, body):
    request = SignedRequest("POST", f"https://h.example/{path}?{query}", {"content-type": "a"}, body)
    now = datetime(2026, 11, 19, 23, 59, 59, tzinfo=UTC)
    check(request, AwsCredentials("AKIA", "secret"), SigningScope("eu-west-1", "bedrock"), now)


def test_time_is_sent_in_utc():
    local = datetime.fromisoformat("2026-11-20T01:00:00+02:00")
    request = SignedRequest("GET", "https://h.example/", {}, b"")
    added = sign(request, AwsCredentials("AKIA", "secret"), SigningScope("eu-west-1", "bedrock"), local)
    assert added["x-amz-date"] == "20261119T230000Z"
    assert "/20261119/eu-west-1/bedrock/aws4_request" in added["authorization"]


def test_credentials_do_not_show_secrets():
    credentials = AwsCredentials("AKIAEXAMPLE", "very-secret", "session-secret", None, "the environment")
    assert repr(credentials) == str(credentials) == "<AWS credentials from the environment>"
