"""Options of the commands that run an agent, and the client, the tools and the agent that they describe."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from ...ir.errors import ConfigError
from ..sources.targets import DEFAULT_TTL, add_store_option, add_ttl_option
from ..sources.tool_source import add_source_options, open_source, refuse_api_options, source_kind
from ..terminal.options import DEFAULT_MODEL, add_list, add_model, positive_number, read_variable
from ..terminal.output import print_note

if TYPE_CHECKING:
    from ...ir.response import Response
    from ...net.agent.agent import Agent
    from ...net.model.client import ModelClient
    from ...net.tools.steps import Approver
    from ...run.calls.observe import Observer
    from ...run.session.state import Budget
    from ...run.tools.toolbox import Toolbox
    from ...run.values.records import Store


def add_model_options(parser: Any, *, default: str | None = DEFAULT_MODEL, required: bool = False) -> None:
    """Add the options that choose the model: name, base URL, key, price, text format."""
    add_model(parser, default=default, required=required)
    parser.add_argument("--base-url", help="base URL of the model, if not its provider's")
    parser.add_argument("--key-env", metavar="NAME", help="environment variable with the key for --base-url")
    parser.add_argument(
        "--price",
        metavar="INPUT/OUTPUT",
        help="price of a million tokens, to compute the cost, as in 3/15; cached input tokens count as input",
    )
    _add_text_options(parser)


def add_tool_options(parser: Any) -> None:
    """Add the option of the tools, and the options of MCP servers and OpenAPI documents."""
    add_list(
        parser,
        "-t",
        "--tools",
        metavar="SOURCE",
        help="tools for the model: a Python file of functions, an MCP server (URL, command in quotes or mcpServers file), or "
        "an OpenAPI document; repeatable",
    )
    add_source_options(parser)


def add_agent_options(parser: Any, *, iterations: int | None) -> None:
    """Add the options for the budget, the store and the trace.

    `iterations` is the default budget; None takes the budget of the stored run, which is always in a store.
    """
    shown = "default: as in the stored run" if iterations is None else str(iterations)
    without_store = "" if iterations is None else ", none"
    parser.add_argument(
        "--max-iterations", type=positive_number, default=iterations, metavar="N",
        help=f"maximum number of model requests ({shown})",
    )  # fmt: skip
    add_store_option(
        parser, f"store for runs and the records of calls: a file, redis://…, postgresql://…{without_store}"
    )
    add_ttl_option(parser)
    parser.add_argument(
        "--trace", metavar="FILE", help="record the run in FILE, for `toolwire trace show` and `toolwire trace replay`"
    )


def _add_text_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for a model without tool calling."""
    parser.add_argument(
        "--text", metavar="FORMAT", help="text format for a model without tool calling; see `toolwire formats`"
    )
    parser.add_argument(
        "--via",
        choices=["chat", "completions"],
        default="chat",
        help="endpoint for --text: chat, or the raw completion endpoint of a local server",
    )
    parser.add_argument(
        "--template", metavar="NAME", help="chat template for --via completions (default: by the model)"
    )


def make_client(arguments: argparse.Namespace) -> ModelClient:
    """Make the client of the model. A missing `--key-env` variable is an error, not a request without a key."""
    from ...bridge.emulation.settings import EmulationSettings
    from ...net.model.client import ModelClient

    if arguments.text is None and (arguments.via != "chat" or arguments.template is not None):
        raise ConfigError("--via and --template need a text format", hint="add --text FORMAT; see `toolwire formats`")
    text = None if arguments.text is None else EmulationSettings(arguments.text, arguments.via, arguments.template)
    return ModelClient(arguments.model, base_url=arguments.base_url, text=text, key=read_variable(arguments.key_env))


def make_price(text: str | None) -> Callable[[Response], float] | None:
    """Return the function that computes the cost of a response from `--price`, or None without it.

    Raises `ConfigError` unless it is two finite numbers that are not negative.
    """
    if text is None:
        return None
    try:
        prices = [float(number) for number in text.split("/")]
        if len(prices) != 2 or not all(0 <= price < float("inf") for price in prices):
            raise ValueError
    except ValueError:
        raise ConfigError(f"invalid price {text!r}", hint="use --price INPUT/OUTPUT, as in 3/15") from None

    def price(response: Response) -> float:
        usage = response.usage
        if usage is None:
            return 0.0
        return ((usage.input or 0) * prices[0] + (usage.output or 0) * prices[1]) / 1_000_000

    return price


