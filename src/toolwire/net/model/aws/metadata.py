"""Ask AWS for temporary credentials: the endpoints of containers and instances, and the Security Token Service.

The addresses come from the environment of the process only, and the metadata endpoints must be local to the machine,
so that no request can direct toolwire to them or to other servers. Proxies are not used for them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree as ET

from ....ir.errors import ConfigError, ProtocolError
from ....ir.pointer import Object
from ....ir.terminal import neutralise_line
from ....stream.strict import parse_object
from ...http.client import HttpTransport
from ...http.head import parse_base_url
from ..key_command import KeyCommandError
from .signature import AwsCredentials

# Seconds. An endpoint on the same machine answers in milliseconds; elsewhere the address is not reachable at all, and
# botocore waits for one second.
_LOCAL_TIMEOUT = 2.0
_STS_TIMEOUT = 10.0  # seconds for a request over the internet
_MAX_ANSWER = 64 * 1024  # bytes; credentials have about two thousand
_CONTAINER_ADDRESS = "http://169.254.170.2"
_CONTAINER_HOSTS = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23", "localhost")  # botocore 1.44.5, utils.py
_INSTANCE_ADDRESS = "http://169.254.169.254"
_INSTANCE_ADDRESS_IPV6 = "http://[fd00:ec2::254]"
_INSTANCE_HOSTS = ("169.254.169.254", "fd00:ec2::254", "localhost")
_ROLE_PATH = "/latest/meta-data/iam/security-credentials/"
_TOKEN_SECONDS = "300"  # the token is used for two requests  # noqa: S105
_STS_NAMESPACE = "{https://sts.amazonaws.com/doc/2011-06-15/}"


class AwsCredentialsError(KeyCommandError):
    """No credentials of AWS could be obtained. It is handled like a key command that failed."""


class WebIdentity(NamedTuple):
    """A role, and the file with the token that permits to assume it."""

    role: str
    token_file: str
    session_name: str | None
    region: str


def container_address(environment: Mapping[str, str]) -> str | None:
    """Return the address of a container's credentials, or None. Raise ConfigError if it is not local and not HTTPS."""
    if path := environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        return _CONTAINER_ADDRESS + (path if path.startswith("/") else f"/{path}")
    if not (address := environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")):
        return None
    if not address.startswith("https://"):
        _check_local(address, _CONTAINER_HOSTS, "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    return address


def instance_address(environment: Mapping[str, str]) -> str | None:
    """Return the address of the instance's metadata; None if it is disabled. Raise ConfigError if it is not local."""
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    if address := environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT"):
        _check_local(address, _INSTANCE_HOSTS, "AWS_EC2_METADATA_SERVICE_ENDPOINT")
        return address.rstrip("/")
    is_ipv6 = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "").lower() == "ipv6"
    return _INSTANCE_ADDRESS_IPV6 if is_ipv6 else _INSTANCE_ADDRESS


def _check_local(address: str, hosts: tuple[str, ...], variable: str) -> None:
    """Raise ConfigError unless the address is on this machine, or one of AWS's link-local addresses."""
    try:
        host = urlsplit(address).hostname or ""
        is_local = host in hosts or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        hint = f"use a loopback address, or one of {', '.join(hosts)}"
        raise ConfigError(f"{variable} is not an address of this machine", hint=hint)


async def load_from_container(address: str, token: str | None) -> AwsCredentials:
    """Ask the endpoint of a container, with an authorization token if there is one. Raise AwsCredentialsError."""
    secrets = {} if token is None else {"authorization": token}
    data = await _fetch("GET", address, {"accept": "application/json"}, secrets, b"", _LOCAL_TIMEOUT, {})
    return read_credentials(data, "the role of the container", session_token="Token")  # noqa: S106


async def load_from_instance(address: str) -> AwsCredentials:
    """Ask for the role of the instance with version 2 of the protocol. Raise AwsCredentialsError.

    Version 1 has no token, so a request that a server was tricked into could read the credentials.
    """
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": _TOKEN_SECONDS}
    token = await _fetch("PUT", f"{address}/latest/api/token", headers, {}, b"", _LOCAL_TIMEOUT, {})
    secrets = {"x-aws-ec2-metadata-token": token.decode("latin-1").strip()}
    listed = await _fetch("GET", address + _ROLE_PATH, {}, secrets, b"", _LOCAL_TIMEOUT, {})
    role = listed.decode("utf-8", "replace").strip().partition("\n")[0]
    data = await _fetch("GET", address + _ROLE_PATH + role, {}, secrets, b"", _LOCAL_TIMEOUT, {})
    return read_credentials(data, "the role of the instance", session_token="Token")  # noqa: S106


async def assume_role(identity: WebIdentity, token: str, environment: Mapping[str, str]) -> AwsCredentials:
    """Exchange a web identity's token for the credentials of its role. Raise AwsCredentialsError."""
    domain = "amazonaws.com.cn" if identity.region.startswith("cn-") else "amazonaws.com"
    address = environment.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{identity.region}.{domain}"
    url = parse_base_url(address, insecure=False).geturl()
    fields = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": identity.role,
        "RoleSessionName": identity.session_name or f"toolwire-{int(time.time())}",
        "WebIdentityToken": token,
    }
    headers = {"content-type": "application/x-www-form-urlencoded"}
    body = urlencode(fields).encode()
    data = await _fetch("POST", f"{url.rstrip('/')}/", headers, {}, body, _STS_TIMEOUT, environment)
    try:
        found = ET.fromstring(data).find(f".//{_STS_NAMESPACE}Credentials")  # noqa: S314 (small, from AWS over TLS)
    except ET.ParseError:
        found = None
    document: Object = {} if found is None else {item.tag.removeprefix(_STS_NAMESPACE): item.text for item in found}
    return make_credentials(document, f"the role {identity.role}", "SessionToken")


