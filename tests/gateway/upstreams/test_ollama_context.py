"""The context of Ollama models: large enough for the request, never smaller than the loaded one, rarely changed."""

import asyncio
import json

import pytest

from gateway_client import post, send
from hostile import run
from ollama_server import OllamaServer
from serving import serving
from shapes import Call, ModelAnswer
from toolwire import ModelClient
from toolwire.ir.parts import Text
from toolwire.ir.request import Message, Params, Request
from toolwire.ir.response import UpstreamError
from toolwire.testing import Upstream
from virtual_time import in_virtual_time

pytestmark = pytest.mark.finding("CA4")

WORDS = "the quick brown fox jumps over a lazy dog "  # nine words, 42 bytes
TOOLS = [
    {"name": f"tool_{number}", "description": WORDS * 20, "input_schema": {"type": "object", "properties": {}}}
    for number in range(20)
]


def settings(url, **row):
    upstream = {"provider": "ollama", "base_url": url, "retries": 0, **row}
    return {"upstreams": {"ollama": upstream}, "models": {"*": {"upstream": "ollama", "model": "qwen3:8b"}}}


def claude_request(*texts, **fields):
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    return {"model": "claude-sonnet-5", "max_tokens": 1000, "system": "Be brief.", "messages": messages, **fields}


async def ask(gateway, body, path="/v1/messages"):
    status, _, answer = await post(gateway.url, path, body)
    return status, json.loads(answer)


@run
async def test_prompt_of_a_coding_agent_arrives_whole_on_a_server_with_a_small_default():
    long_prompt = claude_request(WORDS * 700, tools=TOOLS)  # 12,000 tokens
    async with OllamaServer() as ollama, serving(settings(ollama.url)) as gateway:
        status, _ = await ask(gateway, long_prompt)
    assert status == 200
    assert [prompt.is_whole for prompt in ollama.prompts] == [True]
    assert ollama.bodies[0]["options"]["num_ctx"] == 32_768
    assert ollama.bodies[0]["truncate"] is ollama.bodies[0]["shift"] is False


@run
async def test_twenty_growing_turns_reload_the_model_at_most_twice():
    texts = ["Hello."]
    async with OllamaServer(length=131_072) as ollama, serving(settings(ollama.url)) as gateway:
        for _ in range(20):
            status, answer = await ask(gateway, claude_request(*texts, tools=TOOLS))
            assert status == 200
            texts += [answer["content"][0]["text"], WORDS * 90]
    assert len(ollama.prompts) == 20
    assert all(prompt.is_whole for prompt in ollama.prompts)
    assert len(ollama.loads) <= 3  # the first load is no reload
    assert ollama.loads == sorted(ollama.loads)


@run
async def test_context_never_shrinks_while_a_model_is_in_use():
    async with OllamaServer() as ollama, serving(settings(ollama.url)) as gateway:
        await ask(gateway, claude_request(WORDS * 700))
        await ask(gateway, claude_request("Say hello."))
    assert len(ollama.loads) == 1


@run
async def test_other_worker_keeps_the_context_that_the_first_has_loaded():
    async with (
        OllamaServer() as ollama,
        serving(settings(ollama.url)) as first,
        serving(settings(ollama.url)) as second,
    ):
        await ask(first, claude_request(WORDS * 700))
        await ask(second, claude_request("Say hello."))
        await ask(first, claude_request("Say hello."))
    assert len(ollama.loads) == 1


@run
async def test_context_of_the_modelfile_is_the_least():
    async with OllamaServer(modelfile=16_384) as ollama, serving(settings(ollama.url)) as gateway:
        await ask(gateway, claude_request("Say hello."))
    assert ollama.loads == [16_384]


@pytest.mark.parametrize(("row", "expected"), [({}, 40_960), ({"context_max": 20_000}, 20_000)])
@run
async def test_context_is_at_most_the_length_of_the_model_and_the_setting(row, expected):
    async with OllamaServer() as ollama, serving(settings(ollama.url, **row)) as gateway:
        status, _ = await ask(gateway, claude_request(WORDS * 700, max_tokens=100_000))
    assert (status, ollama.loads) == (200, [expected])


