"""Subagents, transfers and skills."""

import asyncio
import os

import pytest

import toolwire
from toolwire import Agent, Text, ToolCall, open_store
from toolwire.ir.errors import ConfigError
from toolwire.ir.response import Response, Stop, Usage
from toolwire.net import approve_call
from toolwire.net.agent.discovery import load_skills, skill_tool
from toolwire.run import Budget, CallContext, Policy
from toolwire.testing import ScriptedModel, says
from waiting import SAFETY


@toolwire.tool(effect="read")
async def look_up(topic: str) -> str:
    """Look something up."""
    return f"{topic}: 42"


@toolwire.tool
async def send(text: str) -> str:
    """Send a message."""
    return "sent"


def counted(*parts: object, tokens: int) -> Response:
    said = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    stop = Stop("tool_calls" if any(isinstance(part, ToolCall) for part in said) else "stop")
    return Response(parts=said, stop=stop, usage=Usage(input=tokens, output=0))


def researcher(lines, **options):
    return Agent(ScriptedModel(lines), [look_up], name="researcher", **options)


def asking(*prompts: str) -> Response:
    return counted(*(ToolCall(str(n), "researcher", {"prompt": p}) for n, p in enumerate(prompts)), tokens=10)


def test_answer_of_a_subagent_is_the_result_of_the_call():
    inner = researcher([says(ToolCall("x", "look_up", {"topic": "rain"})), says("It rains 42 days.")])
    outer = Agent(ScriptedModel([asking("How often does it rain?"), says("42 days.")]), [inner.as_tool()])
    answer = outer.run_sync("Rain?")
    assert answer.output == "42 days."
    assert answer.results[0].text == "It rains 42 days."


def test_usage_and_cost_of_subagents_count_in_the_calling_run():
    inner = researcher([counted("one", tokens=100), counted("two", tokens=200)], price=lambda response: 0.25)
    lines = [asking("a", "b"), counted("Done.", tokens=5)]
    outer = Agent(ScriptedModel(lines), [inner.as_tool()], price=lambda response: 1.0)
    answer = outer.run_sync("Go.")
    assert (answer.usage.input, answer.cost) == (315, 2.5)


def test_subagent_has_its_own_budget_and_its_reason_is_readable():
    circling = [says(ToolCall(str(n), "look_up", {"topic": str(n)})) for n in range(9)]
    inner = researcher(circling, budget=Budget(iterations=2))
    outer = Agent(ScriptedModel([asking("Go."), says("It failed.")]), [inner.as_tool()])
    answer = outer.run_sync("Go.")
    assert answer.results[0].is_error
    assert "researcher did not finish: max iterations reached (2)" in answer.results[0].text


def test_subagent_stops_when_the_budget_of_the_calling_run_is_exhausted():
    inner = researcher([counted(ToolCall("x", "look_up", {"topic": "a"}), tokens=1000), says("never")])
    outer = Agent(ScriptedModel([asking("Go."), says("never")]), [inner.as_tool()], budget=Budget(tokens=500))
    answer = outer.run_sync("Go.")
    assert answer.reason == "max tokens reached (500)"
    assert "max tokens reached (500) by the run that started this one" in answer.results[0].text


def test_reading_subagents_run_concurrently_and_their_effect_is_that_of_their_tools():
    meeting = asyncio.Barrier(2)

    @toolwire.tool(effect="read")
    async def meet() -> str:
        await asyncio.wait_for(meeting.wait(), SAFETY)
        return "met"

    def subagent(name):
        return Agent(ScriptedModel([says(ToolCall("m", "meet", {})), says(name)]), [meet], name=name)

    both = says(ToolCall("1", "ann", {"prompt": "Go."}), ToolCall("2", "bob", {"prompt": "Go."}))
    outer = Agent(ScriptedModel([both, says("Done.")]), [subagent("ann").as_tool(), subagent("bob").as_tool()])
    assert [result.text for result in outer.run_sync("Go.").results] == ["ann", "bob"]
    assert Agent(ScriptedModel([]), [look_up, send], name="writer").as_tool().effect == "write"


