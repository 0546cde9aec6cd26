"""Credentials of AWS: the same source as botocore's, renewed once for many requests, from local addresses only."""

import asyncio
import json
import logging
import os
import random
import sys
import time
from datetime import UTC, datetime, timedelta

import botocore.session
import pytest

from aws_endpoints import aws_endpoints
from tables import every_case
from toolwire.ir.errors import ConfigError
from toolwire.net.model.aws.credentials import AwsCredentialCache, command_source, find_source
from toolwire.net.model.aws.metadata import AwsCredentialsError

REGION = "us-east-1"
# The methods of botocore, by the beginnings of our descriptions.
METHODS = {
    "env": "the environment",
    "shared-credentials-file": "the profile work in the credentials file",
    "config-file": "the profile work in the config file",
    "custom-process": "the command ",
    "assume-role-with-web-identity": "the web identity of ",
    "container-role": "the role of the container",
    "iam-role": "the role of the instance",
}
SOURCES = tuple(METHODS)


@pytest.fixture
def endpoints():
    with aws_endpoints() as running:
        yield running


def print_credentials(key="AKIA-process", **more):
    document = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "secret-of-process", **more}
    return [sys.executable, "-c", f"print({json.dumps(json.dumps(document))})"]


class World:
    """The files and variables of one machine."""

    def __init__(self, folder, endpoints):
        self.folder = folder
        self.config = {}
        self.credentials = {}
        self.environment = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoints.url,
            "AWS_ENDPOINT_URL_STS": endpoints.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }
        self.url = endpoints.url

    def add(self, source, *, in_profile):
        if source == "env":
            self.environment |= {"AWS_ACCESS_KEY_ID": "AKIA-env", "AWS_SECRET_ACCESS_KEY": "secret-of-env"}
            self.environment["AWS_SESSION_TOKEN"] = "token-of-env"
        elif source == "shared-credentials-file":
            self.credentials |= {"aws_access_key_id": "AKIA-shared", "aws_secret_access_key": "secret-of-shared"}
        elif source == "config-file":
            self.config |= {"aws_access_key_id": "AKIA-config", "aws_secret_access_key": "secret-of-config"}
            self.config["aws_session_token"] = "token-of-config"
        elif source == "custom-process":
            script = self.folder / "print_credentials.py"
            script.write_text(print_credentials(SessionToken="token-of-process")[2])
            self.config["credential_process"] = f"'{sys.executable}' '{script}'"
        elif source == "assume-role-with-web-identity":
            (self.folder / "identity").write_text("a-web-identity-token")
            values = {"role_arn": "arn:aws:iam::1:role/r", "web_identity_token_file": str(self.folder / "identity")}
            if in_profile:
                self.config |= values
            else:
                self.environment["AWS_ROLE_ARN"] = values["role_arn"]
                self.environment["AWS_WEB_IDENTITY_TOKEN_FILE"] = values["web_identity_token_file"]
        elif source == "container-role":
            self.environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"{self.url}/container?id=1"

    def write(self):
        folder = self.folder / ".aws"
        folder.mkdir(exist_ok=True)
        nested = "s3 =\n  addressing_style = path\n"
        config = "".join(f"{name} = {value}\n" for name, value in self.config.items())
        (folder / "config").write_text(
            f"[default]\nregion = eu-west-1\n\n[profile work]\nregion = us-west-2\n{nested}{config}[preview]\na = b\n"
        )
        credentials = "".join(f"{name} = {value}\n" for name, value in self.credentials.items())
        (folder / "credentials").write_text(f"# a comment\n[other]\naws_access_key_id = no\n\n[work]\n{credentials}")


def load(environment, profile=None):
    return asyncio.run(AwsCredentialCache(environment, profile=profile, region=REGION).credentials())


def test_source_and_credentials_are_those_of_botocore(tmp_path, endpoints, monkeypatch):
    source = random.Random(38)
    used = set()
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, endpoints)
        for name in source.sample(SOURCES, source.randrange(4)):
            world.add(name, in_profile=source.random() < 0.5)
        profile = "work" if source.random() < 0.5 else None
        if profile is None:
            world.environment[source.choice(("AWS_PROFILE", "AWS_DEFAULT_PROFILE"))] = "work"
        world.write()
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            for name, value in world.environment.items():
                patch.setenv(name, value)
            theirs = botocore.session.Session(profile=profile).get_credentials()
            frozen = theirs.get_frozen_credentials()
        label = find_source(world.environment, profile, REGION).label
        ours = load(world.environment, profile)
        assert label.startswith(METHODS[theirs.method]), (number, theirs.method)
        assert (ours.access_key, ours.session_token) == (frozen.access_key, frozen.token)
        assert ours.secret_key.rpartition("-")[0] == frozen.secret_key.rpartition("-")[0]  # a number is at the end
        used.add(theirs.method)
    assert used == set(SOURCES)