@run
async def test_size_in_the_settings_is_kept():
    row = {"extra_body": {"options": {"num_ctx": 12_000}}}
    async with OllamaServer() as ollama, serving(settings(ollama.url, **row)) as gateway:
        await ask(gateway, claude_request("Say hello."))
    assert ollama.loads == [12_000]
    assert ollama.bodies[0]["truncate"] is False


@run
async def test_request_of_an_ollama_client_is_passed_on_unchanged():
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": False,
        "options": {"num_ctx": 9000},
    }
    async with OllamaServer() as ollama, serving(settings(ollama.url)) as gateway:
        status, _ = await ask(gateway, body, "/api/chat")
    assert status == 200
    assert ollama.bodies == [{**body, "model": "qwen3:8b"}]
    assert ollama.paths == ["/api/chat"]


@run
async def test_ollama_client_without_a_context_gets_the_one_of_translated_requests():
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": False,
        "options": {"num_predict": 9},
    }
    async with OllamaServer() as ollama, serving(settings(ollama.url)) as gateway:
        for _ in range(3):
            assert (await ask(gateway, claude_request(WORDS * 300)))[0] == 200
            assert (await ask(gateway, body, "/api/chat"))[0] == 200
    assert ollama.loads == [8_192]
    added = {"truncate": False, "shift": False, "options": {"num_predict": 9, "num_ctx": 8_192}}
    assert ollama.bodies[1] == {**body, "model": "qwen3:8b", **added}


@run
async def test_prompt_of_an_ollama_client_is_not_cut():
    messages = [{"role": "user", "content": WORDS * 700}]
    async with OllamaServer() as ollama, serving(settings(ollama.url)) as gateway:
        status, _ = await ask(gateway, {"model": "m", "messages": messages, "stream": False}, "/api/chat")
    assert (status, ollama.prompts[0].is_whole) == (200, True)


@run
async def test_huge_output_limit_reserves_no_memory_for_later_requests():
    async with OllamaServer(reports=False, length=1 << 24) as ollama, serving(settings(ollama.url)) as gateway:
        assert (await ask(gateway, claude_request("Say hello.", max_tokens=10**9)))[0] == 200
        assert (await ask(gateway, claude_request("Say hello.")))[0] == 200
    assert ollama.loads == [16_384]


@run
async def test_memory_is_halved_once_and_remembered():
    long_prompt = claude_request(WORDS * 300, max_tokens=20_000)
    async with OllamaServer(memory=16_384) as ollama, serving(settings(ollama.url)) as gateway:
        status, _ = await ask(gateway, long_prompt)
        assert status == 200
        assert [body["options"]["num_ctx"] for body in ollama.bodies] == [32_768, 16_384]
        await ask(gateway, long_prompt)
    assert ollama.loads == [16_384]
    assert len(ollama.bodies) == 3


@run
async def test_second_lack_of_memory_is_reported():
    async with OllamaServer(memory=5_000) as ollama, serving(settings(ollama.url, retries=2)) as gateway:
        status, answer = await ask(gateway, claude_request(WORDS * 300, max_tokens=20_000))
    assert status == 502
    assert "requires more system memory" in answer["error"]["message"]
    assert [body["options"]["num_ctx"] for body in ollama.bodies] == [32_768, 16_384]


@run
async def test_prompt_that_was_underestimated_gets_a_larger_context():
    dense = "9a" * 100
    async with OllamaServer(length=131_072) as ollama, serving(settings(ollama.url)) as gateway:
        ollama._count = lambda messages, body: 9_000  # more than the estimate
        status, _ = await ask(gateway, claude_request(dense))
    assert status == 200
    assert [body["options"]["num_ctx"] for body in ollama.bodies] == [4_096, 16_384]


@run
async def test_server_without_reports_gets_the_estimated_context():
    async with OllamaServer(reports=False, length=131_072) as ollama, serving(settings(ollama.url)) as gateway:
        assert (await ask(gateway, claude_request(WORDS * 700)))[0] == 200
        assert (await ask(gateway, claude_request("Say hello.")))[0] == 200
    assert ollama.loads == [16_384]
    assert ollama.paths.count("/api/ps") == 1  # a failure is remembered for a while