def test_cancellation_reaches_the_subagents():
    started, cancelled = asyncio.Event(), []

    class Endless(ScriptedModel):
        async def ask(self, request):
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(request.model)
                raise

    def nest(agent, name):
        call = says(ToolCall("1", agent.name, {"prompt": "Go."}))
        return Agent(ScriptedModel([call]), [agent.as_tool(), send], name=name)

    async def run() -> None:
        innermost = Agent(Endless([]), [look_up, send], name="innermost")
        task = asyncio.create_task(nest(nest(innermost, "middle"), "outer").run("Go."))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(run(), SAFETY))
    assert len(cancelled) == 1


def test_policy_of_the_subagent_applies_to_its_calls():
    inner = Agent(
        ScriptedModel([says(ToolCall("x", "send", {"text": "hi"})), says("Not sent.")]),
        [send],
        name="writer",
        policy=Policy(approve=("write",)),
    )
    outer = Agent(ScriptedModel([says(ToolCall("1", "writer", {"prompt": "Go."})), says("Ok.")]), [inner.as_tool()])
    assert outer.run_sync("Go.").results[0].text == "Not sent."
    assert "needs approval" in inner.model.requests[1].messages[-1].parts[0].text


def test_dependencies_reach_the_tools_of_a_subagent():
    @toolwire.tool(effect="read")
    def who(context: toolwire.run.CallContext[str]) -> str:
        return context.deps

    inner = Agent(ScriptedModel([says(ToolCall("w", "who", {})), says("ok")]), [who], name="inner", deps_type=str)
    call = says(ToolCall("1", "inner", {"prompt": "Who?"}))
    Agent(ScriptedModel([call, says("ok")]), [inner.as_tool()], deps_type=str).run_sync("Go.", deps="Ann")
    assert inner.model.requests[1].messages[-1].parts[0].text == "Ann"


def test_subagent_without_a_name_is_refused():
    with pytest.raises(ConfigError, match="needs a name"):
        Agent(ScriptedModel([])).as_tool()


def test_tool_that_returns_an_agent_transfers_the_conversation():
    billing_model = ScriptedModel([says(ToolCall("2", "look_up", {"topic": "invoice"})), says("Your invoice is paid.")])
    billing = Agent(billing_model, [look_up], name="billing", system="You do invoices.", settings={"temperature": 0.1})

    @toolwire.tool(effect="pure")
    def to_billing() -> Agent:
        """Transfer to billing."""
        return billing

    front = Agent(ScriptedModel([says(ToolCall("1", "to_billing", {}))]), [to_billing, send], system="You greet.")
    answer = front.run_sync("Is my invoice paid?")
    assert answer.output == "Your invoice is paid."
    request = billing_model.requests[0]
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "user"]
    assert request.messages[0].parts[0].text == "You do invoices."
    assert [tool.name for tool in request.tools] == ["look_up"]
    assert request.params.temperature == 0.1
    assert answer.results[0].text == "The conversation was transferred to billing."
    assert [call.name for call in answer.calls] == ["to_billing", "look_up"]


def test_transfer_also_works_in_a_stream():
    other = Agent(ScriptedModel([says("Other here.")]), name="other")

    @toolwire.tool(effect="pure")
    def move() -> Agent:
        return other

    front = Agent(ScriptedModel([says(ToolCall("1", "move", {}))]), [move])
    assert list(front.stream_sync("Go."))[-1].output == "Other here."


def test_agent_that_only_the_tool_refers_to_takes_over():
    @toolwire.tool(effect="pure")
    def move() -> Agent:
        return Agent(ScriptedModel([says("New here.")]), name="new")

    front = Agent(ScriptedModel([says(ToolCall("1", "move", {}))]), [move])
    assert front.run_sync("Go.").output == "New here."


