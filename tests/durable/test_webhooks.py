"""Webhooks: a run ends without its receiver, failed attempts are repeated, and bodies are signed."""

import asyncio
import json
import logging
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sqlalchemy.exc import OperationalError

from toolwire import Agent
from toolwire.durable import RunWorker
from toolwire.durable.jobs import SegmentOutcome
from toolwire.durable.webhooks import WebhookAttempt, WebhookSender, enqueue_next_attempt
from toolwire.ir.errors import ConfigError, StoreError
from toolwire.testing import ScriptedModel
from waiting import SAFETY, wait_until

SECRET = "whsec_plJ3nmyCDGBKInavdOK15jsl"
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@contextmanager
def receiver(statuses, may_answer=None):
    """Serve a receiver that answers with these statuses, the last one repeatedly; yield its URL and its requests."""
    received = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((dict(self.headers), body.decode()))
            if may_answer is not None:
                may_answer.wait(SAFETY)
            self.send_response(statuses[min(len(received), len(statuses)) - 1])
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", received
    server.shutdown()
    server.server_close()


def test_end_of_a_run_is_posted_again_after_a_failure(runs, start_worker):
    with receiver([500, 302, 200]) as (url, received):
        run_id = runs.enqueue("notes", "Note.", webhook=url)
        start_worker()
        assert runs.wait(run_id, SAFETY).status == "done"
        wait_until(lambda: len(received) == 3, 0.1)  # a redirect is not followed
    ended = {"run_id": run_id, "agent": "notes", "status": "done", "output": "Done.", "reason": ""}
    assert [(headers["idempotency-key"], json.loads(body)) for headers, body in received] == [
        (f"{run_id}:1", ended)
    ] * 3


def test_reason_with_a_lone_surrogate_is_posted(runs, start_worker, tmp_path):
    (tmp_path / "failure").write_text("surrogate")
    with receiver([200]) as (url, received):
        run_id = runs.enqueue("notes", "Note.", webhook=url)
        start_worker()
        report = runs.wait(run_id, SAFETY)
        assert (report.status, report.reason) == ("failed", "ValueError: no model a?ü")
        wait_until(lambda: received, 0.1)
    assert json.loads(received[0][1])["reason"] == report.reason


def test_lone_surrogates_of_an_outcome_are_replaced(url):
    outcome = SegmentOutcome("done", {"a\ud800": ["\udc00ü\U0001f600", 1.5, None, "\0"]})
    assert outcome.without_surrogates() == SegmentOutcome("done", {"a?": ["?ü\U0001f600", 1.5, None, "\0"]})


@pytest.mark.parametrize("error", [ConfigError("no"), ValueError("no"), TypeError("no"), RecursionError("no")])
def test_permanent_error_is_not_retried(runs, caplog, error):
    attempts = []

    def fail():
        attempts.append(1)
        raise error

    worker = RunWorker(runs, [Agent(ScriptedModel([]), name="a", store=runs.store)])
    reason = asyncio.run(worker._until_reached("run-1", fail))
    assert (reason, len(attempts)) == (f"{type(error).__name__}: no", 1)
    assert "run run-1 cannot be enqueued" in caplog.text


@pytest.mark.parametrize(
    "error", [StoreError("away"), ConnectionResetError("away"), OperationalError("", {}, OSError())]
)
def test_error_of_the_database_is_retried(runs, error):
    attempts = []

    def fail_once():
        attempts.append(1)
        if len(attempts) == 1:
            raise error

    worker = RunWorker(runs, [Agent(ScriptedModel([]), name="a", store=runs.store)], poll=0.001)
    assert asyncio.run(worker._until_reached("run-1", fail_once)) == ""
    assert len(attempts) == 2


def test_receiver_that_does_not_answer_delays_no_run(runs, start_worker):
    runs.configure_queue(worker_concurrency=1)
    may_answer = threading.Event()
    with receiver([200], may_answer) as (url, received):
        first, second = (runs.enqueue("notes", "Note.", webhook=url) for _ in range(2))
        start_worker(approves=True)
        assert {runs.wait(run_id, SAFETY).status for run_id in (first, second)} == {"waiting"}
        wait_until(lambda: received, 0.05)
        may_answer.set()


def test_signature_is_that_of_standard_webhooks(url):
    """The expected signature is of the package standardwebhooks 1.1.0."""
    delivery = WebhookAttempt("http://127.0.0.1/", "run-1:1", '{"run_id":"run-1"}')
    assert WebhookSender(SECRET)._sign(delivery, 1_731_705_121) == {
        "webhook-id": "run-1:1",
        "webhook-timestamp": "1731705121",
        "webhook-signature": "v1,ydHAX8GueHoEAAyFZx6dAeHVDCeEY2BQDCEIObWgDDY=",
    }
    with receiver([200]) as (place, received):
        assert asyncio.run(WebhookSender(SECRET).send(WebhookAttempt(place, "run-1:1", "{}"))) == ""
        assert asyncio.run(WebhookSender().send(WebhookAttempt(place, "run-1:1", "{}"))) == ""
    assert ["webhook-signature" in headers for headers, _ in received] == [True, False]


@pytest.mark.parametrize("secret", ["plJ3nmyCDGBKInavdOK15jsl", "whsec_", "whsec_not base64"])
def test_invalid_secret_is_refused(url, secret):
    with pytest.raises(ConfigError, match="must be whsec_ and base64") as caught:
        WebhookSender(secret)
    assert secret not in str(caught.value) or secret == "whsec_"


@pytest.mark.parametrize("webhook", ["ftp://example.com/", "https://", "http://a b/"])
def test_invalid_webhook_is_refused(runs, webhook):
    for enqueue in (
        runs.enqueue,
        lambda *_, **options: runs.schedule("often", "notes", "Note.", "* * * * *", **options),
    ):
        with pytest.raises(ConfigError):
            enqueue("notes", "Note.", webhook=webhook)


def test_last_attempt_is_logged_without_the_secrets_of_the_url(runs, caplog):
    delivery = WebhookAttempt("https://hooks.example/t0ken?key=s3cret", "run-1:1", "{}", attempt=7)
    with caplog.at_level(logging.WARNING, "toolwire.durable"):
        enqueue_next_attempt(runs, delivery, "status 500")
        (eighth,) = runs.client.list_workflows(workflow_id_prefix="run-1:1:webhook")
        assert eighth.status == "DELAYED"
        enqueue_next_attempt(runs, WebhookAttempt(**eighth.input["args"][0]), "status 500")
    assert len(runs.client.list_workflows(workflow_id_prefix="run-1:1:webhook")) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert "hooks.example failed 8 times: status 500" in caplog.text
    assert "t0ken" not in caplog.text
    assert "s3cret" not in caplog.text
