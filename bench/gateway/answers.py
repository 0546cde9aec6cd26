"""Check the answers of a candidate before it is measured: a gateway that answers something else is not compared."""

import json
from http.client import HTTPConnection, HTTPException

from provider import EVENTS
from server_process import ServerProcess
from workload import JOBS

_CALLS = [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})]
_ARGUMENTS = {"city": "word" * EVENTS}


def find_wrong_answers(server: ServerProcess) -> dict[str, str]:
    """Return the jobs that a candidate cannot do, with the reasons."""
    wrong = dict(server.candidate.skipped)
    for name in JOBS:
        # the references, which are no gateways, return the answer of the upstream
        if name not in wrong and server.candidate.title and (reason := _wrong_answer(server, name)):
            wrong[name] = reason
    return wrong


def _wrong_answer(server: ServerProcess, name: str) -> str | None:
    job = JOBS[name]
    path, body, headers = server.request_of(job)
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, body, {**headers, "content-type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        if response.status != 200:
            return f"returns status {response.status}: {text[:120]}"
        if job.stream:
            return None if _streamed_arguments(text) == _ARGUMENTS else "returns other arguments in a stream"
        message = json.loads(text)["choices"][0]["message"]
        functions = [call["function"] for call in message["tool_calls"]]
        calls = [(function["name"], json.loads(function["arguments"])) for function in functions]
        return None if calls == _CALLS else "returns other calls"
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        return f"returns no Chat answer: {error!r}"
    finally:
        connection.close()


def _streamed_arguments(text: str) -> object:
    lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
    chunks = [json.loads(line) for line in lines if line.strip() != "[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    return json.loads("".join(call["function"].get("arguments") or "" for call in calls))