def transferring(successor, **options):
    """Return an agent that only transfers to `successor`."""

    @toolwire.tool(effect="pure")
    def move() -> Agent:
        return successor

    return Agent(ScriptedModel([says(ToolCall("1", "move", {}))]), [move], name="front", **options)


@pytest.fixture
def sending():
    """A list of sent texts, and a tool that writes to it."""
    sent = []

    @toolwire.tool(effect="write")
    def post(text: str) -> str:
        """Post a text."""
        sent.append(text)
        return "posted"

    return sent, post


def test_reading_subagent_does_not_write_after_a_transfer(sending):
    sent, post = sending
    model = ScriptedModel([says(ToolCall("p", "post", {"text": "hi"})), says("I could not post.")])
    front = transferring(Agent(model, [post, look_up], name="writer"))
    tool = front.as_tool()
    assert tool.effect == "read"
    outer = Agent(ScriptedModel([says(ToolCall("1", "front", {"prompt": "Go."})), says("End.")]), [tool])
    assert outer.run_sync("Go.").results[0].text == "I could not post."
    assert [offered.name for offered in model.requests[0].tools] == ["look_up"]
    refusal = model.requests[1].messages[-1].parts[0].text
    assert "post is a write tool, but this agent is used as a read tool of another agent" in refusal
    assert not sent


def test_subagent_that_declares_writes_may_write_after_a_transfer(sending):
    sent, post = sending
    writer = Agent(ScriptedModel([says(ToolCall("p", "post", {"text": "hi"})), says("Posted.")]), [post])
    tool = transferring(writer).as_tool(effect="write")
    ask = says(ToolCall("1", "front", {"prompt": "Go."}))
    policy = Policy(approve=("write",))
    refusing = Agent(ScriptedModel([ask, says("No.")]), [tool], policy=policy)
    assert "front is a write tool" in refusing.run_sync("Go.").results[0].text
    allowing = Agent(ScriptedModel([ask, says("End.")]), [tool], policy=policy, approve=lambda step: True)
    assert allowing.run_sync("Go.").results[0].text == "Posted."
    assert sent == ["hi"]


def test_tool_that_appears_later_does_not_make_a_reading_subagent_write(sending):
    sent, post = sending

    class Growing:
        version = 0
        entries = ()

        def live_entries(self):
            return self.entries

    source = Growing()
    inner = Agent(
        ScriptedModel([says(ToolCall("p", "post", {"text": "hi"})), says("No.")]), [look_up, source], name="inner"
    )
    tool = inner.as_tool()
    source.entries, source.version = (toolwire.run.Entry(post, post.function),), 1
    Agent(ScriptedModel([says(ToolCall("1", "inner", {"prompt": "Go."})), says("End.")]), [tool]).run_sync("Go.")
    assert not sent


def test_effect_limit_of_a_subagent_survives_its_suspension(sending):
    sent, post = sending
    store = open_store("memory:")
    lines = [says(ToolCall("l", "look_up", {"topic": "a"})), says(ToolCall("p", "post", {"text": "hi"})), says("End.")]
    inner = Agent(
        ScriptedModel(lines),
        [look_up, post],
        name="inner",
        store=store,
        policy=Policy(approve=("read",)),
        approve="suspend",
    )
    ask = says(ToolCall("1", "inner", {"prompt": "Go."}))
    (waiting,) = Agent(ScriptedModel([ask]), [inner.as_tool(effect="read")]).run_sync("Go.").pending
    approve_call(store, waiting.state["run_id"], "l")
    answer = inner.resume_sync(waiting.state["run_id"])
    assert "post is a write tool, but this agent is used as a read tool" in answer.results[1].text
    assert not sent


def test_transfer_outside_a_subagent_is_not_limited(sending):
    sent, post = sending
    writer = Agent(ScriptedModel([says(ToolCall("p", "post", {"text": "hi"})), says("Posted.")]), [post])
    assert transferring(writer).run_sync("Go.").output == "Posted."
    assert sent == ["hi"]


