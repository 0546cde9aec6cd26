"""Fine-tuning jobs at providers: from a file to results, errors, and continuation after a kill at every point."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolwire.ir.errors import ConfigError, EncodeError
from toolwire.ir.parts import Text, ToolCall
from toolwire.ir.request import Message
from toolwire.ir.response import UpstreamError
from toolwire.ir.tools import Tool
from toolwire.learn import make_example, write_examples
from toolwire.learn.run_folder import RunFolder
from toolwire.learn.submit import submission as submission_module
from toolwire.learn.submit.service_api import RefusedTrainingFile
from toolwire.learn.submit.services import open_tuning_service
from toolwire.learn.submit.submission import (
    CostExceeded,
    Submission,
    SubmitSettings,
    TuningJobFailed,
    UnknownCreation,
    Waiting,
    open_settings,
)
from tuning_services import KEY, MistralMock, OpenAIMock, TogetherMock, VertexMock, Wire

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("get_weather", "Weather of a city.", CITY)
ENVIRONMENT = {
    "OPENAI_API_KEY": KEY,
    "MISTRAL_API_KEY": KEY,
    "TOGETHER_API_KEY": KEY,
    "CLOUDSDK_AUTH_ACCESS_TOKEN": KEY,
    "GOOGLE_CLOUD_PROJECT": "demo",
}
MODELS = {
    "openai": "gpt-4.1-mini-2025-04-14",
    "mistral": "ministral-3b-latest",
    "together": "Qwen/Qwen3-8B",
    "vertex": "gemini-2.5-flash",
}
MOCKS = {"openai": OpenAIMock, "mistral": MistralMock, "together": TogetherMock, "vertex": VertexMock}
SERVICES = sorted(MOCKS)
every_service = pytest.mark.parametrize("name", SERVICES)


class MockVertex(VertexMock):
    """Cloud Storage and Vertex AI at one address."""

    def answer(self, call):
        if call.path.startswith(("/storage/", "/upload/")):
            call.path = self.prefix + call.path
        return super().answer(call)


MOCKS["vertex"] = MockVertex


class Clock:
    """Time that passes only in sleeps."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def examples(count=12):
    for number in range(count):
        call = ToolCall(f"call_{number}", "get_weather", {"city": f"City {number}"})
        yield make_example(
            [
                Message("system", (Text("Be brief."),)),
                Message("user", (Text(f"Weather in city {number}?"),)),
                Message("assistant", (call,)),
                Message("user", (call.result("22 degrees"),)),
                Message("assistant", (Text("22 degrees."),)),
            ],
            [WEATHER],
        )


@pytest.fixture
def data(tmp_path):
    write_examples(tmp_path / "data.jsonl", examples(), "toolwire")
    return tmp_path / "data.jsonl"


def settings_of(name, **changed):
    bucket = "gs://data/tuning" if name == "vertex" else None
    return SubmitSettings(to=name, model=MODELS[name], bucket=bucket, **changed)


class Run:
    """One submission in a folder, whose command can be given again."""

    def __init__(self, tmp_path, data, name, mock=None, **settings):
        self.folder, self.data, self.name = tmp_path / "run", data, name
        self.mock = mock or MOCKS[name]()
        self.settings = settings_of(name, **settings)
        self.clock = Clock()
        self.questions = []
        self.answer = True
        self.lines = []

    def confirm(self, question):
        self.questions.append(question)
        return self.answer

    async def _act(self, action, around=None, **options):
        waiting = Waiting(sleep=self.clock.sleep, clock=self.clock, **options)
        async with open_tuning_service(
            self.settings, environment=ENVIRONMENT, transport=Wire(self.mock, around), sleep=self.clock.sleep
        ) as service:
            if (self.folder / "manifest.json").is_file():
                folder = RunFolder.open(self.folder)
                submission = Submission(folder, open_settings(folder), service, waiting)
            else:
                submission = Submission.create(self.folder, self.data, self.settings, service, waiting=waiting)
            return await action(submission)

    def go(self, *, around=None, is_watching=True, **options):
        """Start the run, or continue it."""
        return asyncio.run(
            self._act(
                lambda one: one.run(confirm=self.confirm, on_status=self.lines.append, is_watching=is_watching),
                around,
                **options,
            )
        )

    def cancel(self):
        return asyncio.run(self._act(lambda one: one.cancel()))

    def state(self):
        return json.loads((self.folder / "state.json").read_text())


