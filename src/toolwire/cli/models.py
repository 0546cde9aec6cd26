"""`toolwire models`: list the providers and their keys, ask a provider for its models, show a model, or update the rows.

The model servers of this machine are found by a short request to their usual addresses.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir.errors import ConfigError, ToolwireError
from ..ir.terminal import count_of, neutralise_line
from .sources.targets import positive_seconds
from .terminal.options import add_command, add_flag
from .terminal.output import json_text, print_note, show_waiting, table

if TYPE_CHECKING:
    from ..wire.models.vendor_types import Vendor


_PROVIDERS = ("ollama", "vllm", "llamacpp", "lmstudio", "sglang")
_TIMEOUT = 1.0  # seconds; a server on this machine answers in milliseconds
_MAX_NAME = 200  # characters; a server could send a name of any length


class LocalServer(NamedTuple):
    """A server that answered with a list of models."""

    provider: str
    base_url: str
    models: tuple[str, ...]


async def find_local_servers(
    addresses: Mapping[str, str] | None = None, *, seconds: float = _TIMEOUT
) -> list[LocalServer]:
    """Ask the usual address of each kind of server for its models, all at the same time. No key is sent."""
    from ..wire.models.vendors import find

    wanted = {name: find(name).base_url for name in _PROVIDERS} if addresses is None else addresses
    found = await asyncio.gather(*(_ask(provider, base_url, seconds) for provider, base_url in wanted.items()))
    return [server for server in found if server is not None]


async def _ask(provider: str, base_url: str, seconds: float) -> LocalServer | None:
    """Return the server at an address; None if there is none, or another program uses its port."""
    from ..net.model.server_facts import list_vendor_models
    from ..wire.models.vendors import find

    try:
        async with asyncio.timeout(seconds):
            names = await list_vendor_models(find(provider), {}, base_url=base_url, seconds=seconds)
    except (TimeoutError, ToolwireError):
        return None
    return LocalServer(provider, base_url, tuple(name for name in names if 0 < len(name) <= _MAX_NAME))


_HELP = """\
List the providers with the state of their keys, ask one provider for its models, show a model, or
use newer rows about providers and models than this version has.

examples:
  toolwire models                      providers: how to name their models, and whether a key is set
  toolwire models anthropic            ask a provider for its models; needs its key
  toolwire models ollama               the models of a server on this machine
  toolwire models vllm --base-url http://gpu:8000/v1
  toolwire models openai --json | jq -r '.models[]'
  toolwire models show kimi-k2.5       window, media, reasoning, tool choice, with sources and dates
  toolwire models show deepseek/deepseek-v4-pro        at one provider
  toolwire models show glm-4.6 --json | jq '.facts[].capabilities.window.value'
  toolwire models show house-7b --capabilities models.json
  toolwire models update https://example.com/rows.json     show the differences; changes nothing
  toolwire models update rows.json --sha256 HASH           use the rows with this hash
  toolwire models update --revert                          go back to the rows before