def test_instance_is_asked_with_a_session_token_and_no_proxy(tmp_path, endpoints):
    world = World(tmp_path, endpoints)
    environment = {**world.environment, "HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    credentials = load(environment)
    assert (credentials.access_key, credentials.session_token) == ("AKIA-instance", "token-of-instance")
    assert [method for method, *_ in endpoints.requests] == ["PUT", "GET", "GET"]
    endpoints.faults["/latest/api/token"] = (403, "")  # an instance with version 1 only
    with pytest.raises(AwsCredentialsError, match=r"http://127.0.0.1:\d+ answered 403"):
        load(environment)


def test_container_gets_the_current_token_of_its_file(tmp_path, endpoints):
    (tmp_path / "token").write_text("Bearer pod-token\n")
    endpoints.container_token = "Bearer pod-token"
    environment = {
        "HOME": str(tmp_path),
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{endpoints.url}/container",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN": "not this one",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
    }
    assert load(environment).access_key == "AKIA-container"
    (tmp_path / "token").unlink()
    with pytest.raises(AwsCredentialsError, match="cannot read the token of AWS"):
        load(environment)


def test_web_identity_is_exchanged_at_sts(tmp_path, endpoints):
    world = World(tmp_path, endpoints)
    world.add("assume-role-with-web-identity", in_profile=False)
    environment = {**world.environment, "AWS_ROLE_SESSION_NAME": "my session+&"}
    assert load(environment).session_token == "token-of-identity"
    assert endpoints.forms == [
        {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": "arn:aws:iam::1:role/r",
            "RoleSessionName": "my session+&",
            "WebIdentityToken": "a-web-identity-token",
        }
    ]


@every_case(
    ("variable", "address"),
    [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/credentials"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.169.254/latest"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost.example.com/"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://["),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "https://example.com"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://10.0.0.1"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "nothing"),
    ],
)
def test_metadata_is_only_asked_at_local_addresses(tmp_path, variable, address):
    with pytest.raises(ConfigError, match=f"{variable} is not an address of this machine"):
        find_source({"HOME": str(tmp_path), variable: address}, None, REGION)


@every_case(
    ("profile", "environment", "words"),
    [
        ("[profile work]\nrole_arn = r\nsource_profile = a\n", {}, "assumes a role with other credentials"),
        ("[profile work]\nsso_session = s\n", {}, "logs in by the browser"),
        ("[profile work]\nsso_start_url = s\naws_access_key_id = k\n", {}, "logs in by the browser"),
        ("[profile work]\nlogin_session = s\n", {}, 'set key_command = .*"--profile", "work"'),
        ("[profile work]\naws_access_key_id = k\n", {}, "has no complete key"),
        ("[profile work]\ncredential_process = 'a\n", {}, "credential_process of the profile work is not a command"),
        ("[profile work]\nweb_identity_token_file = f\n", {}, "a web identity of AWS has no role"),
        ("[profile other]\na = b\n", {}, "have no profile 'work'"),
        ("[profile work\n", {}, "config is not a valid file of AWS in line 1"),
        ("[profile work]\nx\n[profile work]\n", {}, "is not a valid file of AWS"),
        (b"[profile work]\n\xff = x\n", {}, "is not a valid file of AWS: UnicodeDecodeError"),
        ("[profile work]\n#" + "x" * 1024 * 1024, {}, "exceeds 1048576 bytes"),
        ("[profile work]\na = b\n", {"AWS_EC2_METADATA_DISABLED": "true"}, "no credentials of AWS are configured"),
    ],
)
def test_profile_that_cannot_be_used_is_explained(tmp_path, profile, environment, words):
    file = tmp_path / "config"
    file.write_bytes(profile if isinstance(profile, bytes) else profile.encode())
    with pytest.raises(ConfigError, match=words):
        find_source({"HOME": str(tmp_path), "AWS_CONFIG_FILE": str(file), **environment}, "work", REGION)


def test_incomplete_key_in_the_environment_is_explained(tmp_path):
    with pytest.raises(ConfigError, match="AWS_SECRET_ACCESS_KEY is not"):
        find_source({"HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": "k"}, None, REGION)


class Clock:
    def __init__(self):
        self.now = time.time()

    def __call__(self):
        return self.now


async def count_loads(cache, requests):
    return {found.secret_key for found in await asyncio.gather(*(cache.credentials() for _ in range(requests)))}


def test_credentials_are_renewed_before_they_expire_once_for_all_requests(tmp_path, endpoints):
    clock, redacted = Clock(), []

    async def run():
        environment = World(tmp_path, endpoints).environment
        cache = AwsCredentialCache(environment, region=REGION, clock=clock, on_key=redacted.append)
        assert await count_loads(cache, 20) == {"secret-of-instance-1"}
        clock.now += 3600 - 301
        assert await count_loads(cache, 20) == {"secret-of-instance-1"}
        clock.now += 2
        endpoints.lifetime = 7200
        assert await count_loads(cache, 20) == {"secret-of-instance-2"}
        assert cache.secrets == ("secret-of-instance-2", "token-of-instance")
        assert "secret-of" not in repr(cache)

    asyncio.run(run())
    assert redacted == ["secret-of-instance-1", "token-of-instance", "secret-of-instance-2", "token-of-instance"]


