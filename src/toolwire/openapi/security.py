"""Security of a document's operations: schemes and requirements, credentials, and their removal from results.

Security schemes are never part of a tool's schema. A credential is a text, a pair of user and password, or a function
(also async) that returns either; `${NAME}` in a text is an environment variable.
"""

from __future__ import annotations

import re
from asyncio import to_thread
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Literal, NamedTuple, TypeAlias

from ..ir.errors import ConfigError, SchemaError
from ..ir.pointer import JSON, Object
from ..ir.text import dumps
from ..ir.value import Value
from ..run.calls.context import NotExecuted
from .document import References
from .encoding import percent_encode

SchemeKind: TypeAlias = Literal["bearer", "basic", "http", "header", "query", "cookie", "none"]
Requirements: TypeAlias = "tuple[tuple[str, ...], ...] | None"
_MAX_SCHEMES = 200  # real documents have fewer than ten
_MAX_ALTERNATIVES = 20  # of one operation; real ones have one or two
_is_token = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}").fullmatch
# Headers that frame the request, or that other code sets.
_RESERVED = frozenset(
    "host content-length content-type content-encoding transfer-encoding connection keep-alive upgrade te trailer "
    "expect accept accept-encoding cookie idempotency-key".split()
)


class SecurityScheme(Value, frozen=True):
    """The place of a credential in a request.

    `parameter` is the name of the header, query parameter or cookie, or the scheme of the `Authorization` header.
    """

    name: str
    kind: SchemeKind
    parameter: str = ""


def read_schemes(document: Object, references: References) -> tuple[dict[str, SecurityScheme], list[tuple[str, str]]]:
    """Return the schemes by name, and a list of name and problem for unusable schemes."""
    components = document.get("components")
    declared: JSON = components.get("securitySchemes") if type(components) is dict else None
    schemes: dict[str, SecurityScheme] = {}
    problems: list[tuple[str, str]] = []
    for name in list(declared)[:_MAX_SCHEMES] if type(declared) is dict else ():
        try:
            schemes[name] = _read_scheme(name, references.follow(declared[name]))
        except SchemaError as error:
            problems.append((name, str(error)))
    return schemes, problems


def _read_scheme(name: str, fields: Object) -> SecurityScheme:
    """Read a security scheme; SchemaError if it is invalid, or its header is reserved for other code."""
    kind = fields.get("type")
    if kind == "http":
        scheme = str(fields.get("scheme", ""))
        if scheme.lower() in ("bearer", "basic"):
            return SecurityScheme(name, "bearer" if scheme.lower() == "bearer" else "basic")
        if not _is_token(scheme):
            raise SchemaError("the HTTP scheme is not valid")
        return SecurityScheme(name, "http", scheme)
    if kind in ("oauth2", "openIdConnect"):
        return SecurityScheme(name, "bearer")
    if kind == "mutualTLS":  # the transport authenticates: the request carries no credential
        return SecurityScheme(name, "none")
    location, parameter = fields.get("in"), fields.get("name")
    if kind != "apiKey" or type(parameter) is not str or not parameter:
        raise SchemaError(f"the type {str(kind)[:40]!r} is not supported")
    if location == "header" and _is_token(parameter) and parameter.lower() not in _RESERVED:
        return SecurityScheme(name, "header", parameter)
    if location == "query":
        return SecurityScheme(name, "query", parameter)
    if location == "cookie" and _is_token(parameter):
        return SecurityScheme(name, "cookie", parameter)
    raise SchemaError("the location or name of the API key is not valid")


def read_requirements(fields: Object, document: Object, schemes: dict[str, SecurityScheme]) -> Requirements:
    """Return the alternatives of an operation; None if neither it nor the document has a requirement.

    An alternative with an unknown scheme cannot be satisfied and is left out.
    """
    declared: JSON = fields.get("security", document.get("security"))
    if type(declared) is not list:
        return None
    alternatives = [tuple(entry) for entry in declared[:_MAX_ALTERNATIVES] if type(entry) is dict]
    return tuple(names for names in alternatives if all(name in schemes for name in names))


_Plain: TypeAlias = "str | tuple[str, str]"
Credential: TypeAlias = "_Plain | Callable[[], _Plain | Awaitable[_Plain]]"
Auth: TypeAlias = "Credential | Mapping[str, Credential]"

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_is_header_text = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?").fullmatch
_NOT_IN_COOKIES = re.compile(r"[^\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]")  # RFC 6265, cookie-octet
_is_number = re.compile(r"[0-9.eE+-]+").fullmatch
_MIN_SECRET = 4  # characters; the removal of shorter texts would damage results
_REDACTED = "[redacted]"