@every_service
def test_job_is_created_watched_and_fetched(tmp_path, data, name):
    run = Run(tmp_path, data, name)
    report = run.go()
    assert report.job.phase == "done"
    assert report.job.trained_tokens == 900
    assert report.job.model
    assert report.results["checkpoints"]
    assert len(run.mock.jobs) == 1
    stored = json.loads((run.folder / "result.json").read_text())
    assert stored["job"]["model"] == report.job.model
    for file in report.results.get("files", ()):
        assert (run.folder / file).stat().st_size
    assert KEY not in "".join(path.read_text() for path in run.folder.iterdir())


@every_service
def test_nothing_is_sent_before_the_cost_is_confirmed(tmp_path, data, name):
    run = Run(tmp_path, data, name)
    run.answer = False
    with pytest.raises(CostExceeded):
        run.go()
    assert run.mock.calls == []
    assert len(run.questions) == 1
    run.answer = True
    assert run.go().job.phase == "done"


def test_cost_is_tokens_times_epochs_times_price(tmp_path, data):
    run = Run(tmp_path, data, "openai", epochs=4)
    run.go()
    [question] = run.questions
    tokens = question.files[0].tokens
    assert question.estimate.tokens == 4 * tokens
    assert question.estimate.usd == pytest.approx(4 * tokens * 5 / 1_000_000)
    assert "5 USD per million tokens, https://" in question.estimate.source


@pytest.mark.parametrize(("name", "usd"), [("mistral", 4.5), ("together", 1.25)])
def test_price_of_the_service_is_confirmed_before_the_job_runs(tmp_path, data, name, usd):
    run = Run(tmp_path, data, name)
    run.go()
    first, second = run.questions
    assert first.is_quoted_later and first.estimate.usd is None
    assert second.is_quote and second.estimate.usd == usd


@pytest.mark.parametrize("name", ["mistral", "together"])
def test_job_whose_price_exceeds_the_limit_does_not_run(tmp_path, data, name):
    run = Run(tmp_path, data, name, max_cost=1.0)
    with pytest.raises(CostExceeded, match=r"the limit is 1\.00 USD"):
        run.go()
    assert not any(job.get("is_started") for job in run.mock.jobs.values())
    assert name == "mistral" or not run.mock.jobs


def test_estimate_above_the_limit_sends_nothing(tmp_path, data):
    run = Run(tmp_path, data, "openai", max_cost=0.0001)
    with pytest.raises(CostExceeded):
        run.go()
    assert run.mock.calls == []


def test_job_above_the_limit_of_the_account_is_not_created(tmp_path, data):
    run = Run(tmp_path, data, "together")
    run.mock.limit = 1.0
    with pytest.raises(CostExceeded, match=r"your limit is 1.0 USD"):
        run.go()
    assert not run.mock.jobs


class Killed(BaseException):
    """The end of the process."""


@every_service
def test_kill_at_any_point_never_leads_to_a_second_job(tmp_path, data, name, monkeypatch):
    """Before and after every request and every write: the same command continues, with one job and the same result."""
    write = submission_module.Submission._write_state
    points = []

    def run_until(number, folder):
        run = Run(folder, data, name)
        passed = iter(range(10_000))

        def step(label):
            if number is None:
                points.append(label)
            elif next(passed) == number:
                raise Killed(label)

        def written(self, state):
            step("before a write")
            found = write(self, state)
            step("after a write")
            return found

        monkeypatch.setattr(submission_module.Submission, "_write_state", written)
        try:
            run.go(around=step)
        except Killed:
            assert number is not None
            monkeypatch.setattr(submission_module.Submission, "_write_state", write)
            run.go()
        else:
            assert number is None
        return run

    run_until(None, tmp_path)
    assert len(points) > 20
    for number in range(len(points)):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = run_until(number, folder)
        assert len(run.mock.jobs) == 1, points[number]
        result = json.loads((run.folder / "result.json").read_text())
        assert result["job"]["phase"] == "done", points[number]
        uploaded = [content for _, content in run.mock.files.values() if content is not None]
        assert len(uploaded) == 1, points[number]


