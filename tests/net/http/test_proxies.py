"""The proxy of the environment, and the hosts that do not use it."""

import pytest

from tables import every_case
from toolwire.ir.errors import ConfigError
from toolwire.net import HttpTransport, ModelClient
from toolwire.net.http.connection_settings import proxies_from_environment

PROXY = "http://proxy.internal:3128"


@every_case(
    ("environment", "url"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "", "ALL_PROXY": " "}, None),
        ({"HTTP_PROXY": PROXY, "http_proxy": PROXY}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other:1"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "ALL_PROXY": "socks5://other:1"}, PROXY),
        ({"all_proxy": PROXY}, PROXY),
        ({"ALL_PROXY": "proxy.internal:3128"}, PROXY),
        ({"ALL_PROXY": "HTTP://Proxy.Internal:3128/"}, PROXY),
        ({"ALL_PROXY": "http://proxy.internal"}, "http://proxy.internal:80"),
        ({"ALL_PROXY": "https://proxy.internal"}, "https://proxy.internal:443"),
        ({"ALL_PROXY": "http://[fd00::1]:3128"}, "http://[fd00::1]:3128"),
        ({"ALL_PROXY": "http://user:pass@proxy.internal:3128"}, PROXY),
        ({"ALL_PROXY": "socks5://x:1", "NO_PROXY": "*"}, None),
    ],
)
def test_proxy_of_the_environment(environment, url):
    proxy = proxies_from_environment(environment).proxy_for("api.example.com", 443)
    assert (None if proxy is None else proxy.url) == url


@every_case(
    ("no_proxy", "direct", "through"),
    [
        (
            "example.com",
            ["example.com", "api.example.com", "EXAMPLE.COM.", "a.b.example.com"],
            ["anexample.com", "com"],
        ),
        (".example.com", ["example.com", "api.example.com"], ["anexample.com"]),
        ("*.example.com", ["api.example.com"], ["anexample.com"]),
        ("a.test, b.test  c.test", ["a.test", "b.test", "c.test"], ["d.test"]),
        ("example.com:8443", ["example.com:8443", "api.example.com:8443"], ["example.com"]),
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.4", "10.1.2.3.example.com"]),
        ("10.0.0.0/8,192.168.1.0/24", ["10.200.3.4", "192.168.1.9"], ["192.168.2.1", "10.example.com"]),
        ("10.1.2.3:8443", ["10.1.2.3:8443"], ["10.1.2.3"]),
        ("fd00::/8", ["fd00::1"], ["fe80::1"]),
        ("[fd00::1]:8443", ["[fd00::1]:8443"], ["fd00::1"]),
        ("fd00::1", ["fd00::1", "fd00:0:0::1"], ["fd00::2"]),
        ("10.0.0.0/8", ["::ffff:10.0.0.1"], []),
        ("10.0.0.0/99,,.", [], ["10.0.0.1", "example.com"]),
        ("", ["localhost", "api.localhost", "127.0.0.1", "::1"], ["example.com"]),
        ("*", ["example.com", "10.0.0.1"], []),
        ("a.test,*", ["example.com"], []),
    ],
)
@every_case("variable", ["NO_PROXY", "no_proxy"])
def test_hosts_without_proxy(no_proxy, direct, through, variable):
    settings = proxies_from_environment({"HTTPS_PROXY": PROXY, variable: no_proxy})

    def uses_proxy(address):
        host, _, port = address.rpartition(":") if address.endswith(":8443") else (address, "", "443")
        return settings.proxy_for(host.strip("[]"), int(port)) is not None

    assert [address for address in direct if uses_proxy(address)] == []
    assert [address for address in through if not uses_proxy(address)] == []


def test_lower_case_list_of_direct_hosts_comes_first():
    settings = proxies_from_environment({"HTTPS_PROXY": PROXY, "no_proxy": "a.test", "NO_PROXY": "b.test"})
    assert settings.proxy_for("a.test", 443) is None
    assert settings.proxy_for("b.test", 443) is not None


@pytest.mark.parametrize("scheme", ["socks", "socks4", "socks4a", "socks5", "socks5h", "SOCKS5"])
def test_socks_proxy_is_a_config_error_at_the_start(scheme, monkeypatch):
    url = f"{scheme}://user:pa55word@localhost:1080"
    for make in (
        lambda: HttpTransport(environment={"ALL_PROXY": url}),
        lambda: ModelClient("m", base_url="https://model.example.com", key="k"),
    ):
        monkeypatch.setenv("ALL_PROXY", url)
        with pytest.raises(ConfigError, match="ALL_PROXY: SOCKS proxies are not supported") as refused:
            make()
        assert "NO_PROXY" in refused.value.hint
        assert "pa55word" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["ftp://me:pa55word@proxy", "http://", "http://me:pa55word@proxy:99999", "http://[bad", "//"]
)
def test_invalid_url_of_a_proxy_is_a_config_error_without_its_password(url):
    with pytest.raises(ConfigError, match="HTTPS_PROXY: invalid URL") as refused:
        proxies_from_environment({"HTTPS_PROXY": url})
    assert "pa55word" not in str(refused.value)


def test_credentials_are_decoded_and_not_shown():
    settings = proxies_from_environment({"HTTPS_PROXY": "http://me%40work:p%3A%20%C3%A9@proxy:1"})
    assert settings.proxy.authorization == "Basic bWVAd29yazpwOiDDqQ=="
    assert "Basic" not in f"{settings!r} {settings.proxy!r} {settings.proxy!s}"
    assert "work" not in repr(settings)


@pytest.mark.finding("SE12")
@pytest.mark.parametrize("entry", ["h.example:" + "9" * 5000, "[::1]:" + "1" * 6, "10.0.0.1:" + "٣" * 5000])
def test_long_port_in_no_proxy_is_a_config_error(entry):
    with pytest.raises(ConfigError, match="NO_PROXY: invalid port"):
        proxies_from_environment({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": f"a.example,{entry}"})