def test_subagent_cannot_be_a_pure_tool():
    with pytest.raises(ConfigError, match="cannot be a pure tool"):
        researcher([]).as_tool(effect="pure")


@pytest.mark.parametrize("streamed", [False, True])
def test_agent_without_dependencies_does_not_receive_those_of_the_run(streamed):
    seen = []

    @toolwire.tool(effect="read")
    def see(context: CallContext) -> str:
        """See the dependencies."""
        seen.append(context.deps)
        return "seen"

    def asking_to_see(number):
        return says(ToolCall(number, "see", {}))

    last = Agent(ScriptedModel([asking_to_see("c"), says("End.")]), [see], deps_type=str)

    @toolwire.tool(effect="pure")
    def to_last() -> Agent:
        return last

    second_lines = [asking_to_see("b"), says(ToolCall("2", "to_last", {}))]
    second = Agent(ScriptedModel(second_lines), [see, to_last], name="second")

    @toolwire.tool(effect="pure")
    def to_second() -> Agent:
        return second

    first_lines = [asking_to_see("a"), says(ToolCall("1", "to_second", {}))]
    first = Agent(ScriptedModel(first_lines), [see, to_second], deps_type=str)
    answer = list(first.stream_sync("Go.", deps="secret"))[-1] if streamed else first.run_sync("Go.", deps="secret")
    assert answer.output == "End."
    assert seen == ["secret", None, "secret"]


def write_skill(folder, name, text):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def test_skills_are_offered_by_description_and_loaded_on_demand(tmp_path):
    write_skill(
        tmp_path, "refunds.md", "---\nname: refunds\ndescription: How to refund.\n---\nRefund within 14 days.\n"
    )
    write_skill(tmp_path, "reports/SKILL.md", '---\ndescription: "How to write reports"\n---\nSee template.txt.')
    write_skill(tmp_path, "reports/template.txt", "Title, then text.")
    lines = [
        says(
            ToolCall("1", "load_skill", {"name": "refunds"}),
            ToolCall("2", "load_skill", {"name": "reports", "file": "template.txt"}),
            ToolCall("3", "load_skill", {"name": "reports", "file": "../refunds.md"}),
            ToolCall("4", "load_skill", {"name": "other"}),
        ),
        says("Done."),
    ]
    agent = Agent(ScriptedModel(lines), skills=tmp_path)
    description = agent.runner.box.find("load_skill").tool.description
    assert "- refunds: How to refund.\n- reports: How to write reports" in description
    assert [result.text for result in agent.run_sync("Go.").results] == [
        "Refund within 14 days.",
        "Title, then text.",
        "The skill reports has no file '../refunds.md'.",
        "There is no skill 'other'. Skills: refunds, reports.",
    ]


def test_symbolic_link_out_of_a_skill_is_refused(tmp_path):
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    skills = tmp_path / "skills"
    skills.mkdir()
    write_skill(skills, "a/SKILL.md", "---\ndescription: A.\n---\nText.")
    (skills / "a" / "link.txt").symlink_to(tmp_path / "secret.txt")
    model = ScriptedModel([says(ToolCall("1", "load_skill", {"name": "a", "file": "link.txt"})), says("Done.")])
    assert Agent(model, skills=skills).run_sync("Go.").results[0].text == "The skill a has no file 'link.txt'."


