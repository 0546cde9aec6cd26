"""The Host and Origin headers, and repeated headers."""

import pytest

from toolwire.asgi.access import OriginPolicy, RequestRefused
from toolwire.ir.errors import ProtocolError

HOST = (b"host", b"localhost:8000")


def make_policy(**options):
    return OriginPolicy(["Gateway.example"], ["https://page.example/"], **{"open_to_all": False, **options})


@pytest.mark.parametrize("host", [b"localhost:8000", b"127.0.0.1", b"[::1]:80", b"gateway.example:443"])
def test_known_host_is_accepted_again(host):
    policy = make_policy()
    for _ in range(2):
        policy.check([(b"host", host)])


@pytest.mark.parametrize(
    "host",
    [b"evil.example", b"localhost@evil.example", b"localhost/x", b"localhost#x", b"localhost:x", b"localhost:99999"],
)
def test_unknown_host_is_refused_also_after_a_known_one(host):
    policy = make_policy()
    policy.check([HOST])
    for _ in range(2):
        with pytest.raises(RequestRefused):
            policy.check([(b"host", host)])
    make_policy(open_to_all=True).check([(b"host", host)])


@pytest.mark.parametrize("name", [b"host", b"origin", b"content-length", b"authorization"])
def test_repeated_header_is_refused(name):
    value = b"http://localhost" if name == b"origin" else b"localhost"
    with pytest.raises(ProtocolError, match=f"repeated header {name.decode()}"):
        make_policy().check([HOST, (name, value), (name, value)])


def test_many_host_headers_are_checked_without_being_kept():
    policy = make_policy()
    for number in range(200):
        policy.check([(b"host", b"localhost:%d" % number)])
    with pytest.raises(RequestRefused):
        policy.check([(b"host", b"evil.example")])
    assert len(policy._known_hosts) < 100


@pytest.mark.parametrize("name", [b"host", b"content-length", b"authorization", b"x-api-key", b"content-type"])
def test_repeated_header_that_decides_something_is_refused(name):
    with pytest.raises(ProtocolError, match=f"repeated header {name.decode()}"):
        make_policy().check([HOST, (b"x-other", b"1"), (name, b"1"), (name, b"2")])


def test_other_headers_may_be_repeated():
    make_policy().check([(b"accept", b"a"), HOST, (b"accept", b"b")])


@pytest.mark.parametrize("pairs", [[], [(b"host", b"")]])
def test_missing_host_is_refused(pairs):
    with pytest.raises(ProtocolError, match="no Host"):
        make_policy(open_to_all=True).check(pairs)
    make_policy(open_to_all=True).check(pairs, "1.0")


def test_origin_is_checked_besides_a_known_host():
    policy = make_policy()
    for _ in range(2):
        policy.check([HOST, (b"origin", b"https://page.example")])
        with pytest.raises(RequestRefused):
            policy.check([HOST, (b"origin", b"https://evil.example")])
