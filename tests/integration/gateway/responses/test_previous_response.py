"""OpenAI's own client continues responses by their id, over upstreams of every wire."""

from __future__ import annotations

import openai
import pytest
from gateway.hostile import run
from gateway.responses.sdk import WEATHER, WIRES, call_answer, text_answer, world


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "responses.db")


async def create(client, *, stream, **fields):
    """A finished response, whole or from the last event of a stream."""
    if not stream:
        return await client.responses.create(**fields)
    async with client.responses.stream(**fields) as events:
        return await events.get_final_response()


@pytest.mark.finding("G5")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES)
@run
async def test_previous_response_is_continued_over_every_wire(wire, stream, store):
    async with world(text_answer("Rain."), text_answer("Snow."), text_answer("Sun."), store=store) as at:
        model = f"{wire}/m"
        first = await create(at.client, stream=stream, model=model, input="Paris?", instructions="Be brief.")
        assert first.id.startswith("resp_") and first.output_text == "Rain."
        second = await create(at.client, stream=stream, model=model, input="Oslo?", previous_response_id=first.id)
        assert (second.output_text, second.previous_response_id) == ("Snow.", first.id)
        assert at.history() == [("user", "Paris?"), ("assistant", "Rain."), ("user", "Oslo?")]
        third = await create(at.client, stream=stream, model=model, input="Rome?", previous_response_id=second.id)
        assert third.output_text == "Sun."
        assert [text for _, text in at.history()] == ["Paris?", "Rain.", "Oslo?", "Snow.", "Rome?"]
        assert len({first.id, second.id, third.id}) == 3
