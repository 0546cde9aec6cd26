"""Settings of an endpoint: its URLs, default parameters, additional body fields, and a file of capability rows.

Two settings change the body of a request: `defaults` before it is encoded, `extra_body` after.

defaults = parse_defaults({"temperature": 0.2, "reasoning": {"effort": "low"}})
defaults.apply(request)                        # only where the request sets nothing
merge_body(body, {"provider": {"sort": "price"}})
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from ...ir.errors import ConfigError, ProtocolError
from ...ir.pointer import JSON, Object
from ...ir.request import Params, ReasoningConfig, Request
from ...ir.value import Value
from ...stream.strict import parse
from ...wire.models.capabilities import CapabilityRow, ModelCapabilities, parse_capability_rows
from ...wire.models.vendor_types import Surface, Vendor
from ...wire.models.vendors import COMPATIBLE, find, names
from ...wire.protocol import Wire
from ..http.head import join_path, origin_of, parse_base_url

# The URLs of an endpoint are those that its wire defines, or a surface of its vendor with a path of its own.
#
# A surface is chosen by the API version, or by the base URL if it contains the beginning of the surface's path. The
# base URL may also be the complete URL that a vendor's console shows.


_is_setting = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}").fullmatch
_is_version_segment = re.compile(r"v\d\w*").fullmatch
_FIELD = re.compile(r"\{(\w+)\}")
_WIRE_PATH = re.compile(r"/(?:chat/completions|responses|v1/messages)$")  # the end of a surface's path
_DEPLOYMENT = re.compile(r"/deployments/[^/]+$")


class AddressSettings(Value, frozen=True):
    """Settings that determine an address. None: from the environment, or the default."""

    base_url: str | None = None
    api_version: str | None = None
    project: str | None = None
    location: str | None = None
    workspace: str | None = None
    insecure: bool = False


class EndpointAddress:
    """The URLs of a model."""

    __slots__ = ("_base", "_paths", "_urls", "origin", "surface")

    def __init__(self, base: SplitResult, surface: Surface | None, paths: tuple[str, str]) -> None:
        self.origin = origin_of(base)
        self.surface = surface
        self._base = base
        self._paths = paths  # of whole answers and of streams
        self._urls: dict[bool, str] = {}  # cached, by `stream`

    def with_path(self, path: str) -> EndpointAddress:
        """Return another endpoint of the same server. The base URL may end with the path of this one.

        A version in the base URL, as in `/openai/v2`, replaces the version in `path`.
        """
        base = self._base.path.rstrip("/").removesuffix(self._paths[0])
        version, _, unversioned = path.removeprefix("/").partition("/")
        if _is_version_segment(version) and _is_version_segment(base.rpartition("/")[2]):
            path = f"/{unversioned}"
        return EndpointAddress(self._base._replace(path=base), None, (path, path))

    def sibling(self, path: str, *, of_model: bool) -> EndpointAddress:
        """Return another endpoint of the same API, such as `/embeddings`.

        The path of a surface may have a deployment, which only paths `of_model` need, and the query with the API version.
        """
        if self.surface is None:
            return self.with_path(path)
        own, _, query = self._paths[0].partition("?")
        start = _WIRE_PATH.sub("", own)
        if not of_model:
            start = _DEPLOYMENT.sub("", start)
        if path.startswith("/v1beta/models/"):  # of Gemini; the surface has the model
            start, path = own.rpartition(":")[0], ":" + path.rpartition(":")[2]
        target = f"{start}{path}?{query}" if query else start + path
        return EndpointAddress(self._base, self.surface, (target, target))

    @property
    def host(self) -> str:
        return (self._base.hostname or "").lower()

    def url(self, *, stream: bool) -> str:
        """Return the URL of requests. The query of the base URL, such as an API version, is kept."""
        url = self._urls.get(stream)
        if url is None:
            path, _, query = self._paths[stream].partition("?")
            query = "&".join(filter(None, (query, self._base.query)))
            base = self._base
            path = join_path(base.path, path) if self.surface is None else base.path + path
            url = self._urls[stream] = urlunsplit((base.scheme, base.netloc, path, query, ""))
        return url


def resolve_address(
    vendor: Vendor, wire: Wire, model: str, settings: AddressSettings, environment: Mapping[str, str]
) -> EndpointAddress:
    """Resolve the address of a model. Raise ConfigError if a setting is missing, invalid or unknown to the vendor."""
    surfaces = [surface for surface in vendor.surfaces if surface.wire == wire.name]
    _refuse_unused(vendor, surfaces, settings)
    base = parse_base_url(_base_url(vendor, settings, environment), insecure=settings.insecure)
    if not surfaces:
        return EndpointAddress(base, None, (wire.path(model, stream=False), wire.path(model, stream=True)))
    surface, api_version, base = _choose_surface(vendor, surfaces, base, settings, environment)
    values = {"model": escape_model(model), "api_version": api_version}
    paths = tuple(
        _fill(template, values, vendor, settings, environment)
        for template in (surface.path, surface.stream_path or surface.path)
    )
    if surface.version_query is not None and api_version:
        query = urlencode({surface.version_query: api_version})
        paths = tuple(f"{path}{'&' if '?' in path else '?'}{query}" for path in paths)
    return EndpointAddress(_cut_base(base, surface), surface, (paths[0], paths[1]))


def _base_url(vendor: Vendor, settings: AddressSettings, environment: Mapping[str, str]) -> str:
    """Return the base URL: from the settings, the vendor's variable or the vendor's row, which may contain settings.

    Raise ConfigError if there is none, or a setting is missing.
    """
    if settings.base_url is not None:
        return settings.base_url
    if vendor.base_variable is not None and (address := environment.get(vendor.base_variable, "").strip()):
        return address
    if not vendor.base_url:
        hint = f"set base_url or the environment variable {vendor.base_variable}"
        raise ConfigError(f"{vendor.name} has no common address", hint=hint)
    if vendor.base_urls:
        location = read_setting("location", vendor, settings, environment)
        if location in vendor.base_urls:
            return vendor.base_urls[location]
    return _fill(vendor.base_url, {}, vendor, settings, environment)


def _choose_surface(
    vendor: Vendor,
    surfaces: list[Surface],
    base: SplitResult,
    settings: AddressSettings,
    environment: Mapping[str, str],
) -> tuple[Surface, str, SplitResult]:
    """Return the surface, its API version, and the base URL without a version in its query.

    The version of the settings or the query decides, then the path of the base URL, then the environment. Raise
    ConfigError if no surface has the version, or the path needs one.
    """
    parameter = surfaces[0].version_query
    query = parse_qsl(base.query)
    in_query = next((value for name, value in query if name == parameter), None)
    if in_query is not None:
        base = base._replace(query=urlencode([(name, value) for name, value in query if name != parameter]))
    wanted = settings.api_version or in_query
    in_environment = _from_environment("api_version", vendor, environment)
    in_path = [surface for surface in surfaces if _path_start(surface) in f"{base.path}/"]
    if wanted is None and in_path:
        for surface in in_path:
            for version in (in_environment, surface.api_version):
                if version is not None and _has_version(surface, version):
                    return surface, version, base
        raise ConfigError(f"{vendor.name} needs an api_version at this base URL", hint=_variables_hint(vendor))
    wanted = wanted or in_environment
    for surface in surfaces:
        version = surface.api_version if wanted is None else wanted
        if _has_version(surface, version):
            return surface, version, base
    raise ConfigError(f"{vendor.name} has no API version {wanted!r}", hint="such as 2024-10-21, or preview")


def _has_version(surface: Surface, version: str) -> bool:
    return re.fullmatch(surface.api_versions, version) is not None


def _path_start(surface: Surface) -> str:
    """Return the first two segments of a path, which distinguish the surfaces of a wire."""
    return "/".join(surface.path.split("/")[:3]) + "/"


def _variables_hint(vendor: Vendor) -> str:
    return f"set api_version, or {' or '.join(vendor.variables['api_version'])}"


def _cut_base(base: SplitResult, surface: Surface) -> SplitResult:
    """Remove the part of the base URL that the path of the surface repeats."""
    first = surface.path.split("/")[1]
    kept: list[str] = []
    for segment in base.path.rstrip("/").split("/"):
        if segment == first or (first == "{api_version}" and _is_version_segment(segment)):
            break
        kept.append(segment)
    return base._replace(path="/".join(kept))


def _fill(
    template: str,
    values: Mapping[str, str],
    vendor: Vendor,
    settings: AddressSettings,
    environment: Mapping[str, str],
) -> str:
    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        return values[name] if name in values else quote(read_setting(name, vendor, settings, environment), safe=":")

    return _FIELD.sub(value_of, template)


def vendor_headers(vendor: Vendor, settings: AddressSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a vendor with their settings. Raise ConfigError if a setting is missing or invalid."""
    return {name: _fill(value, {}, vendor, settings, environment) for name, value in vendor.headers.items()}


