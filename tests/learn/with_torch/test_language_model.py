"""A model is read from a folder, and its operations agree with those of transformers."""

import json
import shutil

import pytest
import torch
from tiny_model import tiny_model
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
)

from toolwire.ir.errors import ConfigError
from toolwire.learn import LanguageModel, open_model, write_gguf


def test_saved_model_is_read_from_its_folder(tmp_path):
    model = tiny_model()
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    again = open_model(tmp_path)
    tokens = torch.tensor([again.encode("The answer is 7.")])
    assert again.encode("é<|im_end|>") == model.encode("é<|im_end|>")
    assert torch.equal(again.network(tokens).logits, model.network(tokens).logits)
    assert again.path == tmp_path and again.vocabulary_size == 264


def test_hidden_states_and_word_logits_equal_the_forward_pass():
    model = tiny_model()
    tokens, attention = model.pad_batch([model.encode("one"), model.encode("a longer text")])
    with torch.no_grad():
        expected = model.network(input_ids=tokens, attention_mask=attention).logits
        found = model.word_logits(model.hidden_states(tokens, attention))
    assert torch.equal(expected, found)


def test_every_text_survives_encoding():
    model = tiny_model()
    text = 'naïve <|im_end|>\n\t{"a": [1, 2]} 日本'
    assert model.decode(model.encode(text)) == text


def test_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        open_model(tmp_path)


def small(config_class, model_class, **settings):
    torch.manual_seed(1)
    config = config_class(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **settings,
    )
    network = model_class(config).eval()
    network.get_output_embeddings().weight.data.mul_(40)  # logits in the range where a cap matters
    return LanguageModel(network, None)


@pytest.mark.parametrize(
    "model",
    [
        lambda: small(Gemma2Config, Gemma2ForCausalLM, final_logit_softcapping=5.0),
        lambda: small(Gemma2Config, Gemma2ForCausalLM, final_logit_softcapping=None),
        lambda: small(CohereConfig, CohereForCausalLM, logit_scale=0.25),
        lambda: small(GraniteConfig, GraniteForCausalLM, logits_scaling=8.0),
    ],
)
def test_scaled_and_capped_logits_equal_the_forward_pass(model):
    model = model()
    tokens = torch.tensor([[5, 9, 11, 30]])
    with torch.no_grad():
        expected = model.network(input_ids=tokens).logits
        found = model.word_logits(model.hidden_states(tokens))
    assert torch.allclose(expected, found, atol=1e-5)


def test_model_with_an_unknown_transformation_of_its_logits_is_refused():
    model = tiny_model()
    whole = model.network.forward

    def doubled(**given):
        out = whole(**given)
        out.logits = out.logits * 2
        return out

    model.network.forward = doubled
    model.network.config.logit_scale = 1.5
    with pytest.raises(ConfigError, match=r"llama model .* \(logit_scale = 1\.5\)"):
        model.word_logits(torch.zeros(1, 32))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    model = tiny_model(1)
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "load"}, "unknown type of weights 'load'"),
        ({"dtype": "int8"}, "unknown type of weights 'int8'"),
        ({"device": "nowhere"}, "cannot use the device 'nowhere'"),
    ],
)
def test_unknown_type_or_device_is_refused(stored, options, message):
    with pytest.raises(ConfigError, match=message):
        open_model(stored, **options)


def test_code_of_a_model_folder_is_not_run(stored, tmp_path, monkeypatch):
    """transformers would ask on the terminal, and run the code after a yes."""
    folder = tmp_path / "model"
    shutil.copytree(stored, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ConfigError, match="cannot read the model"):
        open_model(folder)
    with pytest.raises(ConfigError, match="custom code"):
        write_gguf(folder, tmp_path / "model.gguf")
    assert not (tmp_path / "ran").exists()


def test_pickled_weights_are_not_read(stored, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(stored, folder)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="cannot read the model"):
        open_model(folder)
