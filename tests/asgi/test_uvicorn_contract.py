"""The parts of uvicorn that its documentation does not promise: a change of them is found here, or when a server starts."""

import ast
import asyncio
import inspect
import tomllib

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.server import ServerState

from places import ROOT
from toolwire.asgi import limited_http, request_cycle
from toolwire.asgi.uvicorn_internals import VERSIONS, check_uvicorn, used_names
from toolwire.gateway.processes import server as serve
from toolwire.ir.errors import ConfigError

CLASSES = {**vars(httptools_impl), "Server": uvicorn.Server}


async def app(scope, receive, send): ...


def make_instances():
    """A protocol with a request in progress, its cycle, and a server that has started, as uvicorn makes them."""

    async def make():
        config = uvicorn.Config(app, log_config=None)
        protocol = httptools_impl.HttpToolsProtocol(config, ServerState(), {})
        protocol.connection_made(asyncio.Transport({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}))
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        for task in protocol.tasks:
            task.cancel()
        server = uvicorn.Server(config)
        server.should_exit = True
        await server._serve(sockets=[])
        return {
            "HttpToolsProtocol": protocol,
            "RequestResponseCycle": protocol.cycle,
            "FlowControl": protocol.flow,
            "Server": server,
        }

    return asyncio.run(make())


def test_installed_version_has_every_attribute_that_is_used():
    check_uvicorn(uvicorn.__version__, CLASSES)
    for name, instance in make_instances().items():
        assert [attribute for attribute in used_names()[name] if not hasattr(instance, attribute)] == []


def find_class(module, name):
    tree = ast.parse(inspect.getsource(module))
    return next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)


def inherited_names(node):
    """Attributes of `self` that the class takes from uvicorn, and the methods that it overrides or calls."""
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    attributes = [item for item in ast.walk(node) if isinstance(item, ast.Attribute)]
    own = {item.attr for item in attributes if isinstance(item.ctx, ast.Store)} | {item.name for item in methods}
    used = {item.attr for item in attributes if isinstance(item.value, ast.Name) and item.value.id == "self"}
    called = {item.attr for item in attributes if isinstance(item.value, ast.Call)}  # super()
    return (used - own) | (called & own)


@pytest.mark.parametrize(
    ("module", "name", "base"),
    [
        (limited_http, "_LimitedHttp", "HttpToolsProtocol"),
        (request_cycle, "RequestCycle", "RequestResponseCycle"),
        (serve, "_UvicornServer", "Server"),
    ],
)
def test_list_of_used_attributes_is_complete(module, name, base):
    missing = inherited_names(find_class(module, name)) - used_names()[base]
    assert {attribute for attribute in missing if not attribute.startswith("__")} == set()


@pytest.mark.parametrize("version", ["0.39.9", "0.55.0", "1.0", "0.55.0rc1"])
def test_other_version_is_refused_with_the_version_to_install(version):
    with pytest.raises(ConfigError, match=f"uvicorn {version} is not supported") as refused:
        check_uvicorn(version, CLASSES)
    assert refused.value.hint == "pip install 'uvicorn>=0.46,<0.55'"


def test_missing_attribute_is_refused():
    class Renamed:
        def start(self):
            self.exits = True

    with pytest.raises(ConfigError, match=r"has no Server\.capture_signals"):
        check_uvicorn(uvicorn.__version__, {**CLASSES, "Server": Renamed})


def test_attribute_that_only_the_constructor_of_uvicorn_sets_is_refused():
    class Extended(httptools_impl.RequestResponseCycle):
        def __init__(self):
            self.trailers = []

    with pytest.raises(ConfigError, match=r"has RequestResponseCycle\.trailers, which is not known"):
        check_uvicorn(uvicorn.__version__, {**CLASSES, "RequestResponseCycle": Extended})


def test_package_metadata_has_the_same_bounds():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    bounds = ">={}.{},<{}.{}".format(*VERSIONS[0], *VERSIONS[1])
    found = [package for extra in extras.values() for package in extra if package.startswith("uvicorn")]
    assert set(found) == {f"uvicorn{bounds}"}