def read_setting(name: str, vendor: Vendor, settings: AddressSettings, environment: Mapping[str, str]) -> str:
    """Read a setting, such as the project, from the settings, the environment or the vendor's default.

    Raise ConfigError if it is missing or invalid.
    """
    value: str | None = getattr(settings, name, None)
    if value is None:
        value = _from_environment(name, vendor, environment)
    if value is None and name == "location":
        value = vendor.location
    if value is None:
        setting = name if name in AddressSettings.__struct_fields__ else "base_url"  # which contains it
        hint = f"set {setting}, or the environment variable {' or '.join(vendor.variables[name])}"
        raise ConfigError(f"{vendor.name} needs a {name}", hint=hint)
    if not _is_setting(value):
        raise ConfigError(f"{vendor.name}: invalid {name} {value!r}", hint="use letters, digits and . _ : -")
    return value


def _from_environment(name: str, vendor: Vendor, environment: Mapping[str, str]) -> str | None:
    values = (environment.get(variable, "").strip() for variable in vendor.variables.get(name, ()))
    return next((value for value in values if value), None)


def escape_model(model: str) -> str:
    """Escape a model for one segment of a path; refuse segments that a server may resolve as a relative path."""
    name = model.removeprefix("models/")
    if name.strip(".") == "":
        raise ConfigError(f"invalid model name {model!r}")
    return quote(name, safe="@")