CREATE = {
    "openai": r"POST .*/fine_tuning/jobs",
    "mistral": r"POST .*/fine_tuning/jobs",
    "together": r"POST .*/fine-tunes",
    "vertex": r"POST .*/tuningJobs",
}
UPLOAD = {
    "openai": r"POST .*/files",
    "mistral": r"POST .*/files",
    "together": r"PUT .*",
    "vertex": r"POST .*/upload/.*",
}
SERVER_ERROR = {"error": {"message": "The server had an error"}}


def creations(run):
    import re

    return sum(bool(re.fullmatch(CREATE[run.name], name)) for name in run.mock.names())


@every_service
@pytest.mark.parametrize("fault", ["500", "503", "408", "cut"])
def test_created_job_whose_answer_was_lost_is_found(tmp_path, data, name, fault):
    run = Run(tmp_path, data, name)
    if fault == "cut":
        run.mock.drop(CREATE[name], after=True)
    else:
        run.mock.fail(CREATE[name], int(fault), SERVER_ERROR, after=True)
    assert run.go().job.phase == "done"
    assert len(run.mock.jobs) == 1
    assert creations(run) == 1


@every_service
@pytest.mark.parametrize("fault", ["500", "cut"])
def test_failed_creation_is_repeated_only_by_the_next_command(tmp_path, data, name, fault):
    run = Run(tmp_path, data, name)
    if fault == "cut":
        run.mock.drop(CREATE[name])
    else:
        run.mock.fail(CREATE[name], 500, SERVER_ERROR)
    with pytest.raises(UnknownCreation) as caught:
        run.go()
    assert "looks again" in caught.value.hint
    assert creations(run) == 1
    assert sum(run.clock.slept) >= 60  # it has looked as long as a job may need to become visible
    assert run.go().job.phase == "done"
    assert len(run.mock.jobs) == 1
    assert creations(run) == 2


def test_job_that_becomes_visible_late_is_not_created_again(tmp_path, data):
    run = Run(tmp_path, data, "openai")
    run.mock.fail(CREATE["openai"], 500, SERVER_ERROR, after=True)
    shown = run.mock.list_jobs
    run.mock.list_jobs = lambda call: shown(call) if run.clock.now > 1030 else {"data": [], "has_more": False}
    assert run.go().job.phase == "done"
    assert len(run.mock.jobs) == 1
    assert 30 < sum(run.clock.slept[:7]) <= 60


def test_command_given_again_at_once_waits_for_the_earlier_attempt(tmp_path, data):
    run = Run(tmp_path, data, "openai")

    def kill(label):
        if label == "after POST /v1/fine_tuning/jobs":
            raise Killed

    with pytest.raises(Killed):
        run.go(around=kill)
    shown, begun = run.mock.list_jobs, run.clock.now
    run.mock.list_jobs = lambda call: shown(call) if run.clock.now > begun + 20 else {"data": [], "has_more": False}
    assert run.go().job.phase == "done"
    assert len(run.mock.jobs) == 1


def test_job_of_a_request_that_timed_out_is_waited_for_from_its_end(tmp_path, data):
    """A request may take as long as the service needs to show a job; the service may process it until then."""
    run = Run(tmp_path, data, "openai")
    shown, created = run.mock.list_jobs, []

    def time_out(label):
        if label == "after POST /v1/fine_tuning/jobs":
            run.clock.now += 60
            created.append(run.clock.now)
            raise TimeoutError

    run.mock.list_jobs = lambda call: (
        shown(call) if created and run.clock.now > created[0] + 40 else {"data": [], "has_more": False}
    )
    assert run.go(around=time_out).job.phase == "done"
    assert creations(run) == 1


def test_killed_request_is_waited_for_as_long_as_it_may_have_taken(tmp_path, data):
    run = Run(tmp_path, data, "openai")

    def kill(label):
        if label == "after POST /v1/fine_tuning/jobs":
            raise Killed

    with pytest.raises(Killed):
        run.go(around=kill)
    shown, begun = run.mock.list_jobs, run.clock.now
    run.mock.list_jobs = lambda call: shown(call) if run.clock.now > begun + 100 else {"data": [], "has_more": False}
    assert run.go().job.phase == "done"
    assert creations(run) == 1


