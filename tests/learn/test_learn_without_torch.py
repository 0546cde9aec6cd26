"""Without the libraries of the extra `learn`, data code works and everything else names the extra to install."""

import json
import subprocess
import sys

import pytest

from toolwire._extras import install_command

BLOCKED = ("torch", "transformers", "peft", "gguf", "matplotlib", "safetensors", "tokenizers", "llguidance")
SCRIPT = f"""
import json, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
ATTRIBUTES = """
import toolwire.learn
from toolwire.ir.errors import MissingExtra

found = {}
for name in toolwire.learn.__all__:
    try:
        getattr(toolwire.learn, name)
        found[name] = ""
    except MissingExtra as error:
        found[name] = str(error)
print(json.dumps(found))
"""
USES = """
from pathlib import Path
from toolwire.ir.errors import MissingExtra
from toolwire.learn import TuneSettings, find_model, open_model, tune, write_gguf
from toolwire.learn.plots import draw_lines

folder = Path(sys.argv[1])
(folder / "model").mkdir()
(folder / "model" / "config.json").write_text("{}")
(folder / "model.gguf").write_bytes(b"GGUF")
(folder / "train.jsonl").write_text('{"text": "8 - 2 = 6"}')
uses = [
    lambda: open_model(folder / "model"),
    lambda: find_model(folder / "model.gguf"),
    lambda: write_gguf(folder / "model", folder / "other.gguf"),
    lambda: tune(folder / "train.jsonl", folder / "run", TuneSettings(str(folder / "model"))),
    lambda: draw_lines(folder / "loss.svg", "Loss", "step", "nats", {"loss": [(1.0, 2.0)]}),
]
found = []
for use in uses:
    try:
        use()
        found.append("")
    except MissingExtra as error:
        found.append(str(error))
print(json.dumps([found, (folder / "run").exists()]))
"""
COMMAND = """
from toolwire.cli.main import main

sys.exit(main(sys.argv[1:]))
"""


def run_without(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_every_attribute_works_or_names_the_extra():
    done = run_without(ATTRIBUTES)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    missing = {name for name, message in found.items() if message}
    assert {"ToolkenHead", "fit_toolkens", "generate_with_toolkens"} <= missing
    assert {"read_examples", "write_examples", "collect_examples", "read_bfcl", "calculator_tool"}.isdisjoint(missing)
    assert all(install_command("learn") in found[name] for name in missing)


def test_use_of_a_model_names_the_extra_and_leaves_nothing(tmp_path):
    done = run_without(USES, tmp_path)
    assert done.returncode == 0, done.stderr
    messages, has_run = json.loads(done.stdout)
    assert all(install_command("learn") in message for message in messages), messages
    assert not has_run


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "data.jsonl", "-m", "model", "-o", "run"),
        ("mine", "data.jsonl", "-m", "model", "-o", "run"),
        ("toolken", "pairs.jsonl", "-m", "model", "-o", "run"),
    ],
)
def test_command_names_the_extra(arguments, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "data.jsonl").write_text('{"text": "8 - 2 = 6"}\n')
    (tmp_path / "pairs.jsonl").write_text('{"query": "rain in Rome", "tool": "get_weather"}\n')
    paths = [str(tmp_path / one) if one in ("data.jsonl", "pairs.jsonl", "model", "run") else one for one in arguments]
    done = run_without(COMMAND, "learn", *paths)
    assert done.returncode == 2, done.stderr
    assert install_command("learn") in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("action", ["export", "train", "mine", "toolken", "eval"])
def test_help_works(action):
    done = run_without(COMMAND, "learn", action, "--help")
    assert done.returncode == 0, done.stderr
    assert "exit codes" in done.stdout


def test_help_does_not_import_the_libraries():
    code = """
import sys
from toolwire.cli.main import main
try:
    main(["learn", "--help"])
except SystemExit:
    pass
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "transformers", "numpy", "peft", "gguf"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.endswith("[]\n")
