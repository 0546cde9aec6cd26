"""Credentials of AWS: where they come from, and a cache that renews them before they expire.

    source = AwsCredentialCache(os.environ, profile=None, region="us-east-1")
    await source.credentials()

The first source that is configured is used, in botocore's order (botocore 1.44.5, credentials.py):

    1  AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, unless the settings name a profile
    2  a web identity: of the environment, unless the settings name a profile, or of the profile
    3  keys in the credentials file
    4  `credential_process` of the profile
    5  keys in the config file
    6  the endpoint of a container, if the environment names it
    7  the role of the instance

A profile that assumes a role with another profile, or logs in by the browser, is an error with a hint: `aws configure
export-credentials` prints its credentials, and a `key_command` runs it.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from logging import getLogger
from pathlib import Path
from typing import NamedTuple

from ....ir.errors import ConfigError
from ..key_command import KeyCommandError, program_name, run_key_command
from .metadata import (
    AwsCredentialsError,
    WebIdentity,
    assume_role,
    container_address,
    instance_address,
    load_from_container,
    load_from_instance,
    read_credentials,
    read_expiration,
)
from .profiles import AwsProfile, read_profile
from .signature import AwsCredentials, SignedRequest, SigningScope, sign

_log = getLogger("toolwire.net")
# Seconds before their expiry that credentials are renewed: instances offer new ones five minutes before
# (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-metadata-security-credentials.html).
_MARGIN = 300.0
# Seconds until the next attempt, after a failure or if the source returned the same credentials again.
_PAUSE = 5.0
# Seconds after which credentials that the server refuses are read again; so a request without a permission, which is
# refused with the same status, does not ask the source each time.
_MIN_AGE = 60.0
_COMMAND_TIMEOUT = 60.0  # seconds for `credential_process`, which may wait for a login; botocore has no limit
_MAX_TOKEN = 64 * 1024  # bytes of a web identity's token, a JSON Web Token of one or two thousand
_EXPORT = 'set key_command = ["aws", "configure", "export-credentials", "--profile", "NAME"] and auth = "sigv4"'


class CredentialSource(NamedTuple):
    """A source of credentials: its description, and a function that reads it."""

    label: str
    load: Callable[[], Awaitable[AwsCredentials]]


def find_source(environment: Mapping[str, str], profile: str | None, region: str) -> CredentialSource:
    """Return the first source that is configured. Reads the shared files.

    Raise ConfigError if it is incomplete or not supported, or if there is none.
    """
    is_explicit = profile is not None
    if not is_explicit and environment.get("AWS_ACCESS_KEY_ID"):
        return _keys_in_environment(environment)
    found = read_profile(environment, profile)
    if found.get("role_arn") and not found.get("web_identity_token_file"):
        raise _unsupported(found, "assumes a role with other credentials")
    source = (
        _web_identity(environment, found, region, is_explicit=is_explicit)
        or _refuse_login(found, "sso_session", "sso_start_url")
        or _keys_in_file(found, found.credentials, "credentials")
        or _refuse_login(found, "login_session")
        or _process(found)
        or _keys_in_file(found, found.config, "config")
        or _container(environment)
    )
    if source is not None:
        return source
    address = instance_address(environment)
    if address is None:
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile with credentials"
        raise ConfigError("no credentials of AWS are configured, and the role of the instance is disabled", hint=hint)
    return CredentialSource("the role of the instance", lambda: load_from_instance(address))


def _fixed(credentials: AwsCredentials) -> CredentialSource:
    async def load() -> AwsCredentials:
        return credentials

    return CredentialSource(credentials.source, load)


def _keys_in_environment(environment: Mapping[str, str]) -> CredentialSource:
    secret = environment.get("AWS_SECRET_ACCESS_KEY")
    if not secret:
        raise ConfigError("AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not", hint="set both variables")
    token = environment.get("AWS_SECURITY_TOKEN") or environment.get("AWS_SESSION_TOKEN") or None
    label = "the environment"

    async def load() -> AwsCredentials:
        expires_at = read_expiration(environment.get("AWS_CREDENTIAL_EXPIRATION") or None, label)
        return AwsCredentials(environment["AWS_ACCESS_KEY_ID"], secret, token, expires_at, label)

    return CredentialSource(label, load)


def _keys_in_file(profile: AwsProfile, values: Mapping[str, str], file: str) -> CredentialSource | None:
    if "aws_access_key_id" not in values:
        return None
    key, secret = values["aws_access_key_id"], values.get("aws_secret_access_key")
    source = f"the profile {profile.name} in the {file} file"
    if not key or not secret:
        raise ConfigError(f"{source} has no complete key", hint="set aws_access_key_id and aws_secret_access_key")
    token = values.get("aws_security_token") or values.get("aws_session_token") or None
    return _fixed(AwsCredentials(key, secret, token, None, source))


def _web_identity(
    environment: Mapping[str, str], profile: AwsProfile, region: str, *, is_explicit: bool
) -> CredentialSource | None:
    def setting(variable: str, key: str) -> str | None:
        value = None if is_explicit else environment.get(variable)
        return value or profile.get(key)

    file = setting("AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file")
    if file is None:
        return None
    role = setting("AWS_ROLE_ARN", "role_arn")
    if role is None:
        raise ConfigError("a web identity of AWS has no role", hint="set AWS_ROLE_ARN, or role_arn in the profile")
    identity = WebIdentity(role, file, setting("AWS_ROLE_SESSION_NAME", "role_session_name"), region)

    async def load() -> AwsCredentials:
        token = await asyncio.to_thread(_read_token, identity.token_file)
        return await assume_role(identity, token, environment)

    return CredentialSource(f"the web identity of {role}", load)


def _refuse_login(profile: AwsProfile, *keys: str) -> CredentialSource | None:
    """Raise ConfigError if the profile has one of these keys, or return None."""
    if any(profile.get(key) for key in keys):
        raise _unsupported(profile, "logs in by the browser")
    return None


def _unsupported(profile: AwsProfile, meaning: str) -> ConfigError:
    hint = _EXPORT.replace("NAME", profile.name)
    return ConfigError(f"the profile {profile.name} of AWS {meaning}, which only AWS's own tool does", hint=hint)


def _process(profile: AwsProfile) -> CredentialSource | None:
    command = profile.get("credential_process")
    if command is None:
        return None
    try:
        arguments = shlex.split(command)
    except ValueError:
        arguments = []
    if not arguments:
        raise ConfigError(f"credential_process of the profile {profile.name} is not a command")
    return command_source(arguments, _COMMAND_TIMEOUT)


def command_source(arguments: Sequence[str], seconds: float) -> CredentialSource:
    """Return the credentials that a command prints in the format of `credential_process`.

    https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html
    """
    label = f"the command {program_name(arguments)}"

    async def load() -> AwsCredentials:
        output = await run_key_command(arguments, seconds)
        return read_credentials(output, label, session_token="SessionToken")  # noqa: S106

    return CredentialSource(label, load)


def _container(environment: Mapping[str, str]) -> CredentialSource | None:
    address = container_address(environment)
    if address is None:
        return None

    async def load() -> AwsCredentials:
        token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        if file := environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            token = await asyncio.to_thread(_read_token, file)
        return await load_from_container(address, token or None)

    return CredentialSource("the role of the container", load)


def _read_token(file: str) -> str:
    """Read a token; it is replaced while the process runs. Raise AwsCredentialsError."""
    try:
        with Path(file).open("rb") as stream:
            token = stream.read(_MAX_TOKEN).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AwsCredentialsError(f"cannot read the token of AWS in {file}: {reason}") from None
    return token


class AwsCredentialCache:
    """Credentials for any number of requests, from one run of their source at a time.

    `command`: a source instead of the configured one. `on_key` is called with every new secret, for redaction, and may
    be set later.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        profile: str | None = None,
        region: str,
        command: CredentialSource | None = None,
        clock: Callable[[], float] = time.time,
        on_key: Callable[[str], None] | None = None,
    ) -> None:
        self._environment = environment
        self._profile = profile
        self._region = region
        self._command = command
        self._clock = clock
        self.on_key = on_key
        self._credentials: AwsCredentials | None = None
        self._loaded_at = 0.0
        self._renew_at = 0.0
        self._failure: AwsCredentialsError | None = None
        self._run: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"AwsCredentialCache({self._credentials!r})"

    def find_source(self) -> CredentialSource:
        """Return the source in use. Raise ConfigError if it is incomplete, not supported or missing."""
        return self._command or find_source(self._environment, self._profile, self._region)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The latest secrets, to be removed from error messages."""
        latest = self._credentials
        return () if latest is None else tuple(filter(None, (latest.secret_key, latest.session_token)))

    async def credentials(self) -> AwsCredentials:
        """Return valid credentials. Raise AwsCredentialsError if there are none.

        While the old ones are valid, they are used if their source fails.
        """
        if self._clock() >= self._renew_at:
            run = self._run
            if run is None or run.done() or run.get_loop() is not asyncio.get_running_loop():
                run = self._run = asyncio.create_task(self._renew())
            await asyncio.shield(run)  # a request that is cancelled does not take the credentials from the others
        current, now = self._credentials, self._clock()
        if current is not None and (current.expires_at is None or now < current.expires_at):
            return current
        failure = self._failure or AwsCredentialsError("the credentials of AWS have expired")
        raise AwsCredentialsError(failure.message, hint=failure.hint)

    def drop(self) -> bool:
        """Renew the credentials before the next request, because a server has refused them. Return whether they are old.

        New ones may be refused for another reason, so they are kept.
        """
        if self._clock() < self._loaded_at + _MIN_AGE:
            return False
        self._renew_at = 0.0
        return True

    async def _renew(self) -> None:
        """Read the source, and keep the credentials or the failure. Files are read in a thread."""
        try:
            source = await asyncio.to_thread(self.find_source)
            loaded = await source.load()
        except (ConfigError, KeyCommandError) as error:
            self._failure = AwsCredentialsError(error.message, hint=error.hint)
            self._renew_at = self._clock() + _PAUSE
            _log.warning("cannot renew the credentials of AWS: %s", error.message)
            return
        now = self._clock()
        self._failure, self._credentials, self._loaded_at = None, loaded, now
        self._renew_at = float("inf") if loaded.expires_at is None else max(loaded.expires_at - _MARGIN, now + _PAUSE)
        if self.on_key is not None:
            for secret in self.secrets:
                self.on_key(secret)


class AwsSigning(NamedTuple):
    """The signature of requests to one service: the credentials, and the scope in which it is valid."""

    credentials: AwsCredentialCache
    scope: SigningScope

    async def sign(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the headers that authorise a request. Raise KeyCommandError if there are no credentials.

        Of the other headers, only the required ones are signed: proxies may change the rest.
        """
        signed = {
            name: value
            for name, value in headers.items()
            if name.lower() == "content-type" or name.lower().startswith("x-amz-")
        }
        request = SignedRequest(method, url, signed, body)
        return sign(request, await self.credentials.credentials(), self.scope, datetime.now(UTC))