def _refuse_unused(vendor: Vendor, surfaces: list[Surface], settings: AddressSettings) -> None:
    """Refuse a setting that would have no effect."""
    templates = (vendor.base_url, *vendor.headers.values(), *(surface.path for surface in surfaces))
    known = {name for template in templates for name in _FIELD.findall(template)}
    known.update("api_version" for surface in surfaces if surface.version_query is not None)
    for name in ("api_version", "project", "location", "workspace"):
        if getattr(settings, name) is not None and name not in known:
            raise ConfigError(f"{vendor.name} takes no {name}", hint="remove it, or choose another provider")


# The conversation, the model and the form of the answer: the request or the endpoint sets these fields.
_PROTECTED = frozenset(
    "model messages input contents tools functions system instructions systemInstruction system_instruction stream "
    "prompt previous_response_id conversation cachedContent cached_content tool_choice toolConfig tool_config "
    "function_call n".split()
)
_NOT_A_DEFAULT = frozenset({"n", "include_usage", "logprobs", "top_logprobs", "metadata", "user", "cache_key"})
"""Parameters that belong to one request, or that change the shape of its answer."""
_PARAM_NAMES = tuple(name for name in Params.__struct_fields__ if name not in _NOT_A_DEFAULT)


class RequestDefaults(Value, frozen=True):
    """Parameters for requests that do not set them."""

    params: dict[str, JSON] = {}
    reasoning: ReasoningConfig | None = None

    def apply(self, request: Request) -> Request:
        """Return the request with the defaults that it lacks, or the request itself if it lacks none."""
        params = request.params
        missing = {name: value for name, value in self.params.items() if getattr(params, name) is None}
        if missing:
            request = replace(request, params=replace(params, **missing))
        if self.reasoning is not None and request.reasoning is None:
            request = replace(request, reasoning=self.reasoning)
        return request


NO_DEFAULTS = RequestDefaults()


