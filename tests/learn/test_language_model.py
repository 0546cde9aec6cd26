"""A model is read from a folder, and its operations agree with those of transformers."""

import pytest
import torch
from tiny_model import tiny_model

from toolwire.ir.errors import ConfigError
from toolwire.learn import open_model


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
