"""A GGUF file becomes a folder once, with llama.cpp's tokens and logits, and a folder becomes a GGUF file again."""

import json
import math
import urllib.request
from contextlib import contextmanager

import gguf
import pytest
import torch
from tiny_model import CHAT_TEMPLATE, tiny_model
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from xllamacpp import CommonParams, Server

from places import ROOT
from toolwire.ir.errors import ConfigError
from toolwire.learn import find_model, open_model, write_gguf
from toolwire.learn.language_model import _cache_folder
from toolwire.local.weights import find_weights

LINEAR = gguf.RopeScalingType.LINEAR
HARD_TEXTS = (
    "",
    " ",
    "a  b   c\n\n\n d\t\te \r\n",
    "It's they'll I'd we've 'sS",
    "3.14159 1,000,000 x12y ٣٤ ½ Ⅷ",
    "naïve café 日本語 한국어 🙂👩‍👩‍👧 \u200b\ufeff é",
    '<|im_start|>system\n<tool_call>{"name": "f", "arguments": {"a": [1, -2.5e10]}}</tool_call><|im_end|>\n',
    "\x00\x01\x7f …“quoted” — dashes",
    "def f(x):\n    return x ** 2  # ok\n",
)


@contextmanager
def llama_cpp(path):
    """Run llama.cpp's server on a file and yield a function that posts to it."""
    params = CommonParams()
    params.model.path = str(path)
    params.n_parallel, params.n_ctx = 1, 1024
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity, params.warmup, params.ui = -1, False, False
    params.hostnames, params.port = ["127.0.0.1"], 0
    server = Server(params)
    address = server.listening_address

    def post(action, **body):
        request = urllib.request.Request(
            f"{address}/{action}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    yield post
    del server


def save(model, folder):
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def add_merge(model):
    """Add a token of two bytes, because llama.cpp requires at least one merge."""
    document = json.loads(model.tokenizer.backend_tokenizer.to_str())
    document["model"]["vocab"]["th"] = 256
    document["model"]["merges"] = [["t", "h"]]
    for token in document["added_tokens"]:
        token["id"] += 1
    model.tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(document)), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    model.tokenizer.chat_template = CHAT_TEMPLATE
    return model