Keys are read from the environment and never shown.
exit codes: 0 done   1 nothing is known about the model, or the rows are not used yet
2 unknown provider, no key, rows that cannot be used, or the server is unreachable
"""


def add_to(commands: Any) -> None:
    """Register `toolwire models` with its options."""
    parser = add_command(commands, "models", "list the providers and their models", _HELP, run)
    parser.add_argument(
        "provider", nargs="?", metavar="PROVIDER", help="ask this provider for its models; `show`, `update`"
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="with show: MODEL or PROVIDER/MODEL; with update: a file or URL"
    )
    parser.add_argument("--base-url", metavar="URL", help="base URL, if it is not the provider's")
    parser.add_argument(
        "--timeout", type=positive_seconds, default=10.0, metavar="SECONDS", help="timeout of the request (10)"
    )
    parser.add_argument("--wire", metavar="WIRE", help="with show: only the facts on this wire")
    parser.add_argument("--capabilities", metavar="FILE", help="with show: a JSON file of capability rows")
    parser.add_argument("--sha256", metavar="HASH", help="with update: use the rows if this is their hash")
    add_flag(parser, "--revert", "with update: go back to the rows before")
    add_flag(parser, "--json", "print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the providers, the models of a provider, or the facts about a model; or update the rows.

    Raises `ConfigError` for `show` without a model, and for arguments of `show` and `update` without them.
    """
    if arguments.provider == "update":
        from .models_update import update_rows

        return update_rows(arguments.name, arguments.sha256, revert=arguments.revert, as_json=arguments.json)
    if arguments.sha256 is not None or arguments.revert:
        raise ConfigError("--sha256 and --revert need `update`", hint="write: toolwire models update FILE")
    from ..net.model.saved_rows import use_saved_rows

    use_saved_rows(os.environ)
    if arguments.provider == "show":
        from .models_show import show_model

        if arguments.name is None:
            raise ConfigError("show needs the name of a model", hint="such as: toolwire models show kimi-k2.5")
        return show_model(arguments.name, arguments.wire, arguments.capabilities, as_json=arguments.json)
    if arguments.name is not None or arguments.wire is not None or arguments.capabilities is not None:
        hint = f"write: toolwire models show {arguments.name or 'MODEL'}"
        raise ConfigError("a model, --wire and --capabilities need `show`", hint=hint)
    return _list_providers(as_json=arguments.json) if arguments.provider is None else _list_models(arguments)


def _list_providers(*, as_json: bool) -> int:
    """Print all vendors with their wire and the state of their key."""
    from ..wire.models import vendors

    rows = [vendors.find(name) for name in vendors.names()]
    if as_json:
        document = [
            {
                "provider": vendor.name,
                "wire": vendor.wire,
                "base_url": os.environ.get(vendor.base_variable or "") or vendor.base_url,
                "keys": [key.variable for key in vendor.keys],
                "key": key_state(vendor),
            }
            for vendor in rows
        ]
        print(json_text({"providers": document}))
        return 0
    cells = [(v.name, v.wire, key_state(v), " or ".join(key.variable for key in v.keys) or "-") for v in rows]
    print("\n".join(table(cells, ("provider", "wire", "key", "environment variable"), bold=True, hide=("wire",))))
    print_note("A model is PROVIDER/MODEL; local/smollm2 needs no key.", None)
    print_note("toolwire models PROVIDER asks a provider for its models.", None)
    return 0


def key_state(vendor: Vendor) -> str:
    """Return whether the key of a vendor is in the environment: set, missing, or not needed."""
    if any(os.environ.get(key.variable) for key in vendor.keys):
        return "set"
    return "not needed" if vendor.keyless else "missing"


def _list_models(arguments: argparse.Namespace) -> int:
    """Ask a vendor for its models, print them and return 0; the models of `local` and `toolken` are known without a request.

    Raise ConfigError for an unknown vendor, a missing key or a vendor without a list, and UpstreamError if the vendor
    cannot be reached or refuses.
    """
    from ..net.model.server_facts import list_vendor_models
    from ..wire.models import vendors

    vendor = vendors.find(arguments.provider)
    names: tuple[str, ...]
    if vendor.name == "toolken":
        from ..learn.toolken.serving import served_heads

        names = tuple(served_heads())
    elif vendor.transport is not None:  # only `local` has one besides: it runs in this process
        from ..local.weights import weights_names

        names = weights_names()
    else:
        with show_waiting(f"asking {vendor.name}", arguments.timeout):
            names = asyncio.run(
                list_vendor_models(vendor, os.environ, base_url=arguments.base_url, seconds=arguments.timeout)
            )
    if arguments.json:
        print(json_text({"provider": vendor.name, "models": [f"{vendor.name}/{name}" for name in names]}))
        return 0
    for name in names:
        print(neutralise_line(f"{vendor.name}/{name}"))
    print_note(f"{count_of(len(names), 'model')} of {vendor.name}", None)
    return 0
