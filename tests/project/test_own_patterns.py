"""The regular expressions of the package cost steps in proportion to the text, which may come from an attacker."""

import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import toolwire
from backtracking import find_expensive, nests_backtracking, parse
from places import TESTS
from toolwire import wire
from toolwire.bridge.emulation.control_tokens import _BARS
from toolwire.gateway.request.routes import INGRESSES
from toolwire.text.engine.envelope import _GAP
from toolwire.text.engine.json_end_scanner import SHORT_OBJECT
from toolwire.text.engine.markers import _SPECIAL, HEAD

# Patterns that are not known before they are used, by file and function: examples, or a class and its field with them.
LITERALS = ["a|ab|\\(c"]  # alternatives of escaped texts
OF_THE_OPERATOR = []  # the operator's own pattern, not ours
DYNAMIC = {
    ("audit/provider_rules/openai_shared.py", "tool_name"): ["[a-zA-Z0-9_-]{1,128}"],
    ("audit/quality_rules.py", "_check_format"): [r"(?<![^_])(?:url|uri|link)\Z", r"iso[- ]?8601|\bunix\b"],
    ("bridge/emulation/control_tokens.py", "_build_patterns"): [
        r"(?:(?m:^)|(?<=\r))[ \t]*(?:Observation:)",
        f"{_BARS}|<tool_response>",
        f"(?=({_BARS}|<tool_response>))",
    ],
    ("bridge/conversation/reading.py", "_field_pattern"): [r'"messages"\s*+:\s*+\[\s*+'],
    ("bridge/conversation/names.py", "_matcher"): "Limits.id",
    ("bridge/conversation/names.py", "_make_legal"): "Limits.name",
    ("bridge/conversation/names.py", "_fits_pattern"): "Limits.name",
    ("gateway/request/field_scan.py", "__init__"): [
        (
            rb'"(?:(model|(?!model")(?i:model(?:s|\xc5\xbf)))"|'
            rb'(?:(?:[^"\\]|\\(?!u(?:00[4-7]|017[fF])).)*+(\\u(?:00[4-7]|017[fF])))?+(?:[^"\\]|\\.)*+")'
        ),
        rb'"(?:model|(?!model")(?i:model(?:s|\xc5\xbf)))"\s*+:|\\u(?:00[4-7]|017[fF])',
    ],
    ("gateway/config/parsing.py", "find_rule_problems"): OF_THE_OPERATOR,
    ("net/model/endpoint_credentials.py", "is_own_origin"): "Vendor.hosts",
    ("net/model/endpoint_settings.py", "_has_version"): "Surface.api_versions",
    ("net/model/pass_through.py", "has_valid_ids"): "Limits.id",
    ("openapi/security.py", "__init__"): LITERALS,
    ("retrieve/api_call.py", "_find_call_text"): [r"(?<![\w.])(?:a|a\.b)\s*\("],
    ("retrieve/section_file.py", "_remove_abandoned"): [r"\.index\.[0-9a-f]{12}\.new"],
    ("retrieve/commands/catalogue.py", "_command_words"): [r"(?m)^[^\w\n]*git\-log(?![\w-])"],
    ("retrieve/commands/read_only.py", "_is_operand"): "ReadOnlyUse.operands",
    ("retrieve/commands/manual_text.py", "usage_lines"): [r"git\-log(?![\w-])"],
    ("run/traces/redact.py", "__init__"): OF_THE_OPERATOR,
    ("schema/lowering/emission.py", "_is_legal"): "Dialect.property_name",
    ("testing/__main__.py", ""): [r"([45][0-9]{2})(?::([0-9]{1,5}))?"],  # a program, which is not imported
    ("testing/stream_checks.py", "_end_of_answer"): [wire.get(name).terminal for name in INGRESSES],
    ("testing/upstream.py", "_path_pattern"): [
        r"/v1(?:beta|alpha)?/models/(?P<model>[^/]+):generateContent(?:[?&]|\Z)"
    ],
    ("testing/upstream.py", "_template_pattern"): [r"/openai/deployments/(?P<model>[^/]+)/chat(?:[?&]|\Z)"],
    ("text/engine/detection.py", "detect_by_text"): "._BARE+_FORMATS_AFTER_MARKER",
    ("text/engine/envelope.py", "_short_call"): [
        (
            rf'\{{{_GAP}"(?:name)"{_GAP}:{_GAP}"([^"\\\x00-\x1f]++)"{_GAP},{_GAP}'
            rf'"(?:arguments|parameters)"{_GAP}:{_GAP}({SHORT_OBJECT}){_GAP}\}}'
        )
    ],
    ("text/engine/lark.py", "__init__"): LITERALS,
    ("text/engine/reader.py", "__init__"): LITERALS,
    ("text/engine/reader.py", "_searches_by_character"): LITERALS,
    ("text/engine/markers.py", "remove_special_tokens"): [f"<a>{HEAD}<b>|{_SPECIAL.pattern}"],
    ("text/styles/header_calls.py", "read"): "HeaderCalls.header",
    ("text/styles/header_calls.py", "_write_call"): "HeaderCalls.header",
    ("wire/models/capabilities.py", "check_capabilities"): OF_THE_OPERATOR,
    ("wire/faults.py", "kind_of_message"): "FaultTable.messages",
    ("wire/faults.py", "find_breach"): "Signature.pattern",
}
# Patterns that run only on text that another pattern has matched: that pattern, by file and name.
GUARDED = {
    ("stream/framing.py", "_PLAIN_FRAME"): rb"(?:(?:event: ?[^\r\n]*+\n)?data: ?[^\r\n]*+\n\n)*+",
    ("stream/strict.py", "_each_item"): rb'(?:[^"{}\[\],]*+(?:"[^"]*+"[^"{}\[\],]*+)?+,)*+',
    ("gateway/request/field_scan.py", "_NAMES_AND_STRINGS"): rb'(?:[^"]++|"[^"\\]*+(?:\\["\\/bfnrtu][^"\\]*+)*+")*+',
    ("gateway/request/field_scan.py", "__init__"): rb'(?:[^"]++|"[^"\\]*+(?:\\["\\/bfnrtu][^"\\]*+)*+")*+',
    ("gateway/request/field_scan.py", "_STRINGS"): rb'(?:[^"]++|"[^"\\]*+(?:\\["\\/bfnrtu][^"\\]*+)*+")*+',
}


