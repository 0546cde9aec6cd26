"""Images and files for models that do not accept them: described by another model (`vision`), or left out with a loss."""

import asyncio
import base64
import json
import threading

import pytest

from hostile import body_of, gateway_to, path_of, post, run
from toolwire import Media, Message, Request, Response, Text, ToolCall, ToolResult
from toolwire.bridge.conversation.media import iterate_media
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.keys import hash_key
from toolwire.gateway.routing.media_descriptions import MediaDescriptions
from toolwire.gateway.routing.router import Router
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.testing import PartialReply
from waiting import until
from work_counter import assert_linear, count_work

WIRES = ["anthropic", "cohere", "gemini", "gemini_interactions", "ollama", "openai_chat", "openai_responses"]
SEEN = "A red road sign with the word STOP."
ANSWER = Response(parts=(Text("Stop."),), stop=Stop("stop"), usage=Usage(100, 5))
DESCRIBED = Response(parts=(Text(SEEN),), stop=Stop("stop"), usage=Usage(1000, 20))
PNG = b"\x89PNG\r\n\x1a\n"  # by which the kind of an image without a media type is recognised
QUESTION = "What must I do at this sign?"


def picture(content=b"sign"):
    return Media("image", "image/png", base64.b64encode(PNG + content).decode())


def asking(*parts, model="blind"):
    return Request(model, (Message("user", (Text(QUESTION), *parts)),))


def media_of(received):
    return [media for _, media in iterate_media(received.request)]


def is_description(received):
    return bool(media_of(received))


def reply(request):
    """The provider of both models: one describes images, the other one answers."""
    return DESCRIBED if any(True for _ in iterate_media(request)) else ANSWER


def settings(wire="openai_chat", vision="seeing", **row):
    """A model that accepts no images, at an upstream with this wire, and one that does."""
    blind = {"upstream": wire, "model": "gpt-oss-20b", **row}
    if vision is not None:
        blind["vision"] = vision
    return {"models": {"blind": blind, "seeing": {"upstream": "anthropic", "model": "claude-sonnet-5"}}}


async def send(gateway, request, front="openai_chat", headers=None, *, stream=False):
    return await post(
        gateway,
        path_of(front, request.model, stream=stream),
        body_of(front, request, request.model, stream=stream),
        headers,
    )


def text_of(received):
    return "\n".join(
        part.text
        for message in received.request.messages
        for part in message.parts
        if isinstance(part, (Text, ToolResult))
    )


@pytest.mark.finding("CA6")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("front", WIRES)
@run
async def test_image_is_described_with_the_question_for_every_client_and_wire(front, wire, stream):
    document = settings(wire, capabilities={"media": []})
    async with gateway_to(*[reply] * 2, document=document) as (gateway, provider):
        answer = await send(gateway, asking(picture()), front, stream=stream)
        assert answer.status == 200 and b"Stop." in answer.body
        description, sent = provider.requests
        assert description.wire == "anthropic" and media_of(description)[0].data == picture().data
        assert QUESTION in text_of(description)
        assert sent.wire == wire and not is_description(sent)
        assert SEEN in text_of(sent) and QUESTION in text_of(sent)
        (log,) = gateway.turns
        losses = [(loss.path, loss.concept, loss.action) for loss in log.losses if loss.concept == "image"]
        assert losses == [(f"/messages/0/parts/{0 if front == 'ollama' else 1}", "image", "rewritten")]
        assert (log.usage.input, log.usage.output, log.description_usage.input) == (1100, 25, 1000)


@pytest.mark.parametrize("front", ["openai_chat", "anthropic"])
@run
async def test_without_a_describing_model_a_text_says_what_was_left_out(front):
    async with gateway_to(ANSWER, document=settings(vision=None)) as (gateway, provider):
        assert (await send(gateway, asking(picture()), front)).status == 200
        assert "[image left out]" in text_of(provider.requests[0]) and not is_description(provider.requests[0])
        assert ("image", "dropped") in [(loss.concept, loss.action) for loss in gateway.turns[0].losses]


@run
async def test_request_without_media_keeps_its_bytes():
    async with gateway_to(ANSWER, ANSWER, document=settings()) as (gateway, provider):
        plain = b'{"model": "blind",  "messages": [{"role": "user", "content": "An \\"image\\" in words"}]}'
        assert (await post(gateway, "/v1/chat/completions", plain)).status == 200
        assert provider.requests[0].body == plain.replace(b'"blind"', b'"gpt-oss-20b"')
        assert gateway.turns[0].passed_through


@run
async def test_model_that_accepts_images_gets_them():
    document = settings(capabilities={"media": ["image"]})
    async with gateway_to(ANSWER, document=document) as (gateway, provider):
        await send(gateway, asking(picture()))
        (sent,) = provider.requests
        assert sent.wire == "openai_chat" and media_of(sent)[0].data == picture().data


