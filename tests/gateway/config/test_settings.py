"""`toolwire.toml` and LiteLLM's file: what is in them, and what is wrong with them."""

import tomllib

import pytest

from tables import every_case
from toolwire.gateway.config.notation import format_settings
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.settings_file import load_settings
from toolwire.ir.errors import ConfigError

UPSTREAM = {"upstreams": {"a": {"base_url": "http://localhost"}}}
HASH = "0" * 64


def wrong(document):
    with pytest.raises(ConfigError) as caught:
        parse_settings(document)
    return str(caught.value)


def test_everything_has_a_default():
    settings = parse_settings({})
    assert settings.server.host == "127.0.0.1"
    assert settings.limits.body > settings.limits.head


@pytest.mark.parametrize(
    ("document", "where", "meant"),
    [
        ({"upstream": {}}, "[upstream]", "upstreams"),
        ({"limits": {"bodi": 1}}, "[limits] bodi", "body"),
        ({"upstreams": {"a": {"base_ulr": "x"}}}, "[upstreams.a] base_ulr", "base_url"),
        ({**UPSTREAM, "models": {"m": {"upstream": "a", "fallback": []}}}, "[models.m] fallback", "fallbacks"),
        (
            {**UPSTREAM, "models": {"m": {"targets": [{"upstream": "a", "wieght": 1}]}}},
            "[models.m] targets[0].wieght",
            "weight",
        ),
        (
            {"keys": {"me": {"hash": HASH, "request_per_minute": 1}}},
            "[keys.me] request_per_minute",
            "requests_per_minute",
        ),
        ({"server": {"prot": 1}}, "[server] prot", "port"),
        (
            {**UPSTREAM, "models": {"m": {"upstream": "a", "capabilities": {"effort": []}}}},
            "[models.m.capabilities] effort",
            "efforts",
        ),
    ],
)
def test_unknown_setting_error_has_location_and_suggestion(document, where, meant):
    said = wrong(document)
    assert where in said
    assert f"did you mean {meant!r}?" in said


def test_unknown_setting_without_a_similar_name_lists_known_settings():
    assert "known settings: server, upstreams, models" in wrong({"zzzzzz": 1})


@every_case(
    ("document", "words"),
    [
        ({"limits": {"body": "much"}}, "[limits] body: expected an integer, got a string"),
        ({"server": []}, "[server]: expected a table, got a list"),
        ({"upstreams": {"a": {"timeout": "long"}}}, "[upstreams.a] timeout: expected a number, got a string"),
        ({"upstreams": {"a": {"cache": "on"}}}, "use one of 'auto', 'client', 'off'"),
        ({**UPSTREAM, "models": {"m": {}}}, "[models.m]: needs exactly one of `upstream` and `targets`"),
        ({**UPSTREAM, "models": {"m": {"upstream": "a", "targets": [{"upstream": "a"}]}}}, "needs exactly one of"),
        ({**UPSTREAM, "models": {"m": {"upstream": "aa"}}}, "did you mean 'a'?"),
        ({"hosted": {"web_search": {}}}, "[hosted.web_search]: needs exactly one of `mcp` and `command`"),
        (
            {"hosted": {"web_search": {"mcp": "http://a/mcp", "command": "a"}}},
            "needs exactly one of `mcp` and `command`",
        ),
        ({"models": {"m": {"upstream": "a"}}}, "known upstreams: none"),
        (
            {**UPSTREAM, "models": {"m": {"upstream": "a", "fallbacks": ["n"]}}},
            "[models.m] fallbacks[0]: unknown model 'n'",
        ),
        ({**UPSTREAM, "models": {"m": {"targets": [{"upstream": "a", "weight": 0}]}}}, "use a number above 0"),
        (
            {**UPSTREAM, "models": {"m": {"targets": [{"upstream": "a", "weight": -1.0}]}}},
            "a weight must be positive and finite, got -1.0",
        ),
        ({**UPSTREAM, "models": {"m": {"upstream": "a", "repair": "some"}}}, "repair"),
        (
            {**UPSTREAM, "models": {"m": {"upstream": "a", "retrieve": 8}}},
            "write retrieve = true, or retrieve = {k = 8,",
        ),
        (
            {**UPSTREAM, "models": {"m": {"upstream": "a", "retrieve": {"always": "fetch"}}}},
            "[models.m.retrieve] always: expected a list, got a string",
        ),
        (
            {**UPSTREAM, "models": {"m": {"upstream": "a", "retrieve": {"k": 0}}}},
            "[models.m.retrieve] k: must be from 1 to 1000, got 0",
        ),
        ({**UPSTREAM, "models": {"m": {"upstream": "a", "retrieve": {"n": 4}}}}, "[models.m.retrieve] n: unknown"),
        (
            {**UPSTREAM, "models": {"m": {"upstream": "a", "retrieve": {"always": [" "]}}}},
            "[models.m.retrieve] always[0]: is empty",
        ),
        (
            {**UPSTREAM, "models": {"m": {"upstream": "a", "tools": False, "retrieve": True}}},
            "[models.m] retrieve: the model accepts no tools",
        ),
        ({**UPSTREAM, "models": {"m": {"upstream": "a", "model": "*"}}}, "[models.m] model: '*' needs exactly one `*`"),
        ({"keys": {"me": {"hash": "secret"}}}, "[keys.me] hash: is not a SHA-256 hash"),
        ({"keys": {"me": {}}}, "[keys.me]: hash is missing"),
        ({"keys": {"me": {"hash": 5}}}, "[keys.me] hash: expected a string, got an integer"),
    ],
)
def test_invalid_settings_are_explained(document, words):
    assert words in wrong(document)