@in_virtual_time
async def test_slow_report_does_not_stop_the_request():
    class Slow(OllamaServer):
        async def _answer(self, path, *rest):
            if path != "/api/chat":
                await asyncio.Event().wait()
            return await super()._answer(path, *rest)

    async with Slow() as ollama, serving(settings(ollama.url)) as gateway:
        status, _ = await ask(gateway, claude_request(WORDS * 700))
    assert status == 200
    assert ollama.prompts[0].is_whole


@run
async def test_concurrent_requests_share_the_reports():
    async with OllamaServer() as ollama, serving(settings(ollama.url)) as gateway:
        answers = await asyncio.gather(*(ask(gateway, claude_request("Say hello.")) for _ in range(8)))
    assert {status for status, _ in answers} == {200}
    assert ollama.paths.count("/api/show") == 1


@run
async def test_other_upstreams_get_no_reports_and_no_fields():
    async with Upstream() as provider:
        rows = {"chat": {"base_url": provider.url, "wire": "openai_chat", "retries": 0}}
        async with serving({"upstreams": rows, "models": {"*": {"upstream": "chat", "model": "m"}}}) as gateway:
            await ask(gateway, claude_request("Say hello."))
    assert [request.path for request in provider.requests] == ["/chat/completions"]
    assert b"num_ctx" not in provider.requests[0].body
    assert b"truncate" not in provider.requests[0].body


# --- prompts that do not fit

TOO_LONG = WORDS * 5_000  # at least 45,000 tokens
FRONTS = {
    "/v1/messages": claude_request(TOO_LONG),
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": TOO_LONG}]},
    "/v1/responses": {"model": "m", "input": TOO_LONG},
    "/v1beta/models/m:generateContent": {"contents": [{"role": "user", "parts": [{"text": TOO_LONG}]}]},
}


def _overflow(path, answer):
    error = answer["error"]
    if path == "/v1/messages":
        return (
            error["type"],
            error["message"].startswith("prompt is too long: 45"),
            "> 40960 maximum" in error["message"],
        )
    if path.startswith("/v1beta"):
        is_own = error["message"].startswith("The input token count (45")
        return "invalid_request_error", is_own, error["message"].endswith("tokens allowed (40960).")
    return (
        "invalid_request_error",
        error["code"] == "context_length_exceeded",
        "length is 40960 tokens" in error["message"],
    )


@pytest.mark.parametrize("path", FRONTS)
@run
async def test_prompt_that_cannot_fit_is_refused_in_the_form_of_each_client(path):
    async with OllamaServer(knows_truncate=False) as ollama, serving(settings(ollama.url)) as gateway:
        status, answer = await ask(gateway, FRONTS[path], path)
    assert status == 400
    assert _overflow(path, answer) == ("invalid_request_error", True, True)
    assert ollama.bodies == []


@run
async def test_prompt_that_ollama_refuses_has_the_form_of_the_client():
    prompt = claude_request("x7" * 100_000)  # one word, so only the server knows that it is too long
    async with OllamaServer() as ollama, serving(settings(ollama.url)) as gateway:
        status, answer = await ask(gateway, prompt)
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["message"].startswith("prompt is too long: 5")
    assert len(ollama.bodies) == 1


@pytest.mark.parametrize("text", [TOO_LONG, "x7" * 100_000], ids=["certain", "refused by the server"])
@run
async def test_fallback_with_a_larger_window_is_tried_first(text):
    async with OllamaServer() as ollama, OllamaServer(lambda request: ModelAnswer("Large."), length=262_144) as large:
        document = settings(ollama.url)
        for name, length in (("same", 40_960), ("large", 262_144)):
            row = {"provider": "ollama", "base_url": large.url, "retries": 0}
            document["upstreams"][name] = row
            fits = {"capabilities": {"window": length}}
            document["models"][name] = {"upstream": name, "model": "qwen3:8b", **fits}
        document["models"]["*"] = {**document["models"]["*"], "fallbacks": ["same", "large"]}
        async with serving(document) as gateway:
            status, answer = await ask(gateway, claude_request(text))
    assert status == 200
    assert answer["content"][0]["text"] == "Large."
    assert len(large.bodies) == 1