@run
async def test_unknown_model_with_vision_accepts_no_images():
    async with gateway_to(*[reply] * 2, document=settings(model="house-model")) as (gateway, provider):
        await send(gateway, asking(picture()))
        assert [is_description(received) for received in provider.requests] == [True, False]


@run
async def test_each_image_is_described_once_while_the_conversation_grows():
    first = asking(picture(), picture(b"other"), picture())
    grown = Request(
        "blind",
        (
            *first.messages,
            Message("assistant", (Text("Stop."),)),
            Message("user", (Text("And now?"), picture(b"third"))),
        ),
    )
    async with gateway_to(*[reply] * 10, document=settings()) as (gateway, provider):
        await send(gateway, first)
        assert [is_description(received) for received in provider.requests] == [True, True, False]
        await send(gateway, grown)
        assert [is_description(received) for received in provider.requests[3:]] == [True, False]
        assert "And now?" in text_of(provider.requests[3])
        assert text_of(provider.requests[4]).startswith(text_of(provider.requests[2]))  # the prefix stays the same
        assert gateway.turns[1].description_usage.input == 1000


@run
async def test_requests_at_the_same_time_share_a_description():
    async with gateway_to(*[reply] * 9, document=settings(), upstream={"delay": 0.05}) as (gateway, provider):
        answers = await asyncio.gather(*[send(gateway, asking(picture())) for _ in range(4)])
        assert [answer.status for answer in answers] == [200] * 4
        assert sum(map(is_description, provider.requests)) == 1
        assert sum(log.description_usage is not None for log in gateway.turns) == 1


@run
async def test_description_ends_when_all_clients_that_wait_for_it_have_left():
    stalled = PartialReply(DESCRIBED, None, "stall")
    async with gateway_to(stalled, reply, reply, document=settings()) as (gateway, provider):
        client = asyncio.ensure_future(send(gateway, asking(picture())))
        await until(lambda: provider.requests)
        client.cancel()
        await provider.disconnected(within=10)
        assert (await send(gateway, asking(picture()))).status == 200
        assert [is_description(received) for received in provider.requests] == [True, True, False]


@run
async def test_client_that_leaves_does_not_end_the_description_of_another():
    async with gateway_to(*[reply] * 3, document=settings(), upstream={"delay": 0.5}) as (gateway, provider):
        first = asyncio.ensure_future(send(gateway, asking(picture())))
        await until(lambda: provider.requests)
        second = asyncio.ensure_future(send(gateway, asking(picture())))
        for _ in range(200):  # turns of the event loop until the second one waits, too
            await asyncio.sleep(0)
        first.cancel()
        assert (await second).status == 200
        assert [is_description(received) for received in provider.requests] == [True, False]


def test_search_for_images_needs_time_in_proportion_to_the_conversation():
    def work(count):
        messages = tuple(Message("user", (picture(),)) for _ in range(count))
        kinds = frozenset({"image"})
        return count_work(lambda: MediaDescriptions.find(Request("blind", messages), "seeing", kinds, "me"))

    assert_linear([(count, work(count)) for count in (100, 200, 400)])


@run
async def test_callers_do_not_share_descriptions():
    keys = {name: {"hash": hash_key(name * 20)} for name in ("alice", "bobby")}
    async with gateway_to(*[reply] * 4, document={**settings(), "keys": keys}) as (gateway, provider):
        for name in keys:
            answer = await send(gateway, asking(picture()), headers={"authorization": f"Bearer {name * 20}"})
            assert answer.status == 200
        assert sum(map(is_description, provider.requests)) == 2


@run
async def test_image_in_a_result_is_described_in_its_place():
    call = ToolCall("call_1", "screenshot", {})
    request = Request(
        "blind",
        (
            Message("user", (Text(QUESTION),)),
            Message("assistant", (call,)),
            Message("user", (ToolResult("call_1", "screenshot", (Text("done"), picture())),)),
        ),
    )
    async with gateway_to(*[reply] * 2, document=settings()) as (gateway, provider):
        assert (await send(gateway, request, "anthropic")).status == 200
        description, sent = provider.requests
        assert QUESTION in text_of(description)
        (result,) = [result for message in sent.request.messages for result in message.results]
        assert "done" in result.text and SEEN in result.text
        assert gateway.turns[0].losses[0].path == "/messages/2/parts/0/parts/1"


