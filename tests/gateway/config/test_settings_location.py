"""Locations of settings in the notation of TOML, and their lines."""

import pytest

from toolwire.gateway.config.notation import TomlLines, toml_location

TEXT = """\
# models.fast = 1
[server]
port = 1

[models.fast]
upstream = "a"
targets = [
  { upstream = "a" },
]

[models."gpt-4.1".capabilities]
"effort" = 1
[[tools."*".openapi]]
file = "x"
"""


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("server", "port"), "[server] port"),
        (("server",), "[server]"),
        (("models", "gpt-4.1"), '[models."gpt-4.1"]'),
        (("models", "fast", "targets", 1, "weight"), "[models.fast] targets[1].weight"),
        (("models", "fast", "capabilities", "tools"), "[models.fast.capabilities] tools"),
        (("keys", "a b", "hash"), '[keys."a b"] hash'),
        (("capabilities_file",), "capabilities_file"),
        (("log", "remove", 0), "[log] remove[0]"),
        ((), ""),
    ],
)
def test_location_is_in_the_notation_of_the_file(path, text):
    assert toml_location(path) == text


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("server", "port"), 3),
        (("server", "host"), 2),
        (("models", "fast", "upstream"), 6),
        (("models", "fast", "targets", 0, "weight"), 7),
        (("models", "gpt-4.1", "capabilities", "effort"), 12),
        (("tools", "*", "openapi", 0, "file"), 14),
        (("nothing",), None),
        ((), None),
    ],
)
def test_line_is_that_of_the_key_or_of_its_table(path, line):
    assert TomlLines(TEXT).find(path) == line


def test_search_is_bounded_and_survives_any_text():
    hostile = "[" * 5000 + "\n" + "a" * 100_000 + "=1\n" + 'x = """\n[models.fast]\n"""\n[models.fast]\n'
    assert TomlLines(hostile).find(("models", "fast")) is not None
