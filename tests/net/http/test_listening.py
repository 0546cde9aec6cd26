"""Nothing listens for other machines without authentication."""

import socket

import pytest

from tables import every_case
from toolwire.asgi.access import refuse_open
from toolwire.gateway.config.settings import ServerRow, Settings
from toolwire.gateway.processes.server import bind
from toolwire.ir.errors import ConfigError
from toolwire.wire.loopback import is_loopback

LOCAL = [
    "127.0.0.1",
    "127.0.0.2",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "::1",
    "[::1]",
    "0:0:0:0:0:0:0:1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
]
OPEN = [
    "",
    "0",
    "0.0.0.0",
    "::",
    "[::]",
    "::0",
    "::ffff:0.0.0.0",
    "::ffff:0:0",
    "192.168.1.5",
    "169.254.1.1",
    "2001:db8::1",
    "example.com",
    "localhost.example.com",
    "notlocalhost",
    "127.0.0.1.nip.io",
    "2130706433",
    "0x7f.1",
    "*",
    " ",
]


@pytest.mark.finding("Z7")
@every_case("host", LOCAL)
def test_loopback_address_needs_no_token(host):
    assert is_loopback(host)
    refuse_open(host, without="a token", hint="")


@pytest.mark.finding("Z7")
@every_case("host", OPEN)
def test_every_other_address_needs_a_token(host):
    assert not is_loopback(host)
    with pytest.raises(
        ConfigError, match=r"without a token, .+ would be open to every client that can reach it"
    ) as caught:
        refuse_open(host, without="a token", hint="do this")
    assert caught.value.hint == "do this"


@pytest.mark.finding("Z7")
def test_localhost_subdomain_is_judged_by_its_resolved_addresses(monkeypatch):
    resolved = {"a.localhost": ["127.0.0.1", "::1"], "b.localhost": ["127.0.0.1", "10.0.0.5"]}

    def getaddrinfo(host, port, **options):
        if host not in resolved:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in resolved[host]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    refuse_open("a.localhost", without="a token", hint="")
    refuse_open("unknown.localhost", without="a token", hint="")
    with pytest.raises(ConfigError, match=r"b\.localhost"):
        refuse_open("b.localhost", without="a token", hint="")


@pytest.mark.finding("Z7")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "0", "::ffff:0.0.0.0"])
def test_gateway_rejects_the_same_addresses_without_keys(host):
    with pytest.raises(ConfigError, match=r"without keys, .+ would be open"):
        bind(Settings(server=ServerRow(host=host)), port=0)
