"""Webhooks of runs: the outcome of a segment is posted to a URL, and signed if the worker has a secret.

Each attempt is a workflow of its own in a queue of its own, and a failed one enqueues the next with a delay. So a receiver
that does not answer keeps no run from its end, and no other run from its place in a queue.

The signature follows Standard Webhooks (https://www.standardwebhooks.com): an HMAC of the id, the time and the body.
Redirects are not followed.
"""

from __future__ import annotations

import hmac
import logging
import random
import time
from base64 import b64decode, b64encode
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ..ir.errors import ConfigError, ToolwireError
from ..ir.value import Value
from ..net.http.client import HttpTransport
from .jobs import WEBHOOK_WORKFLOW, Job, SegmentOutcome
from .queues import RunQueues

_log = logging.getLogger("toolwire.durable")

WEBHOOK_QUEUE = "toolwire-webhooks"
_ATTEMPTS = 8  # with the delays below three hours in total, the time of a deployment that went wrong
_FIRST_DELAY, _DELAY_FACTOR = 2.0, 4.0  # seconds
_SECONDS = 10.0  # for one attempt
_PREFIX = "whsec_"  # of the secrets of Standard Webhooks


class WebhookAttempt(Value, frozen=True):
    """An attempt to post a body. `message_id` is the same for all attempts."""

    url: str
    message_id: str
    body: str
    attempt: int = 1


def check_webhook(url: str) -> None:
    """Raise ConfigError if a URL cannot be a webhook. An empty one is none."""
    if url:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(f"a webhook must be an http or https URL, got {url!r}")
        HttpTransport().prepare("POST", url, {}, {})


def enqueue_outcome(runs: RunQueues, job: Job, outcome: SegmentOutcome) -> None:
    """Enqueue the first attempt to post the outcome of a segment."""
    status = "failed" if outcome.state == "error" else outcome.state
    ended = {"status": status, "output": outcome.output, "reason": outcome.reason}
    body = msgspec.json.encode({"run_id": job.run_id, "agent": job.agent, **ended}).decode()
    _enqueue(runs, WebhookAttempt(job.webhook, job.workflow_id, body))


def _enqueue(runs: RunQueues, delivery: WebhookAttempt, delay: float = 0.0) -> None:
    options = {
        "workflow_name": WEBHOOK_WORKFLOW,
        "workflow_id": f"{delivery.message_id}:webhook:{delivery.attempt}",
        "queue_name": WEBHOOK_QUEUE,
    }
    runs.enqueue_workflow(options, msgspec.to_builtins(delivery), delay)


class WebhookSender:
    """Posts webhooks, with the signature of a secret: `whsec_` and base64."""

    def __init__(self, secret: str = "") -> None:
        """Raise ConfigError for a secret in another form."""
        self._key = _decode_secret(secret) if secret else b""
        self._transport = HttpTransport(resends=False)

    async def send(self, delivery: WebhookAttempt) -> str:
        """Post a body, and return why the receiver did not accept it, or an empty text."""
        headers = {"content-type": "application/json", "idempotency-key": delivery.message_id}
        signature = self._sign(delivery, int(time.time())) if self._key else {}
        try:
            async with self._transport.post(
                delivery.url, headers | signature, {}, delivery.body.encode(), _SECONDS
            ) as reply:
                return "" if 200 <= reply.status < 300 else f"status {reply.status}"
        except (ToolwireError, OSError) as error:
            return type(error).__name__  # its message may contain the URL, whose path and query may be secret

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _sign(self, delivery: WebhookAttempt, now: int) -> dict[str, str]:
        content = f"{delivery.message_id}.{now}.{delivery.body}".encode()
        signature = b64encode(hmac.digest(self._key, content, "sha256")).decode()
        return {
            "webhook-id": delivery.message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": f"v1,{signature}",
        }


def enqueue_next_attempt(runs: RunQueues, delivery: WebhookAttempt, reason: str) -> None:
    """Enqueue the attempt after a failed one, or log that the receiver does not get the webhook."""
    host = urlsplit(delivery.url).hostname
    if delivery.attempt == _ATTEMPTS:
        _log.error("webhook %s: %s failed %d times: %s", delivery.message_id, host, _ATTEMPTS, reason)
        return
    _log.warning("webhook %s: %s failed: %s", delivery.message_id, host, reason)
    delay = _FIRST_DELAY * _DELAY_FACTOR ** (delivery.attempt - 1) * random.uniform(0.75, 1.25)
    _enqueue(runs, replace(delivery, attempt=delivery.attempt + 1), delay)


def _decode_secret(secret: str) -> bytes:
    try:
        key = b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not key or not secret.startswith(_PREFIX):
        hint = f"make one: echo {_PREFIX}$(openssl rand -base64 32)"
        raise ConfigError(f"the secret of webhooks must be {_PREFIX} and base64", hint=hint)
    return key