def parse_defaults(settings: Mapping[str, JSON]) -> RequestDefaults:
    """Return defaults for canonical parameters: of `Params`, and `reasoning` with an `effort` or a `budget`.

    Raise ConfigError for an unknown parameter or an invalid value.
    """
    if not settings:
        return NO_DEFAULTS
    known = (*_PARAM_NAMES, "reasoning")
    for name in settings:
        if name not in known:
            close_matches = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {close_matches[0]!r}?" if close_matches else f"known: {', '.join(known)}"
            raise ConfigError(f"unknown parameter {name!r} in defaults", hint=hint)
    try:
        params = msgspec.convert({name: value for name, value in settings.items() if name != "reasoning"}, Params)
        reasoning = _parse_reasoning(settings["reasoning"]) if "reasoning" in settings else None
    except msgspec.ValidationError as error:
        raise ConfigError(f"defaults: {error}".replace(" - at `$.", " in `")) from None
    values = {name: getattr(params, name) for name in settings if name != "reasoning"}
    return RequestDefaults(values, reasoning)


class _ReasoningDefault(Value, frozen=True, forbid_unknown_fields=True):
    effort: str | None = None
    budget: int | None = None
    visible: bool | None = None


def _parse_reasoning(value: JSON) -> ReasoningConfig:
    """Convert `reasoning`: an effort of `none` switches it off, as in requests of OpenAI.

    Raise ConfigError if it has both an effort and a budget, and ValidationError for a wrong type.
    """
    default = msgspec.convert(value, _ReasoningDefault)
    if default.effort is not None and default.budget is not None:
        raise ConfigError("defaults.reasoning has both an effort and a budget", hint="remove one of them")
    if default.effort == "none":
        return ReasoningConfig("off", visible=default.visible)
    if default.budget is not None:
        return ReasoningConfig("budget", budget=default.budget, visible=default.visible)
    return ReasoningConfig(None if default.effort is None else "auto", default.effort, visible=default.visible)


def check_extra_body(extra: Mapping[str, JSON], wire: Wire) -> None:
    """Raise ConfigError for a field that the request itself determines."""
    for name in extra:
        if name in _PROTECTED or name == wire.conversation:
            hint = "the client's request sets it; use [models] for models, and `defaults` for parameters"
            raise ConfigError(f"extra_body must not set {name!r}", hint=hint)


def merge_body(body: Object, extra: Mapping[str, JSON]) -> Object:
    """Return a body with `extra`: objects are merged field by field, and any other value replaces the body's."""
    merged = dict(body)
    for name, value in extra.items():
        previous: JSON = merged.get(name)
        is_mergeable = isinstance(previous, dict) and isinstance(value, dict)
        merged[name] = merge_body(previous, value) if is_mergeable else value
    return merged


_MAX_BYTES = 4 * 1024 * 1024  # thousands of rows; a row has a few hundred bytes


def load_capability_rows(file: str | Path) -> tuple[CapabilityRow, ...]:
    """Load capability rows from a JSON file. Raise ConfigError, with the file, the row and the field, if one is invalid."""
    path = Path(file)
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        hint = "set capabilities_file to the path of a JSON file"
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path} exceeds {_MAX_BYTES} bytes", hint="remove rows that are not used")
    try:
        return parse_capability_rows(parse(data))
    except ProtocolError as error:
        raise ConfigError(f"{path} is not valid JSON: {error.message}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None


def find_renamed_fields(
    vendor: Vendor, wire: Wire, surface: Surface | None, capabilities: ModelCapabilities
) -> Mapping[str, str]:
    """Return the fields that the vendor or the surface names differently. The vendor's row is about its own wire.

    OpenAI's reasoning models reject `max_tokens`, also through a proxy of which only the base URL is known.
    """
    fields = vendor.fields if wire.name == vendor.wire else {}
    if surface is not None and surface.fields:
        fields = {**fields, **surface.fields}
    if capabilities.default_effort is None:
        return fields
    return {name: other for name, other in fields.items() if other != "max_tokens"}


@lru_cache(64)
def vendor_at(origin: str) -> Vendor:
    """Return the vendor at an address, so that its rows apply if the settings name only a base URL."""
    for vendor in map(find, names()):
        addresses = [url for url in (vendor.base_url, *vendor.regional_urls) if url and "{" not in url]
        if any(origin_of(urlsplit(url)) == origin for url in addresses):
            return vendor
    return COMPATIBLE