def test_two_commands_do_not_work_in_one_folder(tmp_path, data):
    run = Run(tmp_path, data, "openai")

    def confirm(question):
        for command in (run.go, run.cancel):
            with ThreadPoolExecutor() as threads, pytest.raises(ConfigError, match="another command works in"):
                threads.submit(command).result()
        run.questions.append(question)
        return True

    run.confirm = confirm
    assert run.go().job.phase == "done"
    assert len(run.questions) == 1
    assert creations(run) == 1


def test_job_that_is_watched_can_be_cancelled(tmp_path, data):
    run = Run(tmp_path, data, "openai")
    run.go(is_watching=False)
    run.mock.is_frozen = True
    with RunFolder.open(run.folder).locked():
        assert run.cancel().job.phase == "cancelled"


@pytest.mark.parametrize("name", ["mistral", "vertex"])
def test_unknown_cost_with_a_limit_is_refused(tmp_path, data, name):
    run = Run(tmp_path, data, name, max_cost=100.0)
    run.mock.currency = "EUR"  # of Mistral
    with pytest.raises(CostExceeded, match="the cost in USD is unknown"):
        run.go()
    assert not any(job.get("is_started") for job in run.mock.jobs.values())
    assert name == "mistral" or not run.mock.jobs


@every_service
def test_rate_limit_of_a_creation_is_waited_for(tmp_path, data, name):
    run = Run(tmp_path, data, name)
    run.mock.fail(CREATE[name], 429, {"error": {"message": "slow down"}}, {"retry-after": "7"})
    assert run.go().job.phase == "done"
    assert 7 in run.clock.slept
    assert len(run.mock.jobs) == 1


@every_service
@pytest.mark.parametrize("after", [False, True])
def test_cut_upload_is_repeated_unless_the_service_has_the_file(tmp_path, data, name, after):
    run = Run(tmp_path, data, name)
    run.mock.drop(UPLOAD[name], after=after)
    assert run.go().job.phase == "done"
    assert sum(content is not None for _, content in run.mock.files.values()) == 1


@every_service
def test_polls_survive_errors_of_the_service(tmp_path, data, name):
    run = Run(tmp_path, data, name)
    report = run.go(is_watching=False)
    assert not report.job.is_final
    run.mock.fail(r"GET .*(jobs|tunes|Jobs)/[^/]+", 502, times=9)
    assert run.go().job.phase == "done"


FAILURES = {
    "openai": (
        {"code": "invalid_training_file", "message": "Line 3 has no messages", "param": "training_file"},
        "Line 3 has no messages",
    ),
    "mistral": ({"error": "Line 3 has no messages"}, "Line 3 has no messages"),
    "together": ("Line 3 has no messages", "Line 3 has no messages"),
    "vertex": ({"code": 3, "message": "Dataset line 3 has no contents"}, "Dataset line 3 has no contents"),
}


@every_service
def test_reason_of_a_job_that_fails_in_its_validation_is_shown(tmp_path, data, name):
    run = Run(tmp_path, data, name)
    run.mock.failure, reason = FAILURES[name]
    with pytest.raises(TuningJobFailed if name == "together" else RefusedTrainingFile, match=reason):
        run.go()
    assert json.loads((run.folder / "result.json").read_text())["job"]["phase"] == "failed"


def test_file_that_together_refuses_creates_no_job(tmp_path, data):
    run = Run(tmp_path, data, "together")
    run.mock.is_invalid = True
    with pytest.raises(RefusedTrainingFile, match="line 3: no messages"):
        run.go()
    assert not run.mock.jobs


@pytest.mark.parametrize("name", ["openai", "mistral"])
def test_refused_upload_has_the_reason_of_the_service(tmp_path, data, name):
    run = Run(tmp_path, data, name)
    body = {"detail": [{"loc": ["body", "file"], "msg": "Invalid file format"}]}
    run.mock.fail(UPLOAD[name], 422, body if name == "mistral" else {"error": {"message": "Invalid file format"}})
    with pytest.raises(RefusedTrainingFile, match="Invalid file format"):
        run.go()
    assert not run.mock.jobs