def announce_model(model: str | None, *, base_url: str | None) -> None:
    """Describe the abilities of a local model on standard error, in one line; nothing for other models."""
    if model is None or base_url is not None or not model.startswith("local/"):
        return
    from ...local.weights import find_weights

    about = find_weights(model.removeprefix("local/")).about
    print_note(f"{model}: {about}", "dim")


@asynccontextmanager
async def open_tools(arguments: argparse.Namespace) -> AsyncIterator[list[Toolbox]]:
    """Open all sources of tools, and report their problems."""
    if not any(source_kind(source) == "openapi" for source in arguments.tools):
        refuse_api_options(arguments, "add -t FILE")
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_source(source, arguments)) for source in arguments.tools]


def make_agent(
    client: ModelClient,
    tools: list[Toolbox],
    arguments: argparse.Namespace,
    *,
    store: Store | None,
    approve: Approver | Literal["suspend"],
    budget: Budget | None,
    system: str = "",
    output_type: Any = str,
    dry_run: bool = False,
    tenant: str = "",
    name: str = "",
) -> Agent[None, Any]:
    """Make the agent and its runner, with the observer of --trace.

    Without `--yes`, calls with side effects need approval. Raises `ConfigError` for an invalid --price.
    """
    from ...net.agent.agent import Agent
    from ...net.tools.runner import Runner
    from ...run.calls.policy import Policy

    observers = _make_observers(arguments)
    runner = Runner(
        *tools,
        observers=observers,
        store=store,
        policy=Policy() if arguments.yes else Policy(approve=("write", "idempotent")),
        approve=approve,
        ttl=arguments.ttl,
        dry_run=dry_run,
        tenant=tenant,
    )
    return Agent(
        client,
        runner,
        name=name,
        system=system,
        output_type=output_type,
        budget=budget,
        price=make_price(arguments.price),
        observers=observers,
    )


def _make_observers(arguments: argparse.Namespace) -> list[Observer]:
    """Return the observer that records the run in --trace, or nothing without it.

    An existing file is kept: the new name gets a number, which is printed.
    """
    if not arguments.trace:
        return []
    from ...net.trace.observer import TraceObserver

    key = os.environ.get(arguments.key_env) if arguments.key_env else None
    given = path = Path(arguments.trace)
    number = 1
    while path.is_file():
        number += 1
        path = given.with_stem(f"{given.stem}-{number}")
    if path != given:
        print_note(f"{given} exists; the trace is written to {path}", None)
    return [TraceObserver(path, secrets=[] if key is None else [key])]


def resume_command(arguments: argparse.Namespace, run_id: str) -> str:
    """Return the command that continues a run, with the tools and the model of this command.

    Secrets are left out: passwords in URLs, and values of headers and environment variables.
    """
    words = ["toolwire", "runs", "resume", run_id]
    for source in arguments.tools:
        words += ["-t", quote(_without_password(source))]
    for name in ("model", "base_url", "key_env", "text", "template", "price", "api_url"):
        if getattr(arguments, name):
            words += [_option(name), quote(_without_password(getattr(arguments, name)))]
    words += [] if arguments.via == "chat" else ["--via", arguments.via]
    for name in ("header", "env"):  # values may be secrets
        words += [
            word for value in getattr(arguments, name) for word in (_option(name), value.partition("=")[0] + "=…")
        ]
    for name in ("api_auth_env", "api_tag", "api_operation"):
        for value in getattr(arguments, name):
            words += [_option(name), quote(value)]
    words += [_option(name) for name in ("api_insecure", "yes") if getattr(arguments, name)]
    words += [] if arguments.ttl == DEFAULT_TTL else ["--ttl", f"{arguments.ttl:g}"]
    return " ".join(words) + place_options(arguments)


def _option(name: str) -> str:
    return "-m" if name == "model" else f"--{name.replace('_', '-')}"


def place_options(arguments: argparse.Namespace) -> str:
    """Return the options that find a stored run, for a command that the user may copy. No password is printed."""
    store, tenant = arguments.store, getattr(arguments, "tenant", "")
    tenant_option = f" --tenant {quote(tenant)}" if tenant else ""
    return tenant_option + (f" --store {quote(_without_password(store))}" if store else "")


def _without_password(url: str) -> str:
    from ...net.stores.address import redact

    return redact(url, url)