def test_valid_credentials_outlive_a_failing_source(tmp_path, endpoints, caplog):
    clock = Clock()

    async def run():
        cache = AwsCredentialCache(World(tmp_path, endpoints).environment, region=REGION, clock=clock)
        await cache.credentials()
        endpoints.faults["/latest/api/token"] = (500, "")
        clock.now += 3500
        assert await count_loads(cache, 3) == {"secret-of-instance-1"}
        asked = len(endpoints.requests)
        assert await count_loads(cache, 3) == {"secret-of-instance-1"}
        assert len(endpoints.requests) == asked  # not asked again at once
        clock.now += 200
        with pytest.raises(AwsCredentialsError, match="answered 500"):
            await cache.credentials()
        del endpoints.faults["/latest/api/token"]
        endpoints.lifetime = 7200
        clock.now += 6
        assert await count_loads(cache, 3) == {"secret-of-instance-2"}

    caplog.set_level(logging.DEBUG)
    asyncio.run(run())
    assert "cannot renew the credentials of AWS" in caplog.text
    assert "secret-of" not in caplog.text


def test_cancelled_request_does_not_take_the_credentials_from_others(tmp_path, endpoints):
    async def run():
        cache = AwsCredentialCache(World(tmp_path, endpoints).environment, region=REGION)
        first, second = (asyncio.create_task(cache.credentials()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).secret_key == "secret-of-instance-1"
        assert first.cancelled()

    asyncio.run(run())


def test_refused_credentials_are_renewed_unless_they_are_new(tmp_path, endpoints):
    clock = Clock()

    async def run():
        cache = AwsCredentialCache(World(tmp_path, endpoints).environment, region=REGION, clock=clock)
        await cache.credentials()
        assert not cache.drop()
        clock.now += 61
        assert cache.drop()
        assert (await cache.credentials()).secret_key == "secret-of-instance-2"

    asyncio.run(run())


HOUR_AGO = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
EXPIRED = json.dumps({"AccessKeyId": "a", "SecretAccessKey": "very-secret", "Expiration": HOUR_AGO})


@every_case(
    ("output", "words"),
    [
        ("no json", "the answer is not JSON"),
        ("[]", "the answer is not JSON"),
        ("{}", "has no AccessKeyId and SecretAccessKey"),
        ('{"AccessKeyId": "very-secret", "SecretAccessKey": 5}', "has no AccessKeyId and SecretAccessKey"),
        ('{"AccessKeyId": "a", "SecretAccessKey": "very-secret", "Expiration": "soon"}', "not a time in ISO 8601"),
        (EXPIRED, "have expired"),
        ("very-secret" * 10_000, "printed more than 65536 bytes"),
    ],
)
def test_command_without_usable_credentials_is_an_error_without_its_output(tmp_path, output, words):
    (tmp_path / "output").write_text(output)
    show = "import sys; print(open(sys.argv[1]).read())"
    source = command_source([sys.executable, "-c", show, str(tmp_path / "output")], 10)
    cache = AwsCredentialCache({}, region=REGION, command=source)
    with pytest.raises(AwsCredentialsError, match=words) as caught:
        asyncio.run(cache.credentials())
    assert "very-secret" not in str(caught.value)


@every_case(
    ("path", "answer"),
    [
        ("/latest/meta-data/iam/security-credentials/role", (200, b"\xff")),
        ("/latest/meta-data/iam/security-credentials/role", (200, '{"Code": "Failed", "Message": "no trust"}')),
        ("/latest/meta-data/iam/security-credentials/role", (200, "x" * 100_000)),
        ("/latest/meta-data/iam/security-credentials/", (200, "")),
        ("/latest/meta-data/iam/security-credentials/", (404, "no role")),
        ("/latest/meta-data/iam/security-credentials/", (200, "a role\twith\x00characters")),
        ("/latest/api/token", (200, "to\x00ken")),
        ("/latest/api/token", (200, "")),
    ],
)
def test_wrong_answer_of_the_instance_is_a_typed_error(tmp_path, endpoints, path, answer):
    endpoints.faults[path] = answer
    with pytest.raises(AwsCredentialsError):
        load(World(tmp_path, endpoints).environment)


def test_wrong_answer_of_sts_is_a_typed_error(tmp_path, endpoints):
    world = World(tmp_path, endpoints)
    world.add("assume-role-with-web-identity", in_profile=False)
    for address in ("http://example.com", "https://[", "ftp://x"):
        with pytest.raises(AwsCredentialsError):
            load({**world.environment, "AWS_ENDPOINT_URL_STS": address})
    for answer in ((200, "<a"), (200, "<a/>"), (400, "<Error/>"), (200, "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>")):
        endpoints.faults["/"] = answer
        with pytest.raises(AwsCredentialsError):
            load(world.environment)
