"""A head in the gateway and in a client: calls on every wire, choices, losses, added tools and recordings."""

import asyncio
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import pytest
import torch
from msgspec.structs import replace
from tiny_model import tiny_model

from gateway_client import post
from sdks import CLIENTS, Function, Result
from serving import listening, serving
from toolwire import ModelClient, Request, Text, Tool, ToolCall, ToolChoice
from toolwire.cli.main import main
from toolwire.gateway.app import Gateway
from toolwire.gateway.config.parsing import parse_settings
from toolwire.gateway.observe.telemetry import open_telemetry
from toolwire.ir.errors import ConfigError
from toolwire.ir.losses import Losses
from toolwire.ir.parts import Media
from toolwire.ir.request import Message, Params, ReasoningConfig
from toolwire.ir.response import UpstreamError
from toolwire.learn import ToolkenHead, make_example
from toolwire.learn.toolken import demonstrations
from toolwire.learn.toolken import serving as serving_module
from toolwire.learn.toolken.answers import Abandoned, AnsweringHead
from toolwire.learn.toolken.demonstrations import conversation_prompt
from toolwire.learn.toolken.serving import open_head
from waiting import SAFETY

FRUIT = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["count"],
    "additionalProperties": False,
}
TOOLS = tuple(Function(name, f"Buy a {name}", FRUIT) for name in ("fig", "kiwi"))
SETTINGS = {"upstreams": {"heads": {"provider": "toolken"}}, "models": {"fruit": {"upstream": "heads", "model": "run"}}}
TRAINING = ("--epochs", "150", "--rate", "0.1", "--json")


QUERIES = [f"{verb} {tool}" for verb in ("buy", "eat", "cut", "peel") for tool in ("fig", "kiwi", "plum")]
GREETINGS = [f"{verb} you" for verb in ("love", "thank", "see", "hear")]


