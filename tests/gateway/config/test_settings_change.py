"""The description of a reload."""

import pytest

from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.processes.server import describe_change

HASH = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90"


def settings(models=(), **more):
    rows = {name: {"upstream": "up"} for name in models}
    return parse_settings({"upstreams": {"up": {"base_url": "http://localhost:1/v1"}}, "models": rows, **more})


@pytest.mark.finding("U7")
def test_added_removed_and_changed_names_are_described():
    old = settings(["a", "b"])
    new = settings(["b", "c"], keys={"ann": {"hash": HASH}}, limits={"ping": 3})
    assert describe_change(old, new) == (
        "2 models, 1 key, 1 upstream; added model 'c'; removed model 'a'; added key 'ann'; changed [limits]"
    )


def test_unchanged_settings_are_described():
    assert describe_change(settings(["a"]), settings(["a"])) == "1 model, 1 upstream; nothing changed"


def test_settings_that_need_a_restart_are_named():
    text = describe_change(
        settings(["a"]), settings(["a"], server={"port": 9}, log={"file": "x"}, limits={"connections": 1})
    )
    assert text.endswith("restart the gateway to apply [log], server.port, limits.connections")


def test_number_of_names_is_bounded():
    text = describe_change(settings(), settings([f"{'m' * 500}{number}" for number in range(1000)]))
    assert "and 995 more" in text
    assert len(text) < 600