def test_further_problems_are_counted():
    said = wrong({"limits": {"bodi": 1}, "server": {"prot": 1, "host": 5}})
    assert said.startswith("[limits] bodi: unknown setting; 2 more problems: run `toolwire serve check`")


def test_misspelt_setting_is_one_problem():
    assert "more problem" not in wrong({**UPSTREAM, "models": {"m": {"upstraem": "a"}}})


def test_unknown_text_format_is_rejected_with_a_suggestion():
    with pytest.raises(ConfigError, match="qwen3"):
        parse_settings({**UPSTREAM, "models": {"m": {"upstream": "a", "emulate": "qwen3xml"}}})


RAW = {"format": "hermes", "via": "completions"}


@every_case(
    ("row", "message"),
    [
        ({"upstream": "a", "emulate": {**RAW, "template": "chatlm"}}, "did you mean 'chatml'?"),
        ({"upstream": "a", "emulate": {**RAW, "format": "generic_json"}}, "set template to one of"),
        ({"upstream": "a", "emulate": {**RAW, "templte": "chatml"}}, "did you mean 'template'?"),
        ({"upstream": "a", "emulate": {**RAW, "via": "complete"}}, "[models.m.emulate] via"),
        ({"upstream": "a", "emulate": {**RAW, "via": "complete"}}, "use one of 'chat', 'completions'"),
        ({"upstream": "a", "emulate": {**RAW, "reasoning": "on"}}, "use one of 'open', 'closed'"),
        ({"upstream": "a", "emulate": {"format": "hermes", "template": "chatml"}}, "template has no effect"),
        ({"upstream": "a", "emulate": {"format": "hermes", "reasoning": "open"}}, "reasoning has no effect"),
        ({"upstream": "a", "emulate": {"via": "completions"}}, "format"),
        ({"upstream": "a", "emulate": {**RAW, "format": "hermess"}}, "did you mean 'hermes'?"),
    ],
)
def test_invalid_emulation_is_explained(row, message):
    explained = wrong({**UPSTREAM, "models": {"m": row}})
    assert message in explained and "models" in explained


