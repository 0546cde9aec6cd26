"""Addresses of resources matched against templates."""

import pytest

from tables import every_case
from toolwire.mcp.server.offers import Resource
from work_counter import count_work


def resource(template):
    return Resource(template, "r", lambda **_: None)


@every_case(
    ("template", "uri", "variables"),
    [
        ("notes://{name}", "notes://a", {"name": "a"}),
        ("notes://{name}", "notes://", None),
        ("notes://{name}", "notes://a/b", None),
        ("repo://{owner}/{name}", "repo://me/it", {"owner": "me", "name": "it"}),
        ("repo://{owner}/{name}/x", "repo://me/it", None),
        ("file://{name}.{ext}", "file://a.b.txt", {"name": "a.b", "ext": "txt"}),
        ("file://{name}.{ext}", "file://a.", None),
        ("file://{name}.{ext}", "file://.txt", None),
        ("day://{a}-{b}-{c}!", "day://-----!", {"a": "-", "b": "-", "c": "-"}),
        ("day://{a}-{b}-{c}!", "day://----!", None),
        ("two://{a}{b}", "two://xyz", {"a": "xy", "b": "z"}),
        ("two://{a}{b}", "two://x", None),
        ("notes://{name}", "notes://a%2Fb", {"name": "a/b"}),
    ],
)
def test_uri_template_variables_are_matched(template, uri, variables):
    assert resource(template).match(uri) == variables


@pytest.mark.finding("Z2")
def test_several_variables_in_one_segment_are_matched_in_one_pass():
    one = resource("x://{a}-{b}-{c}-{d}!")
    counts = [count_work(lambda n=n: one.match("x://" + "-" * n + "?")) for n in (1_000, 2_000, 4_000)]
    counts += [count_work(lambda n=n: one.match("x://" + "-" * n + "!")) for n in (1_000, 2_000, 4_000)]
    assert max(counts) < 100
