"""From a file of examples to a model: the run folder, the gate, and the command."""

import json
from functools import partial

import gguf
import msgspec
import numpy as np
import pytest
from tiny_model import tiny_model

from toolwire.cli.main import main
from toolwire.ir.errors import ConfigError
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.request import Message
from toolwire.ir.tools import Tool
from toolwire.learn import open_model, write_gguf
from toolwire.learn.call_quality import (
    CallQuality,
    CallQuestion,
    call_questions,
    judge_answer,
    mask_calls,
    measure_calls,
)
from toolwire.learn.chat_rendering import IGNORED
from toolwire.learn.example_files import write_examples
from toolwire.learn.examples import make_example
from toolwire.learn.language_model import open_tokenizer
from toolwire.learn.training import TrainSettings, save_model
from toolwire.learn.tuning import (
    Measurement,
    TuneReport,
    TuneSettings,
    build_rows,
    find_problem,
    read_training_file,
    split_held_out,
    tune,
)
from toolwire.net.executors import ProcessPool
from toolwire.text import get

TOOL = Tool("f", "F.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
FORM = get("hermes")


def example(number, answer=None):
    call = ToolCall("c1", "f", {"a": number % 10})
    return make_example(
        [Message("user", (Text(f"Do {number}"),)), Message("assistant", (Text(answer) if answer else call,))], [TOOL]
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuning")
    save_model(tiny_model(2), folder / "tiny")
    write_examples(folder / "train.jsonl", [example(number) for number in range(16)], "openai")
    return folder


def test_command_trains_measures_and_writes_the_model(files, tmp_path, capsys):
    run = tmp_path / "run"
    command = ["learn", "train", str(files / "train.jsonl"), "-m", str(files / "tiny"), "-o", str(run)]
    command += [
        "--epochs",
        "2",
        "--rank",
        "4",
        "--prompts",
        "1",
        "--held-out",
        "25",
        "--answer-tokens",
        "9",
        "--masked",
        "--gguf",
        "f16",
        "--json",
    ]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["finished"] and report["problem"] is None
    assert report["rows"] + report["held_out"] == 16 and report["held_out"] > 0
    assert report["after"]["loss"] < report["before"]["loss"]
    assert report["after"]["calls"]["prompts"] == report["after"]["masked"]["prompts"] == 1
    assert {one.name for one in run.iterdir()} >= {
        *("adapter", "model", "model.gguf", "adapter.gguf", "manifest.json", "loss.jsonl", "loss.svg", "result.json"),
    }
    tuned = open_model(run / "model")
    rows, _ = build_rows(read_training_file(files / "train.jsonl"), tuned.tokenizer, FORM, max_length=4096)
    assert len(rows) == 16
    assert main(command) == 2  # the folder has a run
    assert "already contains a run" in capsys.readouterr().err
    assert main([*command[:-1], "--resume", "--gate", "100"]) == 1
    assert "0.0 % of the held-out calls are right, less than 100 %" in capsys.readouterr().err


def test_command_can_be_corrected_in_the_same_folder(files, tmp_path, capsys):
    command = ["learn", "train", str(files / "train.jsonl"), "-m", str(files / "tiny"), "-o", str(tmp_path / "run")]
    assert main([*command, "--max-length", "5"]) == 2
    assert "nothing to train on; 16 left out: longer than 5 tokens" in capsys.readouterr().err
    assert main([*command, "--device", "nonsense"]) == 2
    assert "cannot use the device 'nonsense'" in capsys.readouterr().err
    assert main([*command, "--epochs", "1", "--rank", "2", "--held-out", "0"]) == 0
    assert "nothing was measured" in capsys.readouterr().out


def test_interrupted_command_continues(files, tmp_path, capsys):
    command = ["learn", "train", str(files / "train.jsonl"), "-m", str(files / "tiny"), "-o", str(tmp_path / "run")]
    command += [
        "--epochs",
        "1",
        "--full",
        "--lr",
        "1e-3",
        "--prompts",
        "1",
        "--batch-tokens",
        "4000",
        "--held-out",
        "25",
    ]
    assert main([*command, "--minutes", "0.00001"]) == 1
    assert "continue with --resume" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
    assert "held-out loss" in capsys.readouterr().out


def test_texts_with_calls_are_trained_with_and_without_results(tmp_path):
    file = tmp_path / "texts.jsonl"
    call = {"position": 8, "call": "Calculator(3 + 4)", "result": "7"}
    file.write_text(
        json.dumps({"text": "We have [Calculator(3 + 4)] → 7 7 apples.", "source": 0, "calls": [call]})
        + "\n\n"
        + json.dumps({"text": "Plain text."})
    )
    tokenizer = tiny_model().tokenizer
    items = read_training_file(file)
    whole, _ = build_rows(items, tokenizer, FORM, max_length=500)
    masked, _ = build_rows(items, tokenizer, FORM, max_length=500, mask_results=True)
    assert [row.tokens for row in whole] == [row.tokens for row in masked]
    assert all(IGNORED not in row.labels for row in whole) and IGNORED not in masked[1].labels
    hidden = [token for token, label in zip(masked[0].tokens, masked[0].labels, strict=True) if label == IGNORED]
    assert tokenizer.decode(hidden) == " → 7"
    assert tokenizer.decode(whole[1].labels) == "Plain text.<|im_end|>"


def test_long_and_empty_examples_are_left_out_and_counted():
    silent = msgspec.structs.replace(example(1), weights=(0,))
    rows, skipped = build_rows(
        [example(1), silent, example(2, "x" * 3000)], tiny_model().tokenizer, FORM, max_length=2000
    )
    assert len(rows) == 1
    assert skipped == {"no answer to learn from": 1, "longer than 2000 tokens": 1}


def test_workers_build_equal_rows(tmp_path, monkeypatch):
    tokenizer = tiny_model().tokenizer
    tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr("toolwire.learn.tuning._GROUP", 3)
    items = [example(number, "x" * 3000 if number % 4 == 3 else None) for number in range(11)]
    expected = build_rows(items, tokenizer, FORM, max_length=2000)
    for workers in (1, 2):
        executor, reopen = ProcessPool(workers), partial(open_tokenizer, tmp_path)
        assert build_rows(items, tokenizer, FORM, max_length=2000, executor=executor, reopen=reopen) == expected
    assert expected[1] == {"longer than 2000 tokens": 2}
    with pytest.raises(ConfigError, match="rows of workers need `reopen`"):
        build_rows(items, tokenizer, FORM, max_length=2000, executor=ProcessPool(1))


def test_split_is_stable_and_keeps_equal_prompts_together():
    items = [example(number) for number in range(200)] + [example(number, "no") for number in range(200)]
    train, held = split_held_out(items, 0.25, seed=1)
    assert 60 < len(held) < 140 and len(train) + len(held) == 400
    assert split_held_out(items, 0.25, seed=1) == (train, held) != split_held_out(items, 0.25, seed=2)
    assert {one.user_text for one in train}.isdisjoint(one.user_text for one in held)
    with pytest.raises(ConfigError, match="held-out share"):
        split_held_out(items, 1.0, seed=1)


@pytest.mark.parametrize(
    ("text", "finished", "expected"),
    [
        ('<tool_call>\n{"name": "f", "arguments": {"a": 3}}\n</tool_call>', True, (True, True, True)),
        ('<tool_call>\n{"name": "f", "arguments": {"a": 4}}\n</tool_call>', True, (True, True, False)),
        ('<tool_call>\n{"name": "f", "arguments": {"a": "3"}}\n</tool_call>', True, (False, False, False)),
        ('<tool_call>\n{"name": "g", "arguments": {"a": 3}}\n</tool_call>', True, (False, False, False)),
        ('<tool_call>\n{"name": "f", "arguments": {"a": 3}}\n</tool_call>', False, (False, False, False)),
        ("I cannot.", True, (False, False, False)),
    ],
)
def test_answers_are_compared_with_the_expected_calls(text, finished, expected):
    [question] = call_questions([example(3)])
    answer = judge_answer(question, text, FORM, is_finished=finished)
    assert (answer.valid, answer.right_tool, answer.right) == expected


def test_answer_without_a_call_is_right_if_none_is_expected():
    [question] = call_questions([example(3, "No.")])
    assert judge_answer(question, "No.", FORM).right
    assert not judge_answer(question, '<tool_call>\n{"name": "f", "arguments": {"a": 3}}\n</tool_call>', FORM).valid


def test_batched_answers_keep_the_order_of_the_questions():
    model = tiny_model(3)
    questions = [CallQuestion((Message("user", (Text("x" * size),)),), (), ()) for size in (5, 90, 1, 40)]
    together = measure_calls(model, questions, FORM, max_tokens=6, batch_tokens=600)
    alone = [measure_calls(model, [one], FORM, max_tokens=6)[0] for one in questions]
    assert together == alone


def test_masked_answers_are_calls_of_offered_tools():
    model = tiny_model(3)
    [question] = call_questions([example(3)])
    [answer] = measure_calls(model, [question], FORM, max_tokens=120, make_processor=mask_calls(model, FORM, 120))
    assert answer.finished and answer.valid and answer.right_tool
    assert not measure_calls(model, [question], FORM, max_tokens=120)[0].valid


def quality(right):
    return Measurement(1.0, CallQuality(10, 10, 10, 10, right))


@pytest.mark.parametrize(
    ("before", "after", "threshold", "problem"),
    [
        (quality(2), quality(9), 80, None),
        (quality(2), quality(7), 80, "70.0 % of the held-out calls are right, less than 80 %"),
        (quality(8), quality(7), None, "70.0 % of the held-out calls are right, but 80.0 % were before"),
        (Measurement(1.0), Measurement(1.5), None, "the held-out loss rose from 1.000 to 1.500"),
        (Measurement(1.5), Measurement(1.0), None, None),
        (Measurement(1.5), Measurement(1.0), 50, "there are no held-out prompts with calls to check"),
    ],
)
def test_gate(before, after, threshold, problem):
    assert find_problem(TuneReport(True, 1, 1, {}, before, after), threshold) == problem


def read_tensors(path):
    reader = gguf.GGUFReader(path)
    return {
        one.name: np.array(one.data, np.float32).reshape([int(n) for n in reversed(one.shape)])
        for one in reader.tensors
    }


def test_adapter_for_llama_cpp_is_the_difference_that_training_made(files, tmp_path):
    settings = TuneSettings(str(files / "tiny"), rank=4, training=TrainSettings(epochs=2), prompts=0, gguf="f32")
    tune(files / "train.jsonl", tmp_path / "run", settings)
    write_gguf(files / "tiny", tmp_path / "before.gguf", matrices="f32")
    before, after = read_tensors(tmp_path / "before.gguf"), read_tensors(tmp_path / "run/model.gguf")
    adapter = read_tensors(tmp_path / "run/adapter.gguf")
    names = [name.removesuffix(".lora_a") for name in adapter if name.endswith(".lora_a")]
    assert {name.split(".")[-2] for name in names} == {
        *("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    }
    changed = 0.0
    for name in names:
        product = 2 * adapter[f"{name}.lora_b"] @ adapter[f"{name}.lora_a"]  # alpha is twice the rank
        difference = after[name] - before[name]
        np.testing.assert_allclose(product, difference, atol=2e-4)
        changed = max(changed, float(np.abs(difference).max()))
    assert changed > 0.002