@pytest.mark.parametrize(
    "failure", [Fault("server", "broken", 500), Fault("invalid_request", "too large", 400), Response()]
)
@run
async def test_image_that_cannot_be_described_is_left_out(failure):
    def fail(request):
        return failure if any(True for _ in iterate_media(request)) else ANSWER

    async with gateway_to(*[fail] * 9, document=settings()) as (gateway, provider):
        assert (await send(gateway, asking(picture()))).status == 200
        assert "[image left out]" in text_of(provider.requests[-1])
        assert ("image", "dropped") in [(loss.concept, loss.action) for loss in gateway.turns[0].losses]


@run
async def test_strict_client_gets_an_error_instead_of_a_description():
    async with gateway_to(*[reply] * 2, document=settings()) as (gateway, _):
        answer = await send(gateway, asking(picture()), headers={"x-toolwire-strict": "1"})
        assert answer.status == 400 and "image would be rewritten" in answer.document["error"]["message"]
        assert gateway.turns[0].usage.input == 1000  # the description was billed


@run
async def test_newest_images_are_described_first():
    request = asking(*[picture(str(number).encode()) for number in range(40)])
    async with gateway_to(*[reply] * 40, document=settings()) as (gateway, provider):
        assert (await send(gateway, request)).status == 200
        assert sum(map(is_description, provider.requests)) == 32
        lines = text_of(provider.requests[-1]).splitlines()
        assert [line for line in lines if "left out" in line] == ["[image left out]"] * 8
        assert lines.index("[image left out]") < lines.index(SEEN + "]")


@run
async def test_large_request_with_an_image_is_not_sent_on_unread():
    large = asking(picture(b"x" * 1_200_000))
    async with gateway_to(*[reply] * 2, document=settings()) as (gateway, provider):
        assert (await send(gateway, large)).status == 200
        assert [is_description(received) for received in provider.requests] == [True, False]


@run
async def test_file_is_described_where_the_row_says_that_it_is_not_accepted():
    pdf = Media("file", "application/pdf", base64.b64encode(b"%PDF-1.7").decode(), name="invoice.pdf")
    document = settings(capabilities={"media": ["image"]})
    async with gateway_to(*[reply] * 2, document=document) as (gateway, provider):
        assert (await send(gateway, asking(pdf), "anthropic")).status == 200
        assert "[file 'invoice.pdf', as another model describes it:\n" + SEEN in text_of(provider.requests[1])


@run
async def test_descriptions_go_with_tools_that_are_selected():
    tools = [
        {"type": "function", "function": {"name": f"tool_{number}", "parameters": {"type": "object"}}}
        for number in range(20)
    ]
    body = json.loads(body_of("openai_chat", asking(picture()), "blind")) | {"tools": tools}
    async with gateway_to(*[reply] * 2, document=settings(retrieve={"k": 3})) as (gateway, provider):
        assert (await post(gateway, "/v1/chat/completions", json.dumps(body).encode())).status == 200
        assert SEEN in text_of(provider.requests[1]) and len(provider.requests[1].request.tools) < 20


@pytest.mark.parametrize(
    ("vision", "message"),
    [
        ("seing", "seeing"),
        ("blind", "accepts no images"),
        ("text", "accepts no images"),
    ],
)
def test_wrong_describing_model_is_a_problem_of_the_settings(vision, message):
    models = {**settings(vision=vision)["models"], "text": {"upstream": "openai_chat", "capabilities": {"media": []}}}
    document = {"upstreams": {name: {"provider": "openai", "key_env": "KEY"} for name in ("openai_chat", "anthropic")}}
    with pytest.raises(ConfigError) as caught:
        parse_settings({**document, "models": models})
    assert "[models.blind] vision" in str(caught.value) and message in f"{caught.value} {caught.value.hint}"


@run
async def test_targets_of_the_describing_model_are_planned_on_the_event_loop(monkeypatch):
    """Planning may send probes of failed targets; the image is large enough for a thread."""
    threads = []

    def plan(self, *arguments, **options):
        threads.append(threading.current_thread())
        return planned(self, *arguments, **options)

    planned = Router.plan
    monkeypatch.setattr(Router, "plan", plan)
    async with gateway_to(*[reply] * 2, document=settings()) as (gateway, _):
        assert (await send(gateway, asking(picture(b"x" * 100_000)))).status == 200
    assert set(threads) == {threading.main_thread()}


@run
async def test_description_is_charged_if_its_first_client_has_left():
    async with gateway_to(*[reply] * 3, document=settings(), upstream={"delay": 0.5}) as (gateway, provider):
        first = asyncio.ensure_future(send(gateway, asking(picture())))
        await until(lambda: provider.requests)
        others = [asyncio.ensure_future(send(gateway, asking(picture()))) for _ in range(2)]
        for _ in range(200):  # turns of the event loop until the others wait, too
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(*others)
        await until(lambda: len(gateway.turns) == 3)
        charged = [log.description_usage.input for log in gateway.turns if log.description_usage is not None]
        assert charged == [1000]
