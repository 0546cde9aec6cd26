"""Training is deterministic, continues bit-equal, trains only labelled tokens, and leaves frozen weights unchanged."""

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from tiny_model import tiny_model
from tokenizers.processors import TemplateProcessing

from toolwire.ir.errors import ConfigError
from toolwire.learn import training
from toolwire.learn.chat_rendering import IGNORED, TrainingRow, encode_segments, text_segments
from toolwire.learn.language_model import open_model
from toolwire.learn.run_folder import RunFolder
from toolwire.learn.toolformer.corpus import AugmentedText, corpus_rows
from toolwire.learn.toolformer.filters import start_tokens
from toolwire.learn.training import (
    TrainSettings,
    add_adapter,
    mean_loss,
    merge_adapter,
    plan_batches,
    save_model,
    train,
)
from toolwire.learn.tuning import build_rows
from toolwire.text import get

SETTINGS = TrainSettings(epochs=2, learning_rate=5e-3, batch_tokens=200, seed=3)
TEXTS = [f"Question {number}: what is {number} plus one? Answer {number + 1}." for number in range(24)]


def rows_for(model, texts=TEXTS):
    rows = []
    for text in texts:
        start = text.index("Answer")
        rows.append(encode_segments(text_segments(text, [(0, start)], "<|im_end|>"), model.tokenizer))
    return rows


def run(tmp_path, name, *, minutes=None, resume=False, rank=None, settings=SETTINGS):
    model = tiny_model(1)
    if rank:
        add_adapter(model, rank, seed=2)
    folder = RunFolder.create(tmp_path / name, {"name": name}, resume=resume)
    report = train(model, rows_for(model), settings, folder, held_out=rows_for(model)[:4], minutes=minutes)
    return model, report