class AppliedCredentials(NamedTuple):
    """The credentials of one request, and the texts that must not appear in its result."""

    headers: dict[str, str] = {}
    query: str = ""
    cookies: str = ""
    secrets: tuple[str, ...] = ()


class ApiCredentials:
    """The credentials by security scheme. Errors name schemes and variables, never values."""

    def __init__(
        self, auth: Auth | None, schemes: Mapping[str, SecurityScheme], environment: Mapping[str, str]
    ) -> None:
        assigned = _assign(auth, schemes)
        self._credentials: list[tuple[SecurityScheme, Credential]] = [
            (scheme, _expand(credential, scheme.name, environment)) for scheme, credential in assigned
        ]
        self._without_value = {name for name, scheme in schemes.items() if scheme.kind == "none"}
        for scheme, credential in self._credentials:
            if not callable(credential):
                _apply(scheme, credential)  # an unusable value is an error now, not at the first call

    async def resolve(self, required: Requirements) -> AppliedCredentials:
        """Return the credentials for a request: the first alternative that is available completely."""
        applied = [_apply(scheme, await _current_value(scheme, secret)) for scheme, secret in self._select(required)]
        return AppliedCredentials(
            {name: value for credential in applied for name, value in credential.headers.items()},
            "&".join(credential.query for credential in applied if credential.query),
            "; ".join(credential.cookies for credential in applied if credential.cookies),
            tuple(secret for credential in applied for secret in credential.secrets),
        )

    def _select(self, required: Requirements) -> list[tuple[SecurityScheme, Credential]]:
        """Return the credentials of the first alternative that can be met, or all if nothing is declared."""
        if required is None:
            return self._credentials
        known = {scheme.name: (scheme, credential) for scheme, credential in self._credentials}
        for names in required:
            needed = [name for name in names if name not in self._without_value]
            if needed and all(name in known for name in needed):
                return [known[name] for name in needed]
        return []


def _assign(auth: Auth | None, schemes: Mapping[str, SecurityScheme]) -> list[tuple[SecurityScheme, Credential]]:
    """Assign credentials to schemes; ConfigError for an unknown scheme or an ambiguous credential.

    A single credential is for all schemes of its kind (basic for a pair, else bearer), or else for the only scheme.
    """
    if auth is None:
        return []
    if isinstance(auth, Mapping):
        unknown = [name for name in auth if name not in schemes]
        if unknown:
            hint = f"it has {', '.join(schemes)}" if schemes else "it has none: pass the credential itself"
            raise ConfigError(f"auth: the document has no security scheme {unknown[0]!r}", hint=hint)
        return [(schemes[name], credential) for name, credential in auth.items()]
    kind: SchemeKind = "basic" if isinstance(auth, tuple) else "bearer"
    if not schemes:
        return [(SecurityScheme("", kind), auth)]
    fitting = [scheme for scheme in schemes.values() if scheme.kind == kind] or list(schemes.values())
    if len(fitting) > 1 and fitting[0].kind != kind:
        hint = f"name the scheme, such as auth={{{next(iter(schemes))!r}: …}}; it has {', '.join(schemes)}"
        raise ConfigError("auth: the document has several security schemes", hint=hint)
    return [(scheme, auth) for scheme in fitting]


def _expand(credential: Credential, name: str, environment: Mapping[str, str]) -> Credential:
    """Replace `${NAME}` by environment variables; ConfigError if one is not set, or for a wrong type of credential."""

    def value_of(found: re.Match[str]) -> str:
        value = environment.get(found[1], "").strip()
        if not value:
            raise ConfigError(f"auth: environment variable {found[1]} is not set", hint=f"export {found[1]}=…")
        return value

    if isinstance(credential, str):
        return _VARIABLE.sub(value_of, credential)
    if isinstance(credential, tuple):
        return tuple(_VARIABLE.sub(value_of, text) for text in credential)  # type: ignore[return-value]  # two, checked by _apply
    if not callable(credential):
        raise ConfigError(f"auth: the credential of {name!r} must be a text, (user, password) or a function")
    return credential


