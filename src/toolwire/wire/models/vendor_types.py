"""The types of rows about vendors: a vendor, its keys, and its paths."""

from __future__ import annotations

from typing import Literal

from ...ir.value import Value


class ApiKey(Value, frozen=True):
    """An environment variable that holds a key, and the header that carries it."""

    variable: str
    header: str = "authorization"
    prefix: str = "Bearer "
    is_token: bool = False  # an access token that expires, as a key command prints it; not a key that a user passes


class Surface(Value, frozen=True):
    """The path of a wire at a vendor. Braces are settings: `{model}`, `{project}`, `{location}`, `{api_version}`."""

    wire: str  # its name without a version
    path: str
    stream_path: str | None = None  # of streams, if it is not `path`
    api_versions: str = r"[\w.-]+"  # a regular expression for the API versions that use this path; "" is none
    api_version: str = ""  # the default
    version_query: str | None = None  # the query parameter of the API version
    fields: dict[str, str] = {}  # fields of a request that it names differently, besides the vendor's
    counts_on_request: bool = True  # supports `stream_options`
    omitted_fields: tuple[str, ...] = ()  # fields of a body that are in the path instead
    marks_body: bool = True  # supports Anthropic's prompt-cache mark of the whole body
    version_field: str | None = None  # the field of a body for the version of the wire, sent instead of its headers
    in_chunks: bool = False  # streams and errors have Bedrock's envelope
    wire_versions: dict[str, str] = {}  # the values of `version_field` for versions of the wire, if they differ


class Vendor(Value, frozen=True):
    name: str
    base_url: str  # empty if every customer has another one
    keys: tuple[ApiKey, ...] = ()  # the first one that is set is used
    wire: str = "openai_chat"
    base_variable: str | None = None  # an environment variable with another base URL
    keyless: bool = False  # also answers without a key
    dialect: str | None = None  # of schemas, if it is not the wire's own
    id: str | None = None  # a regular expression for call ids, if it is not the wire's own
    id_length: int = 40  # Azure rejects longer call ids
    choice_by_schema: Literal["declared", "stated"] | None = None  # it ignores a forced choice; see `Capabilities`
    limits_tools: bool = True  # the wire's maximum number of tools applies to requests of other wires
    # Wires whose maximum number of tools a source states for this vendor: it applies to requests of the same wire, too.
    stated_tool_limits: tuple[str, ...] = ()
    cache_marks: bool = True  # supports prompt-cache marks; strict servers reject unknown fields
    marks_body: bool = False  # supports Anthropic's prompt-cache mark of the whole body, also without `cache_marks`
    fields: dict[str, str] = {}  # fields of a request that it names differently
    rejected_fields: frozenset[tuple[str, str]] = frozenset()  # fields of the wire that it rejects: (extra, field)
    rejected_kinds: frozenset[str] = frozenset()  # built-in tools and kinds of parts of the wire that it rejects
    hosted: frozenset[str] = frozenset()  # kinds of hosted tools that it runs, if the wire has them
    counts_on_request: bool = True  # supports `stream_options`
    keeps_responses: bool = False  # stores answers of the wire openai_responses under their id
    transport: str | None = None  # `module:class` of the transport, if it is not HTTP
    surfaces: tuple[Surface, ...] = ()  # paths that differ from the wire's
    variables: dict[str, tuple[str, ...]] = {}  # environment variables of the settings in paths; the first one set
    location: str | None = None  # the default location
    base_urls: dict[str, str] = {}  # by location, if it is not `base_url`
    raw_completions: bool = False  # has the wire's completion endpoint, and uses a prompt as it is
    regional_urls: tuple[str, ...] = ()  # the same API for other accounts; a key from the environment is not sent there
    domains: tuple[str, ...] = ()  # domains of the vendor; a key from the environment may be sent to hosts in them
    hosts: str | None = None  # a regular expression for more such hosts, in a domain that others use as well
    headers: dict[str, str] = {}  # additional headers; braces are settings, as in a path
    signing_name: str | None = None  # the AWS service for which requests without a key are signed