async def _fetch(
    method: str,
    url: str,
    headers: Mapping[str, str],
    secrets: Mapping[str, str],
    body: bytes,
    seconds: float,
    environment: Mapping[str, str],
) -> bytes:
    """Return the body of a successful answer. Raise AwsCredentialsError, with the status but without the body."""
    where = "/".join(url.split("/")[:3])
    try:
        async with (
            aclosing(HttpTransport(environment=environment, reuse=False, connect_timeout=seconds)) as transport,
            transport.send(method, url, headers, secrets, body, seconds) as reply,
        ):
            received = bytearray()
            while len(received) <= _MAX_ANSWER and (piece := await reply.read()):
                received += piece
            status = reply.status
    except (OSError, TimeoutError) as error:
        reason = str(error) or f"no answer in {seconds:g} s"
        raise AwsCredentialsError(f"cannot reach {where} for credentials of AWS: {reason}") from None
    except (ConfigError, ProtocolError) as error:
        raise AwsCredentialsError(f"{where} sent no usable credentials of AWS: {error.message}") from None
    if status != 200 or not 0 < len(received) <= _MAX_ANSWER:
        problem = f"answered {status}" if status != 200 else f"sent {len(received) or 'no'} bytes"
        raise AwsCredentialsError(f"{where} {problem} to a request for credentials of AWS")
    return bytes(received)


def read_credentials(data: bytes, source: str, *, session_token: str) -> AwsCredentials:
    """Read a JSON document with credentials. Raise AwsCredentialsError, without its content, if it has none."""
    try:
        document = parse_object(data)
    except ProtocolError:
        raise AwsCredentialsError(f"{source}: the answer is not JSON") from None
    return make_credentials(document, source, session_token)


def make_credentials(document: Object, source: str, session_token: str) -> AwsCredentials:
    """Make credentials of the fields that all sources have; `session_token` is the name of the token's field.

    Raise AwsCredentialsError if a field is missing or invalid, or they have expired.
    """
    values = [document.get(name) for name in ("AccessKeyId", "SecretAccessKey", session_token, "Expiration")]
    key, secret, token, expiration = (value if isinstance(value, str) and value else None for value in values)
    if key is None or secret is None:
        code = document.get("Code")
        detail = f" (code {neutralise_line(code[:100])})" if isinstance(code, str) and code != "Success" else ""
        raise AwsCredentialsError(f"{source}: the answer has no AccessKeyId and SecretAccessKey{detail}")
    return AwsCredentials(key, secret, token, read_expiration(expiration, source), source)


def read_expiration(text: str | None, source: str) -> float | None:
    """Return an ISO 8601 time in Unix seconds, or None. Raise AwsCredentialsError if it is invalid or over."""
    if text is None:
        return None
    try:
        expires_at = datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise AwsCredentialsError(f"{source}: Expiration is not a time in ISO 8601") from None
    if expires_at <= time.time():
        raise AwsCredentialsError(f"{source}: the credentials have expired", hint="log in again, or renew them")
    return expires_at