@every_service
def test_refused_creation_is_an_error_and_can_be_repeated(tmp_path, data, name):
    run = Run(tmp_path, data, name)
    run.mock.fail(CREATE[name], 400, {"error": {"message": "model not found"}})
    with pytest.raises(UpstreamError, match="model not found"):
        run.go()
    assert "attempted_at" not in run.state()
    assert run.go().job.phase == "done"


@every_service
def test_cancelled_job_ends_the_run(tmp_path, data, name):
    run = Run(tmp_path, data, name)
    run.go(is_watching=False)
    run.mock.is_frozen = True
    assert run.cancel().job.phase == "cancelled"
    with pytest.raises(TuningJobFailed, match="cancelled"):
        run.go()
    assert len(run.mock.jobs) == 1


def test_job_whose_creation_was_not_answered_can_be_cancelled(tmp_path, data):
    run = Run(tmp_path, data, "openai")

    def kill(label):
        if label == "after POST /v1/fine_tuning/jobs":
            raise Killed

    with pytest.raises(Killed):
        run.go(around=kill)
    assert run.cancel().job.phase == "cancelled"


def test_run_without_a_job_cannot_be_cancelled(tmp_path, data):
    run = Run(tmp_path, data, "openai")
    run.answer = False
    with pytest.raises(CostExceeded):
        run.go()
    with pytest.raises(ConfigError, match="no job to cancel"):
        run.cancel()


def test_watching_ends_after_its_time_and_the_job_goes_on(tmp_path, data):
    run = Run(tmp_path, data, "openai")
    run.mock.is_frozen = True
    with pytest.raises(TimeoutError, match="still runs"):
        run.go(watch_seconds=300)
    assert sum(run.clock.slept) >= 300


def test_wrong_key_names_the_error_of_the_service_without_the_key(tmp_path, data):
    run = Run(tmp_path, data, "openai")
    run.mock.fail(r".*", 401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, times=99)
    with pytest.raises(UpstreamError) as caught:
        run.go()
    assert "Incorrect API key" in str(caught.value)
    assert KEY not in str(caught.value)


# Data


def rows_of(run):
    return [json.loads(line) for line in (run.folder / "train.jsonl").read_text().splitlines()]


def test_uploaded_file_is_the_one_in_the_folder(tmp_path, data):
    run = Run(tmp_path, data, "openai")
    run.go()
    [(row, content)] = run.mock.files.values()
    assert content == (run.folder / "train.jsonl").read_bytes()
    assert row["filename"] == f"toolwire-{run.state()['tag']}-train.jsonl"


def test_call_ids_have_the_form_of_mistral(tmp_path, data):
    run = Run(tmp_path, data, "mistral")
    run.go()
    for row in rows_of(run):
        [call] = row["messages"][2]["tool_calls"]
        assert len(call["id"]) == 9 and call["id"].isalnum()
        assert row["messages"][3]["tool_call_id"] == call["id"]


def test_vertex_rows_are_contents_with_openapi_parameters(tmp_path, data):
    from google.genai import types

    run = Run(tmp_path, data, "vertex")
    run.go()
    for row in rows_of(run):
        assert set(row) == {"systemInstruction", "contents", "tools"}
        for content in row["contents"]:
            types.Content.model_validate(content)
        tool = types.Tool.model_validate(row["tools"][0])
        assert tool.function_declarations[0].parameters.properties["city"].type == "STRING"
        assert row["contents"][1]["parts"] == [
            {
                "functionCall": {
                    "name": "get_weather",
                    "args": {"city": row["contents"][1]["parts"][0]["functionCall"]["args"]["city"]},
                }
            }
        ]