@run
async def test_same_rule_for_other_upstreams_with_a_known_window():
    async with Upstream() as provider:
        rows = {"chat": {"base_url": provider.url, "wire": "openai_chat", "retries": 0}}
        models = {"m": {"upstream": "chat", "capabilities": {"window": 40_960}}}
        async with serving({"upstreams": rows, "models": models}) as gateway:
            for path in ("/v1/messages", "/v1/chat/completions"):
                status, answer = await ask(gateway, {**FRONTS[path], "model": "m"}, path)
                assert status == 400
                assert _overflow(path, answer) == ("invalid_request_error", True, True)
    assert provider.requests == []


def chat_settings(url, wire="openai_chat", **row):
    rows = {"up": {"base_url": url, "wire": wire, "retries": 0}}
    return {"upstreams": rows, "models": {"*": {"upstream": "up", "model": "m", **row}}}


@pytest.mark.parametrize(
    ("wire", "path", "fields"),
    [
        ("openai_responses", "/v1/responses", {"truncation": "auto"}),
        ("openai_responses", "/v1/responses", {"context_management": [{"type": "compaction"}]}),
        ("anthropic", "/v1/messages", {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
        ("openai_chat", "/v1/chat/completions", {"transforms": ["middle-out"]}),
        ("openai_chat", "/v1/chat/completions", {"plugins": [{"id": "context-compression"}]}),
        ("openai_chat", "/v1/chat/completions", {"truncate_prompt_tokens": 4_000}),
    ],
)
@run
async def test_prompt_that_the_provider_shortens_is_not_refused(wire, path, fields):
    limits = {"capabilities": {"window": 40_960}}
    async with Upstream() as provider, serving(chat_settings(provider.url, wire, **limits)) as gateway:
        await ask(gateway, {**FRONTS[path], **fields}, path)
        assert len(provider.requests) == 1
        assert (await ask(gateway, FRONTS[path], path))[0] == 400
    assert len(provider.requests) == 1


@run
async def test_prompt_for_the_larger_window_of_a_beta_is_not_refused():
    beta = {"anthropic-beta": "tools-2026-01-01,context-1m-2025-08-07"}
    body = json.dumps(FRONTS["/v1/messages"]).encode()
    limits = {"capabilities": {"window": 40_960}}
    async with Upstream() as provider, serving(chat_settings(provider.url, "anthropic", **limits)) as gateway:
        await send("POST", f"{gateway.url}/v1/messages", body, beta)
    assert len(provider.requests) == 1


@run
async def test_ollama_client_that_lets_the_server_cut_is_not_refused():
    body = {"model": "m", "messages": [{"role": "user", "content": TOO_LONG}], "stream": False}
    async with OllamaServer() as ollama, serving(settings(ollama.url)) as gateway:
        assert (await ask(gateway, body, "/api/chat"))[0] == 400
        assert (await ask(gateway, {**body, "truncate": True}, "/api/chat"))[0] == 200
        assert (await ask(gateway, {**body, "options": {"num_ctx": 8_192}}, "/api/chat"))[0] == 200


@pytest.mark.parametrize("model", ["gpt-4", "gpt-3.5-turbo", "llama3", "gpt-oss-20b", "qwen2.5-7b-instruct"])
@run
async def test_window_of_a_name_refuses_nothing_at_an_unknown_server(model):
    body = {"model": model, "messages": [{"role": "user", "content": WORDS * 20_000}]}
    async with Upstream() as provider, serving(chat_settings(provider.url, model=model)) as gateway:
        await ask(gateway, body, "/v1/chat/completions")
    assert len(provider.requests) == 1


@run
async def test_tools_that_are_not_sent_are_not_counted():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 200_000}}
    tools = [
        {"type": "function", "function": {"name": f"tool_{number}", "description": WORDS * 10, "parameters": {}}}
        for number in range(200)
    ]
    body = {"model": "m", "messages": [{"role": "user", "content": [image, {"type": "text", "text": "fox"}]}]}
    limits = {"capabilities": {"window": 8_192}}
    async with Upstream() as provider:
        async with serving(chat_settings(provider.url, retrieve=True, **limits)) as gateway:
            await ask(gateway, {**body, "tools": tools}, "/v1/chat/completions")
        assert len(provider.requests) == 1
        async with serving(chat_settings(provider.url, **limits)) as gateway:
            assert (await ask(gateway, {**body, "tools": tools}, "/v1/chat/completions"))[0] == 400