@pytest.mark.finding("SE12")
@pytest.mark.parametrize("kind", ["link", "link to a folder", "link within the folder", "pipe", "device"])
def test_skill_that_is_no_regular_file_is_refused_and_never_blocks(tmp_path, kind):
    (tmp_path / "secret.md").write_text("---\ndescription: secret\n---\nsecret", encoding="utf-8")
    skills, other = tmp_path / "skills", tmp_path / "other"
    skills.mkdir()
    write_skill(skills, "b.md", "---\ndescription: B.\n---\nText.")
    if kind == "link":
        (skills / "a.md").symlink_to(tmp_path / "secret.md")
    elif kind == "link to a folder":
        other.mkdir()
        write_skill(other, "SKILL.md", "---\ndescription: secret\n---\nsecret")
        (skills / "a").symlink_to(other)
    elif kind == "link within the folder":
        (skills / "a.md").symlink_to(skills / "b.md")
    elif kind == "pipe":
        os.mkfifo(skills / "a.md")
    else:
        (skills / "a.md").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"symbolic link|not a regular file|cannot read"):
        load_skills(skills)


@pytest.mark.finding("SE12")
@pytest.mark.parametrize("name", ["pipe", "link.txt", "linked/x.txt", "/etc/passwd", "x" * 5000, "."])
def test_file_of_a_skill_that_is_no_regular_file_of_its_own_is_refused(tmp_path, name):
    write_skill(tmp_path, "a/SKILL.md", "---\ndescription: A.\n---\nText.")
    os.mkfifo(tmp_path / "a" / "pipe")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "a" / "link.txt").symlink_to(tmp_path / "a" / "SKILL.md")
    (tmp_path / "a" / "linked").symlink_to(tmp_path / "outside")
    model = ScriptedModel([says(ToolCall("1", "load_skill", {"name": "a", "file": name})), says("Done.")])
    assert "has no file" in Agent(model, skills=tmp_path).run_sync("Go.").results[0].text


@pytest.mark.finding("SE12")
def test_file_of_a_skill_that_becomes_a_link_or_a_pipe_is_refused(tmp_path):
    write_skill(tmp_path, "a.md", "---\ndescription: A.\n---\nText.")
    load_skill = skill_tool(load_skills(tmp_path)).function
    assert load_skill("a") == "Text."
    (tmp_path / "a.md").unlink()
    (tmp_path / "a.md").symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match="cannot read"):
        load_skill("a")
    (tmp_path / "a.md").unlink()
    os.mkfifo(tmp_path / "a.md")
    with pytest.raises(ConfigError, match="not a regular file"):
        load_skill("a")


def test_front_matter_is_read_in_linear_time(tmp_path):
    write_skill(tmp_path, "a.md", "---\ndescription: d\n" + "---x\n" * 40_000 + "---\n" + "---\n" * 10_000 + "Text.")
    model = ScriptedModel([says(ToolCall("1", "load_skill", {"name": "a"})), says("Done.")])
    assert Agent(model, skills=tmp_path).run_sync("Go.").results[0].text.endswith("Text.")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.md": "no front matter"}, "no description"),
        ({"a.md": "---\nname: x\ndescription: d\n---\n", "b.md": "---\nname: x\ndescription: d\n---\n"}, "two skills"),
        ({"a.md": "---\ndescription: d\n---\n" + "x" * 300_000}, "more than"),
    ],
)
def test_unusable_skills_are_refused(tmp_path, files, message):
    for name, text in files.items():
        write_skill(tmp_path, name, text)
    with pytest.raises(ConfigError, match=message):
        Agent(ScriptedModel([]), skills=tmp_path)


def test_missing_skills_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        Agent(ScriptedModel([]), skills=tmp_path / "none")


def test_call_of_a_stored_subagent_is_kept_no_longer_than_the_records_of_its_tools():
    """So the calling run expires first: continued after its subagent's run has expired, it would begin that again."""
    store = open_store("memory:")

    @toolwire.tool(ttl=3600, effect="write")
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    inner = Agent(ScriptedModel([]), [pay], name="inner", store=store)
    outer = Agent(ScriptedModel([]), [inner.as_tool("ask", "Ask.")], name="outer", store=store)
    assert inner.runner.record_ttl == outer.runner.record_ttl == 3600
    shorter = Agent(ScriptedModel([]), [inner.as_tool("ask", "Ask.", ttl=60)], name="shorter", store=store)
    assert shorter.runner.record_ttl == 60
