"""Errors in the rows of upstreams name the row."""

import asyncio

import pytest

from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.ir.errors import ConfigError


def test_unknown_provider_names_the_row_and_the_closest_provider():
    with pytest.raises(ConfigError) as error:
        Gateway(parse_settings({"upstreams": {"o": {"provider": "opnai"}}}), environment={})
    assert str(error.value) == "[upstreams.o]: unknown provider 'opnai' (did you mean 'openai'?)"


def test_unknown_provider_names_the_row_if_exchanges_are_recorded(tmp_path):
    settings = parse_settings({"upstreams": {"o": {"provider": "opnai"}}, "trace": {"record": str(tmp_path)}})
    telemetry = open_telemetry(settings, {})
    with pytest.raises(ConfigError, match=r"\[upstreams\.o\]: unknown provider 'opnai'"):
        telemetry.transports()
    asyncio.run(telemetry.aclose())


def test_wrong_base_url_names_the_row_and_shows_the_value():
    with pytest.raises(ConfigError, match=r"\[upstreams\.o\]: a base URL must begin .* got '127\.0\.0\.1:9555'"):
        Gateway(parse_settings({"upstreams": {"o": {"base_url": "127.0.0.1:9555"}}}), environment={})