# --- lists of models


@run
async def test_list_of_models_has_the_length_that_the_server_reports():
    headers = {"anthropic-version": "2023-06-01"}
    async with OllamaServer() as ollama, serving(settings(ollama.url)) as gateway:
        gateway_models = f"{gateway.url}/v1/models/"
        _, _, described = await send("GET", gateway_models + "qwen3:8b", b"", headers)
    assert json.loads(described)["max_input_tokens"] == 40_960
    async with OllamaServer(reports=False) as ollama, serving(settings(ollama.url)) as gateway:
        _, _, unknown = await send("GET", f"{gateway.url}/v1/models/qwen3:8b", b"", headers)
    assert "max_input_tokens" not in json.loads(unknown)
    async with OllamaServer() as ollama, serving(settings(ollama.url, context_max=20_000)) as gateway:
        _, _, limited = await send("GET", f"{gateway.url}/v1/models/qwen3:8b", b"", headers)
    assert json.loads(limited)["max_input_tokens"] == 20_000


@run
async def test_long_prompt_of_few_tokens_is_sent():
    blank = claude_request(" " * 1_000_000 + "=" * 100_000)
    async with Upstream() as provider:
        rows = {"chat": {"base_url": provider.url, "wire": "openai_chat", "retries": 0}}
        models = {"*": {"upstream": "chat", "model": "m", "capabilities": {"window": 40_960}}}
        async with serving({"upstreams": rows, "models": models}) as gateway:
            await ask(gateway, blank)
    assert len(provider.requests) == 1


# --- clients of models


@run
async def test_model_client_and_its_stream_choose_the_context():
    request = Request("", (Message("user", (Text(WORDS * 700),)),), params=Params(max_tokens=1000))
    async with OllamaServer() as ollama, ModelClient("ollama/qwen3:8b", base_url=ollama.url) as client:
        assert (await client.ask(request)).text == "Hello."
        assert [event async for event in client.stream(request)]
    assert ollama.loads == [16_384]
    assert all(prompt.is_whole for prompt in ollama.prompts)


@run
async def test_model_client_halves_the_context_once():
    request = Request("", (Message("user", (Text(WORDS * 700),)),), params=Params(max_tokens=20_000))
    async with OllamaServer(memory=16_384) as ollama, ModelClient("ollama/qwen3:8b", base_url=ollama.url) as client:
        assert (await client.ask(request)).text == "Hello."
    assert ollama.loads == [16_384]
    async with OllamaServer(memory=5_000) as ollama, ModelClient("ollama/qwen3:8b", base_url=ollama.url) as client:
        with pytest.raises(UpstreamError, match="requires more system memory"):
            await client.ask(request)
    assert len(ollama.bodies) == 2


@run
async def test_calls_work_with_a_chosen_context():
    calls = (Call("c1", "tool_1", {}),)
    async with OllamaServer(lambda request: ModelAnswer("", calls)) as ollama, serving(settings(ollama.url)) as gateway:
        _, answer = await ask(gateway, claude_request("Call a tool.", tools=TOOLS, stream=False))
    assert answer["content"][0]["name"] == "tool_1"


@run
async def test_mock_cuts_as_the_server_does():
    """Without `num_ctx`, a long conversation loses its beginning, and nothing reports it."""
    messages = [{"role": "system", "content": "Be brief."}] + [
        {"role": "user" if number % 2 == 0 else "assistant", "content": WORDS * 200} for number in range(9)
    ]
    body = json.dumps({"model": "qwen3:8b", "messages": messages, "stream": False}).encode()
    async with OllamaServer() as ollama:
        status, _, _ = await send("POST", f"{ollama.url}/api/chat", body)
        refused, _, error = await send("POST", f"{ollama.url}/api/chat", body[:-1] + b', "truncate": false}')
    assert status == 200
    assert [message.role for message in ollama.prompts[0].request.messages] == ["system", "user"]
    assert not ollama.prompts[0].is_whole
    assert refused == 400
    assert b"exceeds the available context size" in error