def write_pairs(file, *tools):
    rows = [
        {"query": query, "tool": query.split()[1], "arguments": {"count": 3}}
        for query in QUERIES
        if query.endswith(tools)
    ]
    rows += [{"query": query, "answer": "hey"} for query in GREETINGS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def trained_model():
    """Return a tiny model that answers with the name of the fruit, or "hey" without one and after a result.

    Only its output layer is trained.
    """
    model = tiny_model(1)
    prompts = [conversation_prompt(model, request(query).messages) for query in QUERIES + GREETINGS]
    prompts += [f"{prompt}one {query.split()[1]}\n" for prompt, query in zip(prompts, QUERIES, strict=False)]
    answers = [*(query.split()[1] for query in QUERIES), *["hey"] * (len(prompts) - len(QUERIES))]
    pairs = [(prompt, f"{answer}<|im_end|>") for prompt, answer in zip(prompts, answers, strict=True)]
    tokens, attention = model.pad_batch([model.encode(prompt + answer) for prompt, answer in pairs])
    rows, targets = [], []
    with torch.no_grad():
        states = model.hidden_states(tokens, attention)
    for row, (prompt, answer) in enumerate(pairs):
        start, length = len(model.encode(prompt)), len(model.encode(answer))
        rows.append(states[row, start - 1 : start + length - 1])
        targets.append(tokens[row, start : start + length])
    inputs, labels, layer = torch.cat(rows), torch.cat(targets), model.network.get_output_embeddings()
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.1)
    for _ in range(400):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(layer(inputs), labels).backward()
        optimiser.step()
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of TOOLWIRE_MODELS with the head `run`, which was trained on conversations."""
    folder = tmp_path_factory.mktemp("heads")
    model = trained_model()
    model.network.save_pretrained(folder / "model")
    model.tokenizer.save_pretrained(folder / "model")
    pairs = write_pairs(folder / "pairs.jsonl", "fig", "kiwi")
    train = ["learn", "toolken", pairs, "-m", str(folder / "model"), "-o", str(folder / "run"), "--dev", pairs]
    assert main([*train, "--chat", *TRAINING]) == 0
    return folder


@pytest.fixture(scope="module", autouse=True)
def _models(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLWIRE_MODELS", str(folder))
        model = open_head("run")
        yield
        model.close()


class World(NamedTuple):
    run: Callable
    url: str
    clients: dict


@pytest.fixture(scope="module")
def world(_models):
    """A gateway and a client of every kind, on one event loop."""
    with asyncio.Runner() as runner:
        context = serving(SETTINGS)
        gateway = runner.run(context.__aenter__())
        clients = {name: kind(gateway.url) for name, kind in CLIENTS.items()}
        yield World(runner.run, gateway.url, clients)
        for client in clients.values():
            runner.run(client.close())
        runner.run(context.__aexit__(None, None, None))


def tools(*names):
    return tuple(Tool(name, None, FRUIT) for name in names or ("fig", "kiwi"))


def request(text="buy kiwi", declared=None, choice=None, **params):
    declared = tools() if declared is None else declared
    return Request("run", (Message("user", (Text(text),)),), declared, choice, params=Params(max_tokens=20, **params))


def ask(asked, losses=None):
    async def run():
        async with ModelClient("toolken/run") as client:
            return await client.ask(asked, losses=losses)

    return asyncio.run(run())


def calls_of(response):
    return [part for part in response.parts if isinstance(part, ToolCall)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", list(CLIENTS))
def test_client_of_every_wire_gets_a_call_and_sends_its_result(world, kind, stream):
    client = world.clients[kind]
    history = client.user_message("buy kiwi")
    first = world.run(client.ask("fruit", history, TOOLS, None, stream=stream))
    [call] = first.calls
    assert (call.name, first.stop, first.text) == ("kiwi", client.stops[0], "")
    assert call.id and 1 <= call.arguments["count"] <= 9
    results = client.results([Result(call, "one kiwi")])
    last = world.run(client.ask("fruit", [*history, *first.said, *results], TOOLS, None, stream=stream))
    assert (last.calls, last.text, last.stop) == ([], "hey", client.stops[1])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", list(CLIENTS))
def test_choices_of_every_wire_are_respected(world, kind, stream):
    client = world.clients[kind]
    history = client.user_message("buy kiwi")
    without = world.run(client.ask("fruit", history, TOOLS, "none", stream=stream))
    assert (without.calls, without.text) == ([], "kiwi")
    named = world.run(client.ask("fruit", history, TOOLS, "fig", stream=stream))
    assert [call.name for call in named.calls] == ["fig"]


def test_text_is_streamed_in_pieces(world):
    body = {"model": "fruit", "messages": [{"role": "user", "content": "love you"}], "stream": True}
    status, _, data = world.run(post(world.url, body=body))
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n\n") if line]
    deltas = [json.loads(line)["choices"][0]["delta"].get("content") for line in lines[:-1] if b"delta" in line]
    assert status == 200 and lines[-1] == b"[DONE]"
    assert [text for text in deltas if text] == list("hey")


def test_only_toolkens_of_declared_tools_are_chosen():
    assert [call.name for call in calls_of(ask(request()))] == ["kiwi"]
    assert "kiwi" not in [call.name for call in calls_of(ask(request(declared=tools("fig"))))]
    assert calls_of(ask(request(declared=()))) == []


def test_answer_without_a_toolken_is_text():
    answer = ask(request("love you"))
    assert (answer.parts, answer.stop.reason, answer.usage.output) == ((Text("hey"),), "stop", 3)


def test_required_choice_calls_the_best_tool():
    answer = ask(request("love you", choice=ToolChoice("required")))
    assert len(calls_of(answer)) == 1
    only = ask(request("buy kiwi", choice=ToolChoice("allowed", ("fig",), required=True)))
    assert [call.name for call in calls_of(only)] == ["fig"]


def test_unknown_tool_is_a_loss_and_cannot_be_required():
    losses = Losses()
    answer = ask(request(declared=(*tools(), Tool("plum", None, FRUIT))), losses)
    assert [call.name for call in calls_of(answer)] == ["kiwi"]
    assert ("/tools/2", "dropped", "error") in {(one.path, one.action, one.severity) for one in losses}
    with pytest.raises(UpstreamError, match="no row for such a tool"):
        ask(request(declared=(Tool("plum", None, FRUIT),), choice=ToolChoice("required")))


def test_settings_without_effect_are_losses():
    losses = Losses()
    ask(request("love you", temperature=0.5, stop=("x",)), losses)
    assert {(one.path, one.severity) for one in losses} == {
        ("/params/temperature", "info"),
        ("/params/stop", "warning"),
    }


def test_arguments_match_the_schema_of_the_request():
    schema = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}}, "required": ["size"]}
    [call] = calls_of(ask(request(declared=(Tool("kiwi", None, schema),))))
    assert call.arguments["size"] in ("small", "large")


def test_arguments_that_do_not_fit_leave_no_trace():
    schema = {"type": "object", "properties": {"note": {"type": "string", "minLength": 90}}, "required": ["note"]}
    answer = ask(request(declared=(Tool("kiwi", None, schema),)))
    assert answer.parts == (Text("kiwi"),)
    with pytest.raises(UpstreamError, match="required call"):
        ask(request(declared=(Tool("kiwi", None, schema),), choice=ToolChoice("required")))


def test_call_that_has_a_result_is_not_repeated():
    first = ask(request())
    [call] = calls_of(first)
    history = (
        *request().messages,
        Message("assistant", first.parts),
        Message("user", (call.result(""),)),
    )
    again = ask(Request("run", history, tools("kiwi"), params=Params(max_tokens=20)))
    assert again.parts == (Text("kiwi"),)


def test_media_and_long_conversations_are_refused():
    picture = Message("user", (Media("image", "image/png", "aGk="),))
    with pytest.raises(UpstreamError, match="reads text only"):
        ask(Request("run", (picture,)))
    with pytest.raises(UpstreamError, match="the model reads 2048"):
        ask(request("a" * 3000))


def test_unknown_head_is_named(folder):
    with pytest.raises(ConfigError, match=r"unknown head .\.\./run"):
        open_head("../run")


def test_added_tool_is_served_without_a_restart(folder, tmp_path, monkeypatch):
    """The rows of other tools stay equal, and the running model reads the head again."""
    shutil.copytree(folder / "run", tmp_path / "grown")
    monkeypatch.setenv("TOOLWIRE_MODELS", str(tmp_path))
    before = ToolkenHead.load(tmp_path / "grown" / "head")
    more = write_pairs(tmp_path / "more.jsonl", "fig", "kiwi", "plum")
    asked = request("buy plum", tools("fig", "kiwi", "plum"))

    async def talk():
        async with ModelClient("toolken/grown") as client:
            first = Losses()
            await client.ask(asked, losses=first)
            add = ["learn", "toolken", more, "--add", str(tmp_path / "grown"), *TRAINING]
            assert await asyncio.to_thread(main, add) == 0
            second = Losses()
            return first, await client.ask(asked, losses=second), second

    first, answer, second = asyncio.run(talk())
    open_head("grown").close()
    assert [loss.path for loss in first] == ["/tools/2"] and not list(second)
    assert [call.name for call in calls_of(answer)] == ["plum"]
    after = ToolkenHead.load(tmp_path / "grown" / "head")
    assert after.names == ("fig", "kiwi", "plum") and after.is_chat
    assert torch.equal(after.W_T.weight[:2], before.W_T.weight)


def test_damaged_head_keeps_the_old_one_in_use(folder, tmp_path, monkeypatch, caplog):
    shutil.copytree(folder / "run" / "head", tmp_path / "bare")
    monkeypatch.setenv("TOOLWIRE_MODELS", str(tmp_path))

    async def talk():
        async with ModelClient("toolken/bare") as client:
            await client.ask(request())
            (tmp_path / "bare" / "head.json").write_text("{")
            return [await client.ask(request()) for _ in range(2)]

    with caplog.at_level("WARNING", logger="toolwire.learn"):
        answers = asyncio.run(talk())
    open_head("bare").close()
    assert [calls_of(answer)[0].name for answer in answers] == ["kiwi", "kiwi"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_changed_head_that_cannot_be_parsed_keeps_the_old_one_in_use(folder, tmp_path, monkeypatch, caplog):
    shutil.copytree(folder / "run" / "head", tmp_path / "bare")
    monkeypatch.setenv("TOOLWIRE_MODELS", str(tmp_path))

    async def talk():
        async with ModelClient("toolken/bare") as client:
            await client.ask(request())
            manifest = json.loads((tmp_path / "bare" / "head.json").read_text())
            (tmp_path / "bare" / "head.safetensors").write_bytes(b"damaged")
            manifest["weights"] = hashlib.sha256(b"damaged").hexdigest()
            (tmp_path / "bare" / "head.json").write_text(json.dumps(manifest))
            return await client.ask(request())

    answer = asyncio.run(talk())
    open_head("bare").close()
    assert [call.name for call in calls_of(answer)] == ["kiwi"]
    assert "SafetensorError" in caplog.text


def test_clients_of_the_gateway_get_no_paths_and_no_names_of_heads(folder, tmp_path, monkeypatch, caplog):
    shutil.copytree(folder / "run" / "head", tmp_path / "broken")
    (tmp_path / "broken" / "head.json").write_text("{")
    monkeypatch.setenv("TOOLWIRE_MODELS", str(tmp_path))

    async def talk(model):
        async with serving({"upstreams": {"heads": {"provider": "toolken", "retries": 0}}}) as gateway:
            return await post(gateway.url, body={"model": f"heads/{model}", "messages": []})

    for model, status in (("nope", 404), ("broken", 503)):
        found, _, data = asyncio.run(talk(model))
        assert found == status and model.encode() in data
        assert str(tmp_path).encode() not in data and b"available" not in data
    open_head("broken").close()
    assert "available: broken" in caplog.text and str(tmp_path) in caplog.text


def test_head_learns_from_recordings_of_the_gateway(folder, tmp_path):
    """The gateway records conversations of its clients with any model; here the model is the head itself."""
    recordings = tmp_path / "recordings"
    settings = parse_settings({**SETTINGS, "trace": {"record": str(recordings)}, "log": {"to": "nowhere"}})

    async def talk():
        telemetry = open_telemetry(settings, {})
        gateway = Gateway(settings, environment={}, sinks=telemetry.sinks, transports=telemetry.transports())
        async with listening(telemetry.wrap(gateway)) as url:
            client = CLIENTS["anthropic"](url)
            for tool in ("fig", "kiwi"):
                for verb in ("buy", "eat"):
                    history = client.user_message(f"{verb} {tool}")
                    first = await client.ask("fruit", history, TOOLS, tool, stream=False)
                    results = client.results([Result(call, f"one {tool}") for call in first.calls])
                    await client.ask("fruit", [*history, *first.said, *results], TOOLS, "none", stream=True)
            await client.close()
        await telemetry.aclose()

    asyncio.run(talk())
    train = ["learn", "toolken", str(recordings), "-m", str(folder / "model"), "-o", str(tmp_path / "run")]
    assert main([*train, *TRAINING]) == 0
    head = ToolkenHead.load(tmp_path / "run" / "head")
    assert head.names == ("fig", "kiwi") and head.is_chat
    assert all(tool.examples for tool in head.tools)


def test_head_of_plain_texts_is_served_with_a_loss(folder, tmp_path, monkeypatch):
    pairs = write_pairs(tmp_path / "pairs.jsonl", "fig", "kiwi")
    run = ["learn", "toolken", pairs, "-m", str(folder / "model"), "-o", str(tmp_path / "plain"), "--epochs", "1"]
    assert main(run) == 0
    monkeypatch.setenv("TOOLWIRE_MODELS", str(tmp_path))

    async def talk(losses):
        async with ModelClient("toolken/plain") as client:
            await client.ask(request(), losses=losses)

    losses = Losses()
    asyncio.run(talk(losses))
    open_head("plain").close()
    assert [(loss.path, loss.action) for loss in losses] == [("/tools", "weakened")]


def test_models_command_lists_heads(capsys):
    assert main(["models", "toolken"]) == 0
    assert capsys.readouterr().out == "toolken/run\n"


# Work of a request: where it is done, and when it ends


def test_heads_are_found_outside_the_event_loop(monkeypatch):
    find, threads = serving_module.served_heads, []

    def watched():
        threads.append(threading.current_thread())
        return find()

    monkeypatch.setattr(serving_module, "served_heads", watched)
    ask(request("love you"))
    assert len(threads) == 1 and threads[0] is not threading.main_thread()


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("love you", {}),
        ("a" * 1800, {}),
        ("buy kiwi", {"choice": ToolChoice("required")}),
    ],
    ids=["text", "prompt", "arguments"],
)
def test_abandoned_generation_ends_at_its_next_step(folder, text, options):
    """`is_abandoned` is asked before the model is used, and at least once for each token."""
    head = AnsweringHead(folder / "run" / "head")
    asked = replace(request(text, **options), params=Params(max_tokens=200))
    for last in (1, 2, 4):
        asks = count(1)
        with pytest.raises(Abandoned):
            list(head.answer(asked, Losses(), lambda: next(asks) == last))
        assert next(asks) == last + 1
    assert list(head.answer(request("love you"), Losses()))  # the model is free


def test_abandoned_request_frees_the_model(monkeypatch):
    """Its reader leaves before there is a chunk, such as while arguments are written."""
    entered = threading.Event()

    def endless(self, asked, losses, is_abandoned):
        entered.set()
        while not is_abandoned():
            time.sleep(0.001)
        raise Abandoned
        yield

    async def talk():
        async with ModelClient("toolken/run") as client:
            with monkeypatch.context() as patch:
                patch.setattr(AnsweringHead, "answer", endless)
                asking = asyncio.ensure_future(client.ask(request()))
                assert await asyncio.to_thread(entered.wait, SAFETY)
                asking.cancel()
                await asyncio.wait({asking})
            return await client.ask(request())

    assert [call.name for call in calls_of(asyncio.run(talk()))] == ["kiwi"]


def test_errors_of_torch_do_not_reach_clients(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("cannot open /home/ann/secret")

    monkeypatch.setattr(AnsweringHead, "answer", fail)
    with pytest.raises(UpstreamError) as caught:
        ask(request())
    assert "secret" not in str(caught.value) and "secret" in caplog.text


def test_unknown_fields_reasoning_and_parallel_calls_are_losses():
    losses = Losses()
    extra = {"openai_chat": {"min_p": 0.1, "logit_bias": {"5": 1}}}
    asked = replace(request("love you"), extra=extra, parallel=True, reasoning=ReasoningConfig(effort="high"))
    ask(asked, losses)
    assert {"/min_p", "/logit_bias", "/parallel", "/reasoning"} <= {loss.path for loss in losses}


def test_long_conversation_is_rendered_a_few_times(monkeypatch):
    """Rendering every answer of it would take a time that grows with the square of its length."""
    model, turns = trained_model(), []
    for number in range(30):
        call = ToolCall(f"call_{number}", "kiwi", {"count": 1})
        turns += [
            Message("user", (Text(f"buy {number}"),)),
            Message("assistant", (Text("yes:"), call)),
            Message("user", (call.result("one kiwi"),)),
            Message("assistant", (Text("done"),)),
        ]
    *_, whole = demonstrations._answers(model, make_example(turns))
    render, rendered = demonstrations._apply_template, []

    def watched(*arguments):
        rendered.append(arguments)
        return render(*arguments)

    monkeypatch.setattr(demonstrations, "_apply_template", watched)
    assert conversation_prompt(model, turns) == whole.text
    assert len(rendered) == 2
