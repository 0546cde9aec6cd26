"""`ModelClient.embed` on every wire, and the encoder of a tool index."""

import asyncio

import numpy as np
import pytest

from hostile import run
from relay_upstream import document, relay_upstream
from toolwire.ir.errors import ConfigError, ProtocolError
from toolwire.ir.losses import LossError, Losses
from toolwire.ir.response import UpstreamError, Usage
from toolwire.net import ModelClient
from toolwire.retrieve import ModelEncoder
from toolwire.wire.embeddings import EmbeddingRequest, Embeddings, decode_embedding_request, encode_embeddings

PATHS = {"openai_chat": "/embeddings", "gemini": "/v1beta/models/m:batchEmbedContents", "ollama": "/api/embed"}
every_wire = pytest.mark.parametrize("wire", PATHS)


def answer_of(wire):
    def answer(received):
        asked = decode_embedding_request(wire, "m", received.document, Losses())
        vectors = tuple([(float(len(text)), 0.5) for text in asked.texts])
        return document(
            encode_embeddings(wire, Embeddings(vectors, "m", Usage(3, 0)), EmbeddingRequest("m", asked.texts))
        )

    return answer


@every_wire
@run
async def test_texts_become_vectors(wire):
    async with relay_upstream(answer_of(wire)) as upstream:
        async with ModelClient("m", base_url=upstream.url, wire=wire, key="k") as client:
            losses = Losses()
            answer = await client.embed(["a", "bb"], dimensions=2, losses=losses)
        assert answer.vectors == ((1.0, 0.5), (2.0, 0.5))
        assert answer.usage == Usage(3, 0)
        assert upstream.requests[0].path == PATHS[wire]
        assert not losses


@run
async def test_task_without_a_counterpart_is_a_loss():
    async with relay_upstream(answer_of("ollama")) as upstream:
        async with ModelClient("m", base_url=upstream.url, wire="ollama") as client:
            losses = Losses()
            await client.embed(["a"], task="query", losses=losses)
            assert [loss.concept for loss in losses] == ["embedding_task"]
        async with ModelClient("m", base_url=upstream.url, wire="ollama", strict=True) as client:
            with pytest.raises(LossError):
                await client.embed(["a"], task="query")
        assert len(upstream.requests) == 1


@run
async def test_failures_are_raised():
    answers = iter(
        [document({"error": {"message": "no"}}, 400), document({"data": []}), document({"data": [{"embedding": [1]}]})]
    )
    async with relay_upstream(lambda _: next(answers)) as upstream:
        async with ModelClient("m", base_url=upstream.url, wire="openai_chat", retries=0) as client:
            with pytest.raises(UpstreamError, match="no"):
                await client.embed(["a"])
            with pytest.raises(ProtocolError):
                await client.embed(["a"])
            with pytest.raises(ProtocolError, match="1 embeddings for 2 texts"):
                await client.embed(["a", "b"])
            with pytest.raises(ConfigError):
                await client.embed([])
        async with ModelClient("m", base_url=upstream.url, wire="anthropic") as client:
            with pytest.raises(ConfigError, match="anthropic has no embeddings"):
                await client.embed(["a"])


@run
async def test_encoder_of_an_index():
    async with relay_upstream(answer_of("openai_chat")) as upstream:
        client = ModelClient("m", base_url=upstream.url, wire="openai_chat")
        encoder = ModelEncoder(client, 2)
        seen = []
        vectors = await asyncio.to_thread(
            encoder.encode, ["x" * number for number in range(200)], lambda *at: seen.append(at)
        )
        assert vectors.shape == (200, 2)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0)
        assert seen == [(96, 200), (192, 200), (200, 200)]
        with pytest.raises(ConfigError, match=r"vectors of \[2\] dimensions"):
            await asyncio.to_thread(ModelEncoder(client, 3).encode, ["a"])
        await client.aclose()