def test_template_of_each_target_is_checked():
    emulate = {"format": "generic_json", "via": "completions"}
    targets = [{"upstream": "a", "model": "gemma-3-4b"}, {"upstream": "a", "model": "other"}]
    assert "'other'" in wrong({**UPSTREAM, "models": {"m": {"targets": targets, "emulate": emulate}}})
    known = {"m": {"targets": targets[:1], "emulate": emulate}}
    assert parse_settings({**UPSTREAM, "models": known}).models["m"].emulation.via == "completions"


def test_settings_files_are_loaded_or_rejected_with_a_reason(tmp_path):
    good = tmp_path / "good.toml"
    good.write_text('[upstreams.a]\nbase_url = "http://localhost"\n[models.m]\nupstream = "a"\n')
    assert load_settings(good).models["m"].upstream == "a"
    bad = tmp_path / "bad.toml"
    bad.write_text("[upstreams\n")
    for path, words in ((bad, "not valid TOML"), (tmp_path / "none.toml", "cannot read")):
        with pytest.raises(ConfigError, match=words):
            load_settings(path)
    (tmp_path / "latin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read"):
        load_settings(tmp_path / "latin.toml")


@every_case(
    ("document", "words"),
    [
        ({"limits": {"connections": 0}}, "[limits] connections: must be positive and finite, got 0"),
        (
            {"upstreams": {"a": {"provider": "ollama", "context_max": 0}}},
            "[upstreams.a] context_max: must be positive and finite, got 0",
        ),
        ({"limits": {"ping": 0}}, "[limits] ping: must be positive and finite, got 0"),
        ({"limits": {"slow_client": -1}}, "[limits] slow_client: must be positive and finite, got -1"),
        ({"limits": {"cooldown": float("nan")}}, "[limits] cooldown: must be at least 0 and finite, got nan"),
        ({"server": {"drain": -1}}, "[server] drain: must be at least 0 and finite, got -1"),
        (
            {"upstreams": {"a": {"base_url": "http://localhost", "timeout": 0}}},
            "[upstreams.a] timeout: must be positive and finite, got 0",
        ),
        (
            {"upstreams": {"a": {"base_url": "http://localhost", "idle": float("inf")}}},
            "[upstreams.a] idle: must be positive and finite, got inf",
        ),
        (
            {"upstreams": {"a": {"base_url": "http://localhost", "retries": -1}}},
            "[upstreams.a] retries: must be at least 0 and finite, got -1",
        ),
        (
            {**UPSTREAM, "models": {"m": {"upstream": "a", "cache": -1}}},
            "[models.m] cache: must be at least 0 and finite, got -1",
        ),
        ({"state": {"turns": -1}}, "[state] turns: must be at least 0 and finite, got -1"),
        (
            {**UPSTREAM, "models": {"m": {"targets": [{"upstream": "a", "weight": float("inf")}]}}},
            "a weight must be positive and finite, got inf",
        ),
    ],
)
def test_out_of_range_numbers_are_rejected(document, words):
    assert words in wrong(document)


def test_settings_file_may_be_named_by_a_string(tmp_path):
    (tmp_path / "toolwire.toml").write_text('[upstreams.local]\nprovider = "ollama"\n')
    assert "local" in load_settings(str(tmp_path / "toolwire.toml")).upstreams
    with pytest.raises(ConfigError, match="cannot read"):
        load_settings(str(tmp_path / "none.toml"))


def test_retrieve_is_a_switch_or_a_table():
    models = {
        "off": {"upstream": "a"},
        "on": {"upstream": "a", "retrieve": True},
        "own": {"upstream": "a", "retrieve": {"k": 3, "always": ["now"]}},
        "empty": {"upstream": "a", "retrieve": {}},
    }
    rows = parse_settings({**UPSTREAM, "models": models}).models
    assert rows["off"].retrieval is None
    assert rows["on"].retrieval == rows["empty"].retrieval
    assert rows["on"].retrieval.k == 8
    assert (rows["own"].retrieval.k, rows["own"].retrieval.always) == (3, ("now",))
    assert parse_settings(tomllib.loads(format_settings(parse_settings({**UPSTREAM, "models": models})))).models == rows
