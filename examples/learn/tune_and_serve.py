"""Teach SmolLM2 three tools on the CPU, and serve the tuned model through the gateway.

    make demo-learn

The training conversations are made from templates. The prompts that are measured have other templates and other values.
Nothing is downloaded.
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import toolwire
from toolwire import Agent, Message, ModelClient, Text, ToolCall
from toolwire.learn import (
    CallQuality,
    Example,
    TrainSettings,
    TuneReport,
    TuneSettings,
    make_example,
    tune,
    write_examples,
)

FORMAT = "hermes"
TURNS = 4  # prompts in a training conversation: they share the declaration of the tools
GATEWAY = """\
[upstreams.local]
provider = "local"

[models.tuned]
upstream = "local"
model = "model"         # model.gguf in a folder of TOOLWIRE_MODELS
emulate = "{format}"    # the text format that the model was trained on
"""


@toolwire.tool(effect="read")
def get_weather(city: str) -> str:
    """Get the weather."""
    return f"sunny in {city}"


@toolwire.tool
def set_timer(minutes: int) -> str:
    """Start a timer."""
    return f"timer of {minutes} minutes started"


@toolwire.tool
def play_music(artist: str) -> str:
    """Play music."""
    return f"now playing {artist}"


TOOLS = toolwire.Toolbox(get_weather, set_timer, play_music)
Values = tuple[str | int, ...]
# for each tool: its argument, templates to train on, values to train on, held-out templates, held-out values
SKILLS: dict[str, tuple[str, tuple[str, ...], Values, tuple[str, ...], Values]] = {
    "get_weather": (
        "city",
        ("What is the weather in {}?", "How is the weather in {} today?", "Will it rain in {}?", "Is it cold in {}?"),
        ("Paris", "Rome", "Berlin", "Tokyo", "Madrid", "Cairo", "Boston", "Vienna", "Delhi", "Oslo", "Lima", "Dublin"),
        ("Do I need an umbrella in {}?", "Tell me the forecast for {}."),
        ("Lisbon", "Chicago", "Prague", "Athens"),
    ),
    "set_timer": (
        "minutes",
        (
            "Set a timer for {} minutes.",
            "Wake me in {} minutes.",
            "Start a {} minute timer.",
            "Remind me in {} minutes.",
        ),
        (2, 3, 5, 8, 10, 12, 15, 18, 20, 30, 45, 60),
        ("Give me {} minutes on the clock.", "Please count down {} minutes."),
        (4, 7, 25, 40),
    ),
    "play_music": (
        "artist",
        ("Play songs by {}.", "I want to hear {}.", "Put on some {}.", "Play {}, please."),
        (
            "Mozart",
            "Adele",
            "Queen",
            "Drake",
            "Bach",
            "Prince",
            "Shakira",
            "Coldplay",
            "Miles Davis",
            "Elvis",
            "Sting",
            "Bjork",
        ),
        ("Let me listen to {}.", "Could you start a {} playlist?"),
        ("Madonna", "Chopin", "Nirvana", "Bob Dylan"),
    ),
}


def make_turns(name: str, template: str, value: str | int) -> Iterator[Message]:
    """Yield a prompt, the call, its result and the answer."""
    argument = SKILLS[name][0]
    call = ToolCall(f"call_{name}_{value}", name, {argument: value})
    result = {"get_weather": f"sunny in {value}", "set_timer": f"timer of {value} minutes started"}.get(
        name, f"now playing {value}"
    )
    yield Message("user", (Text(template.format(value)),))
    yield Message("assistant", (call,))
    yield Message("user", (call.result(result),))
    yield Message("assistant", (Text(f"{result[0].upper()}{result[1:]}."),))


def training_examples(count: int, seed: int) -> Iterator[Example]:
    """Yield conversations of a few prompts, in random order."""
    draw = Random(seed)
    for _ in range(count):
        names = draw.sample([*SKILLS, draw.choice(list(SKILLS))], TURNS)
        messages: list[Message] = []
        for name in names:
            _, templates, values, _, _ = SKILLS[name]
            messages += make_turns(name, draw.choice(templates), draw.choice(values))
        yield make_example(messages, TOOLS.tools)


def held_out_examples() -> Iterator[Example]:
    """Yield single prompts with unseen templates and values."""
    for name, (_, _, _, templates, values) in SKILLS.items():
        for number, value in enumerate(values):
            prompt, answer, *_ = make_turns(name, templates[number % len(templates)], value)
            yield make_example([prompt, answer], TOOLS.tools)


def train(folder: Path, conversations: int, seed: int) -> TuneReport:
    write_examples(folder / "train.jsonl", training_examples(conversations, seed), "openai")
    write_examples(folder / "test.jsonl", held_out_examples(), "openai")
    settings = TuneSettings(
        model="smollm2",
        format=FORMAT,
        rank=16,
        training=TrainSettings(epochs=1, learning_rate=2e-3, batch_tokens=700, seed=seed),
        answer_tokens=40,
        gguf="f16",
    )
    return tune(
        folder / "train.jsonl",
        folder / "run",
        settings,
        test_file=folder / "test.jsonl",
        on_step=lambda step: print(f"\rstep {step.step} of {step.steps}, loss {step.loss:.2f} ", end="", flush=True),
        on_answers=lambda done, total: print(f"\ranswered {done} of {total} held-out prompts", end="", flush=True),
    )


def measured_calls(report: TuneReport) -> tuple[CallQuality, CallQuality]:
    """Return the quality of the calls before and after the training."""
    before, after = report.before.calls, report.after.calls
    assert before is not None
    assert after is not None
    return before, after


def print_table(report: TuneReport) -> None:
    print(f"\n\n{report.rows} conversations, {report.steps} steps; held-out prompts with new templates and values:\n")
    print(f"{'':15}{'before':>10}{'after':>10}")
    for title, name in (("valid calls", "valid"), ("right tool", "right_tool"), ("right calls", "right")):
        counts = [f"{getattr(one, name)} of {one.prompts}" for one in measured_calls(report)]
        print(f"{title:15}{counts[0]:>10}{counts[1]:>10}")


async def ask_through_gateway(folder: Path, prompt: str) -> bool:
    """Start the gateway with the tuned model, run an agent against it, and return whether it called a tool."""
    (folder / "toolwire.toml").write_text(GATEWAY.format(format=FORMAT))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "toolwire", "serve", "--config", "toolwire.toml", "--port", str(port), "--quiet"]
    environment = {**os.environ, "TOOLWIRE_MODELS": str(folder / "run")}
    log = (folder / "gateway.log").open("wb")
    gateway = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        await wait_for(port, gateway)
        model = ModelClient("openai/tuned", base_url=f"http://127.0.0.1:{port}/v1", key="none")
        agent = Agent(model, TOOLS, settings={"temperature": 0.0, "max_tokens": 60})
        answer = await agent.run(prompt)
        print(f"\nthrough the gateway: {prompt}")
        for call, result in zip(answer.calls, answer.results, strict=True):
            print(f"  {call.name}({call.text}) → {result.text}")
        print(f"  {answer.text}")
        return bool(answer.calls)
    finally:
        gateway.terminate()
        gateway.wait()
        log.close()


async def wait_for(port: int, gateway: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        if gateway.poll() is not None:
            raise SystemExit("the gateway did not start; see gateway.log")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        await asyncio.sleep(0.2)
    raise SystemExit("the gateway does not listen")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=36)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the run here, instead of in a temporary folder")
    arguments = parser.parse_args()
    began = time.monotonic()
    with TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = train(folder, arguments.conversations, arguments.seed)
        print_table(report)
        has_called = asyncio.run(ask_through_gateway(folder, "Do I need an umbrella in Lisbon?"))
    print(f"\n{time.monotonic() - began:.0f} s")
    before, after = measured_calls(report)
    return 0 if has_called and after.right > before.right else 1


if __name__ == "__main__":
    sys.exit(main())