def test_smollm2_has_the_tokens_and_logits_of_llama_cpp():
    model = open_model("smollm2")
    assert model.path.parent == _cache_folder()
    texts = [*HARD_TEXTS, *(file.read_text("utf-8") for file in sorted((ROOT / "docs").glob("*.md"))[:12])]
    prompt = "The capital of France is"
    with llama_cpp(find_weights("smollm2").find_file()) as post:
        for text in texts:
            assert model.encode(text) == post("tokenize", content=text, parse_special=True)["tokens"]
            assert model.decode(model.encode(text)) == text
        answer = post("completion", prompt=prompt, n_predict=1, temperature=0, n_probs=5)
    top = answer["completion_probabilities"][0]["top_logprobs"]
    with torch.no_grad():
        logits = model.network(torch.tensor([model.encode(prompt)])).logits[0, -1].log_softmax(-1)
    for one in top:  # llama.cpp rounds activations to 8 bits
        assert math.isclose(one["logprob"], float(logits[one["id"]]), abs_tol=0.25)
    assert int(logits.argmax()) == top[0]["id"]
    assert model.tokenizer.eos_token == "<|im_end|>"
    assert model.tokenizer.apply_chat_template(
        [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        tokenize=False,
        add_generation_prompt=True,
    ) == ("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("matrices", ["f32", "q8_0"])
def test_written_file_is_read_back_and_runs_in_llama_cpp(tmp_path, monkeypatch, matrices):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = add_merge(tiny_model(4, width=64))
    folder = save(model, tmp_path / "tiny")
    file = tmp_path / "tiny.gguf"
    write_gguf(folder, file, matrices=matrices)
    again = open_model(file)
    tolerance = {"f32": 1e-4, "q8_0": 2e-3}[matrices]  # the converted folder has float16
    for (name, before), (other, after) in zip(
        model.network.state_dict().items(), again.network.state_dict().items(), strict=True
    ):
        assert name == other
        assert torch.allclose(before, after, atol=tolerance)
    assert again.encode("the naïve 123<|im_end|>") == model.encode("the naïve 123<|im_end|>")
    assert again.tokenizer.chat_template == model.tokenizer.chat_template
    prompt = "Call:"
    with torch.no_grad():
        logits = again.network(torch.tensor([again.encode(prompt)])).logits[0, -1].log_softmax(-1)
    with llama_cpp(file) as post:
        assert post("tokenize", content="the 12<|im_end|>", parse_special=True)["tokens"] == model.encode(
            "the 12<|im_end|>"
        )
        answer = post("completion", prompt=prompt, n_predict=1, temperature=0, n_probs=5)
    for one in answer["completion_probabilities"][0]["top_logprobs"]:
        assert math.isclose(one["logprob"], float(logits[one["id"]]), abs_tol=0.02)


def test_half_precision_weights_survive_both_directions_unchanged(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tiny_model(5)
    model.network.half()
    write_gguf(save(model, tmp_path / "tiny"), tmp_path / "one.gguf", matrices="f16")
    first = find_model(tmp_path / "one.gguf")
    assert find_model(tmp_path / "one.gguf") == first
    found = open_model(first).network.state_dict()
    assert all(torch.equal(value.float(), found[name]) for name, value in model.network.state_dict().items())
    assert [one.name for one in first.parent.iterdir()] == [first.name]


def test_interrupted_conversion_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "broken.gguf"
    write_gguf(save(tiny_model(), tmp_path / "tiny"), tmp_path / "whole.gguf")
    file.write_bytes((tmp_path / "whole.gguf").read_bytes()[:9000])
    with pytest.raises(ConfigError, match="as a GGUF file"):
        find_model(file)
    assert list(_cache_folder().iterdir()) == []


def test_unknown_model_is_refused_with_the_known_names(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no model 'gpt-9'.*smollm2"):
        find_model("gpt-9")
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match="neither a folder nor"):
        find_model(tmp_path / "weights.bin")


def test_other_tokenizer_or_format_is_refused_before_anything_is_written(tmp_path):
    model = tiny_model()
    model.tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = save(model, tmp_path / "tiny")
    with pytest.raises(ConfigError, match="not byte-level BPE"):
        write_gguf(folder, tmp_path / "x.gguf")
    with pytest.raises(ConfigError, match="unknown format 'q2_k'"):
        write_gguf(folder, tmp_path / "x.gguf", matrices="q2_k")
    assert [one.name for one in tmp_path.iterdir()] == ["tiny"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("llama.attention.head_count", 0, "no usable metadata 'llama.attention.head_count'"),
        ("llama.block_count", 3, r"model\.layers\.2\..* is missing"),
        ("llama.block_count", 1, r"model\.layers\.1\..* expected none"),
        ("llama.block_count", 2**31 - 1, "2147483647 layers according to its metadata"),
        ("llama.embedding_length", 2**32 - 1, "no usable metadata 'llama.embedding_length'"),
        ("llama.feed_forward_length", 7, r"mlp\.down_proj\.weight is \(32, 64\), expected \(32, 7\)"),
        ("llama.attention.head_count_kv", 3, "cannot read the tensor model.layers.0.self_attn.k_proj"),
    ],
)
def test_metadata_that_contradict_the_tensors_are_refused(tmp_path, monkeypatch, name, value, message):
    """transformers would fill missing weights with random numbers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "tiny.gguf"
    write_gguf(save(tiny_model(), tmp_path / "tiny"), file)
    reader = gguf.GGUFReader(file, "r+")
    reader.fields[name].parts[-1][0] = value
    reader.data.flush()
    with pytest.raises(ConfigError, match=message):
        find_model(file)
    assert list(_cache_folder().iterdir()) == []


def test_scaled_positions_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "tiny.gguf"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf.GGUFWriter, "add_rope_freq_base", lambda self, _: self.add_rope_scaling_type(LINEAR))
    write_gguf(save(tiny_model(), tmp_path / "tiny"), file)
    with pytest.raises(ConfigError, match="scaled positions"):
        find_model(file)