# Patterns whose cost is linear, as hashes of the arguments of `find_expensive`. Together they take a minute of CPU, and
# their cost depends on nothing else; so `make test` checks the new ones, and `make test-all` all. A change of the
# counting empties the list. Write it: python tests/project/test_own_patterns.py
LINEAR = TESTS / "vectors" / "linear_patterns.txt"
COUNTING = (TESTS / "support" / "backtracking.py").read_bytes()


def collect_patterns():
    """Return the patterns, and the calls whose patterns are not known, of a process that imports the package anew."""
    script = TESTS / "support" / "own_patterns.py"
    fields = {examples for examples in DYNAMIC.values() if isinstance(examples, str)}
    command = [sys.executable, script, Path(toolwire.__file__).parents[1], *sorted(fields)]
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # a pattern with a set in it has the same fingerprint each time
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    return pickle.loads(done.stdout)


@pytest.fixture(scope="module")
def collected():
    return collect_patterns()


@pytest.fixture
def deep_recursion():
    """The matcher has a few frames for each repetition of a group."""
    previous = sys.getrecursionlimit()
    sys.setrecursionlimit(200_000)
    yield
    sys.setrecursionlimit(previous)


@pytest.mark.finding("Z2")
def test_no_pattern_of_the_package_nests_repetitions_that_backtrack(collected):
    patterns, _, _ = collected
    assert len(patterns) > 500
    assert not [own.place for own in patterns if nests_backtracking(parse(own.pattern, own.flags))]


@pytest.mark.finding("SE1")
def test_every_pattern_is_collected_or_listed(collected):
    _, unknown, _ = collected
    unlisted = {(call.path, call.function) for call in unknown} - DYNAMIC.keys()
    assert not unlisted, "patterns that are made at run time need an example in DYNAMIC"
    assert not DYNAMIC.keys() - {(call.path, call.function) for call in unknown}


def listed_patterns(unknown, values):
    for call in unknown:
        examples = DYNAMIC[call.path, call.function]
        if isinstance(examples, str):
            examples = values[examples]
            assert examples, call
        guard = GUARDED.get((call.path, call.function))
        yield from ((example, 0, method, guard, call.place) for example in examples for method in call.methods)


def checked_patterns(collected):
    """Return the arguments of `find_expensive` for each pattern, with its place."""
    patterns, unknown, values = collected
    checked = {}
    for own in patterns:
        path = own.place.partition(":")[0]
        checked[own.pattern, own.flags, own.method, GUARDED.get((path, own.name))] = own.place
    for *arguments, place in listed_patterns(unknown, values):
        checked[tuple(arguments)] = place
    return checked


def fingerprint(arguments):
    pattern, flags, method, guard = arguments
    return hashlib.sha256(repr((pattern, int(flags), method, guard)).encode() + COUNTING).hexdigest()[:16]


def check_patterns(checked):
    found = {arguments: find_expensive(*arguments) for arguments in checked}
    assert not {(checked[key], key[0]): attack for key, attack in found.items() if attack is not None}


@pytest.mark.finding("SE1")
@pytest.mark.usefixtures("deep_recursion")
def test_no_new_pattern_of_the_package_has_super_linear_cost(collected):
    known = set(LINEAR.read_text().split())
    checked = checked_patterns(collected)
    new = {arguments: place for arguments, place in checked.items() if fingerprint(arguments) not in known}
    check_patterns(new)
    assert len(new) < 30, f"{len(new)} patterns are not in {LINEAR.name}: write it again"


@pytest.mark.full
@pytest.mark.finding("SE1")
@pytest.mark.usefixtures("deep_recursion")
@pytest.mark.parametrize("share", range(4))
def test_no_pattern_of_the_package_has_super_linear_cost(collected, share):
    checked = checked_patterns(collected)
    check_patterns({arguments: checked[arguments] for arguments in [*checked][share::4]})


if __name__ == "__main__":
    sys.setrecursionlimit(200_000)
    linear = checked_patterns(collect_patterns())
    check_patterns(linear)
    LINEAR.write_text("".join(f"{line}\n" for line in sorted(map(fingerprint, linear))))