def test_too_few_examples_are_refused_and_the_folder_can_be_used_again(tmp_path, data):
    write_examples(data, examples(9), "openai")
    run = Run(tmp_path, data, "openai")
    with pytest.raises(ConfigError, match="9 examples, and the service needs 10"):
        run.go()
    assert run.mock.calls == []
    write_examples(data, examples(10), "openai")
    assert run.go().job.phase == "done"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tools": [Tool("get weather", "x", CITY)]}, "'get weather' is not accepted"),
        ({"tools": []}, "get_weather is called and not declared"),
        (
            {"tools": [WEATHER, *(Tool(f"tool_{n}", "x", CITY) for n in range(128))]},
            "129 tools exceed the limit of 128",
        ),
    ],
)
def test_example_that_the_service_would_reject_is_refused_with_its_row(tmp_path, data, change, message):
    good = list(examples())
    bad = make_example(good[3].messages, change["tools"])
    write_examples(data, [*good[:3], bad, *good[4:]], "toolwire")
    run = Run(tmp_path, data, "openai")
    with pytest.raises(EncodeError, match=message) as caught:
        run.go()
    assert "data.jsonl:4" in str(caught.value)
    assert run.mock.calls == []


def test_long_example_is_refused(tmp_path, data):
    good = list(examples())
    long = make_example([*good[0].messages[:4], Message("assistant", (Text("word " * 70_000),))], [WEATHER])
    write_examples(data, [long, *good], "toolwire")
    with pytest.raises(EncodeError, match="exceed the limit of 65536 for one example"):
        Run(tmp_path, data, "openai").go()


def test_changed_input_is_refused_if_it_was_not_converted_yet(tmp_path, data):
    run = Run(tmp_path, data, "openai")
    run.answer = False
    with pytest.raises(CostExceeded):
        run.go()
    (run.folder / "state.json").unlink()
    write_examples(data, examples(13), "openai")
    with pytest.raises(ConfigError, match="has changed"):
        run.go()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("openai", {"suffix": "x" * 65}, "65 characters"),
        ("mistral", {"suffix": "x" * 19}, "19 characters"),
        ("mistral", {"seed": 1}, "no seed"),
        ("together", {"suffix": "x" * 40}, "too long"),
        ("vertex", {"seed": 1}, "no seed"),
    ],
)
def test_option_that_the_service_does_not_have_is_refused(tmp_path, data, name, settings, message):
    with pytest.raises(ConfigError, match=message):
        Run(tmp_path, data, name, **settings).go()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"to": "anthropic"}, "unknown service"),
        ({"to": "vertex", "bucket": "data"}, "needs a bucket"),
        ({"base_url": "https://example.com/v1"}, "is not sent to another server"),
        ({"base_url": "http://example.com/v1"}, "unencrypted"),
    ],
)
def test_wrong_settings_are_refused(changed, message):
    async def use():
        async with open_tuning_service(
            SubmitSettings(**{"to": "openai", "model": "m", **changed}), environment=ENVIRONMENT
        ):
            pass

    with pytest.raises(ConfigError, match=message):
        asyncio.run(use())


def open_with(environment, settings=None, **options):
    async def use():
        given = settings or settings_of("openai")
        async with open_tuning_service(given, environment=environment, **options) as service:
            return service.address

    return asyncio.run(use())


def test_key_of_openai_is_not_sent_to_the_address_of_a_variable():
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://gateway.example/v1"}
    with pytest.raises(ConfigError, match="not sent to another server") as caught:
        open_with(environment)
    assert "unset OPENAI_BASE_URL" in caught.value.hint
    assert open_with(environment, key_variable="OPENAI_API_KEY") == "https://gateway.example/v1"
    environment["OPENAI_BASE_URL"] = "https://api.openai.com/v1/"
    assert open_with(environment) == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("openai", {"OPENAI_BASE_URL": "https://api.openai.com/v2"}),
        ("vertex", {"GOOGLE_CLOUD_PROJECT": "other"}),
        ("vertex", {"GOOGLE_CLOUD_LOCATION": "europe-west4"}),
    ],
)
def test_run_does_not_continue_at_another_address(tmp_path, data, monkeypatch, name, changed):
    run = Run(tmp_path, data, name)
    run.go(is_watching=False)
    calls = len(run.mock.calls)
    for variable, value in changed.items():
        monkeypatch.setitem(ENVIRONMENT, variable, value)
    for command in (run.go, run.cancel):
        with pytest.raises(ConfigError, match="the run began at https://"):
            command()
    assert len(run.mock.calls) == calls


def test_missing_key_names_its_variable():
    async def use():
        async with open_tuning_service(settings_of("openai"), environment={}):
            pass

    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        asyncio.run(use())