def state(model):
    return {name: one.clone() for name, one in model.network.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_loss_falls_and_equals_a_plain_computation(tmp_path):
    model = tiny_model(1)
    rows = rows_for(model)
    expected, count = 0.0, 0
    for row in rows:
        with torch.no_grad():
            logits = model.network(torch.tensor([row.tokens])).logits[0].log_softmax(-1)
        for number, label in enumerate(row.labels[1:]):
            if label != IGNORED:
                expected, count = expected - float(logits[number, label]), count + 1
    before = mean_loss(model, rows, 500)
    assert before == pytest.approx(expected / count, abs=1e-5)
    assert count == sum(row.trained_count for row in rows)
    model, report = run(tmp_path, "one")
    assert report.finished and report.done == report.steps == len(report.log)
    assert mean_loss(model, rows, 500) < 0.7 * before
    assert report.log[-1].held_out is not None and report.log[0].held_out is None
    rates = [step.rate for step in report.log]
    assert max(rates) == pytest.approx(SETTINGS.learning_rate) and rates[-1] < 0.2 * max(rates)


@pytest.mark.parametrize("rank", [None, 2])
def test_interrupted_run_continues_to_the_same_bits(tmp_path, monkeypatch, rank):
    whole, report = run(tmp_path, "whole", rank=rank)
    clock = iter(range(10_000))
    monkeypatch.setattr(training, "monotonic", lambda: next(clock))  # a second per reading of the clock
    first, part = run(tmp_path, "parts", minutes=0.1, rank=rank)
    assert 0 < part.done < report.steps and not part.finished
    log = tmp_path / "parts" / "loss.jsonl"
    extra = msgspec.json.decode(log.read_bytes().splitlines()[-1]) | {"step": part.done + 1}
    log.write_bytes(log.read_bytes() + msgspec.json.encode(extra) + b"\n")  # made after the checkpoint
    second, rest = run(tmp_path, "parts", resume=True, rank=rank)
    assert rest.finished and rest.log == report.log
    assert same(state(whole), state(second)) and not same(state(first), state(second))


def test_order_depends_on_seed_and_epoch_and_covers_every_row_once():
    rows = rows_for(tiny_model())
    plans = [plan_batches(rows, 200, seed, epoch) for seed, epoch in [(0, 0), (0, 0), (0, 1), (1, 0)]]
    assert plans[0] == plans[1] and plans[0] not in plans[2:] and plans[2] != plans[3]
    for plan in plans:
        assert sorted(index for batch in plan for index in batch) == list(range(len(rows)))
        assert all(len(batch) * max(len(rows[index].tokens) for index in batch) <= 200 for batch in plan)


def test_adapter_trains_nothing_else_and_its_merge_computes_the_same(tmp_path):
    untouched = state(tiny_model(1))
    model = tiny_model(1)
    adapter = add_adapter(model, 2, seed=2)
    tokens = torch.tensor([model.encode("The answer")])
    assert torch.equal(model.network(tokens).logits, tiny_model(1).network(tokens).logits)
    train(model, rows_for(model), SETTINGS, RunFolder.create(tmp_path / "run", {}))
    trained = state(model)
    for name, value in untouched.items():
        inner = name if name in trained else name.replace(".weight", ".base_layer.weight")
        assert torch.equal(trained[inner], value)
    before = model.network(tokens).logits
    merge_adapter(model, adapter)
    assert model.network.state_dict().keys() == untouched.keys()
    assert torch.allclose(model.network(tokens).logits, before, atol=1e-5)
    save_model(model, tmp_path / "merged")
    assert torch.allclose(open_model(tmp_path / "merged").network(tokens).logits, before, atol=5e-3)


def test_checkpoint_of_another_model_is_refused(tmp_path):
    run(tmp_path, "run", rank=2)
    with pytest.raises(ConfigError, match="checkpoint of another model or adapter"):
        run(tmp_path, "run", resume=True)


def test_row_without_labels_is_refused(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {})
    with pytest.raises(ConfigError, match="row 0 has no trained token"):
        train(tiny_model(), [TrainingRow((1, 2), (IGNORED, IGNORED))], SETTINGS, folder)
    with pytest.raises(ConfigError, match="nothing to train on"):
        train(tiny_model(), [], SETTINGS, folder)


def test_diverged_training_is_an_error_and_leaves_the_checkpoint(tmp_path):
    model = tiny_model(1)
    mean_loss(model, rows_for(model))  # finds the scale of the logits
    with torch.no_grad():
        model.network.get_output_embeddings().weight.fill_(float("nan"))
    folder = RunFolder.create(tmp_path / "run", {})
    with pytest.raises(ConfigError, match="the loss is nan"):
        train(model, rows_for(model), SETTINGS, folder)
    assert not folder.has("checkpoint.pt")


@pytest.mark.parametrize(("value", "kind"), [(1.0, "float16"), (1e6, "float32")])
def test_weights_that_exceed_float16_are_written_in_float32(tmp_path, value, kind):
    model = tiny_model(1)
    with torch.no_grad():
        model.network.get_output_embeddings().weight[0, 0] = value
    save_model(model, tmp_path)
    assert str(load_file(tmp_path / "model.safetensors")["lm_head.weight"].dtype) == f"torch.{kind}"
    assert open_model(tmp_path).network.get_output_embeddings().weight[0, 0].item() == value


def test_start_token_that_the_tokenizer_adds_is_before_a_text_and_has_no_loss():
    model = tiny_model(1)
    text = AugmentedText("8 - 2 = 6", 0)
    [plain] = corpus_rows(model, [text])
    backend = model.tokenizer.backend_tokenizer
    start = backend.token_to_id("<|im_start|>")
    model.tokenizer.bos_token = "<|im_start|>"
    backend.post_processor = TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)])
    [row] = corpus_rows(model, [text])
    [built], _ = build_rows([text], model.tokenizer, get("hermes"), max_length=100)
    assert start_tokens(model) == [start]
    assert row == built == TrainingRow((start, *plain.tokens), (IGNORED, *plain.labels))