async def _current_value(scheme: SecurityScheme, credential: Credential) -> _Plain:
    """Return the value of a credential. A function that is not async runs in a thread, because it may block.

    A function that fails raises NotExecuted without its message, which may be secret.
    """
    if not callable(credential):
        return credential
    try:
        value = credential() if iscoroutinefunction(credential) else await to_thread(credential)
        return await value if isawaitable(value) else value
    except Exception as error:  # noqa: BLE001  # a user-defined function may raise anything
        name = scheme.name or "the API"
        raise NotExecuted(f"the credential for {name} is not available: {type(error).__name__}") from None


def _apply(scheme: SecurityScheme, value: _Plain) -> AppliedCredentials:
    """Return the parts of a request for one credential; ConfigError if a scheme cannot carry its value."""
    if scheme.kind == "none":
        return AppliedCredentials()
    if scheme.kind == "basic":
        return _apply_basic(scheme, value)
    if not isinstance(value, str) or not _is_header_text(value):
        raise ConfigError(f"auth: the credential of {scheme.name!r} must be a text of printable ASCII")
    encoded = percent_encode(value)
    secrets = _worth_hiding(value, encoded)
    if scheme.kind == "query":
        return AppliedCredentials(query=f"{percent_encode(scheme.parameter)}={encoded}", secrets=secrets)
    if scheme.kind == "cookie":
        text = _NOT_IN_COOKIES.sub(lambda found: percent_encode(found[0]), value)
        return AppliedCredentials(cookies=f"{scheme.parameter}={text}", secrets=_worth_hiding(value, encoded, text))
    if scheme.kind == "header":
        return AppliedCredentials({scheme.parameter: value}, secrets=secrets)
    prefix = "Bearer" if scheme.kind == "bearer" else scheme.parameter
    return AppliedCredentials({"authorization": f"{prefix} {value}"}, secrets=secrets)


def _apply_basic(scheme: SecurityScheme, value: _Plain) -> AppliedCredentials:
    """Return the header of basic authentication for (user, password) or the text user:password; else ConfigError."""
    if isinstance(value, str):
        value = (value.partition(":")[0], value.partition(":")[2]) if ":" in value else ("", "")  # refused below
    pair: tuple[JSON, ...] = value  # a function may return anything
    if len(pair) != 2 or not all(type(text) is str for text in pair) or not pair[0] or ":" in pair[0]:
        raise ConfigError(f"auth: the credential of {scheme.name!r} must be (user, password)")
    token = b64encode(f"{value[0]}:{value[1]}".encode()).decode()
    secrets = _worth_hiding(token, value[1], percent_encode(value[1]))
    return AppliedCredentials({"authorization": f"Basic {token}"}, secrets=secrets)


def _worth_hiding(*texts: str) -> tuple[str, ...]:
    """Return the texts that are long enough, also as they are written in JSON that cannot be parsed."""
    spellings = [spelling for text in texts for spelling in (text, dumps(text)[1:-1])]
    return tuple(dict.fromkeys(text for text in spellings if len(text) >= _MIN_SECRET))


class SecretFilter:
    """Replaces secrets in texts and JSON values, for a server that repeats the credentials that it received."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({*secrets}, key=len, reverse=True)  # one may be the prefix of another
        self._find = re.compile("|".join(map(re.escape, self._secrets))) if self._secrets else None
        self._has_numbers = any(map(_is_number, self._secrets))

    def __call__(self, text: str) -> str:
        return text if self._find is None else self._find.sub(_REDACTED, text)

    def clean_cut(self, text: str) -> str:
        """Replace secrets in a text that was cut off, and the beginning of a secret at its end."""
        text = self(text)
        for secret in self._secrets:
            for length in range(len(secret) - 1, _MIN_SECRET - 1, -1):
                if text.endswith(secret[:length]):
                    return text[:-length] + _REDACTED
        return text

    def clean_value(self, value: JSON) -> JSON:
        """Replace secrets in all strings, numbers and keys of a JSON value."""
        return value if self._find is None else self._clean(value)

    def _clean(self, value: JSON) -> JSON:
        """Return a copy of the value without secrets in texts and keys; a number that is a secret is redacted, too."""
        if type(value) is str:
            return self(value)
        if type(value) is list:
            return [self._clean(element) for element in value]
        if type(value) is dict:
            return {self(key): self._clean(element) for key, element in value.items()}
        if self._has_numbers and type(value) in (int, float):
            return value if self(text := dumps(value)) == text else _REDACTED
        return value
