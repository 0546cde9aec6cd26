"""Keys from a command: one run for many requests, cached until the key expires, and never shown."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.net.model.key_command import KeyCommand, KeyCommandError, _kill
from waiting import until, wait_until

TOKEN = "ya29.secret-token-0123456789"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def python(code, *arguments):
    return (sys.executable, "-c", code, *arguments)


def counting(path, output):
    """A command that prints `output` and appends a line to `path`."""
    return python("import sys; open(sys.argv[1], 'a').write('run\\n'); print(sys.argv[2])", str(path), output)


def runs(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


def failure(command):
    with pytest.raises(KeyCommandError) as caught:
        asyncio.run(command.key())
    return str(caught.value)


def test_text_is_the_key_and_is_cached_for_the_ttl(tmp_path):
    log, clock = tmp_path / "log", Clock()
    command = KeyCommand(counting(log, f"  {TOKEN}"), ttl=60, clock=clock)
    assert asyncio.run(command.key()) == TOKEN
    clock.now += 59
    assert asyncio.run(command.key()) == TOKEN
    assert runs(log) == 1
    clock.now += 2
    asyncio.run(command.key())
    assert runs(log) == 2


@pytest.mark.parametrize(
    ("document", "fresh", "stale"),
    [
        ({"token": TOKEN, "expires_in": 3600}, 3539, 3541),
        ({"access_token": TOKEN, "expires_in": "3600"}, 3539, 3541),
        ({"accessToken": TOKEN, "expires_on": 32503680000, "tenant": "t"}, 3600, None),  # az
        ({"token": TOKEN, "expires_at": "2999-01-01T00:00:00Z"}, 3600, None),
        ({"token": TOKEN, "expires_in": 10}, 7, 9),  # a short one keeps most of its time
        ({"token": TOKEN}, 299, 301),  # no expiry: the ttl
        (
            {"token": TOKEN, "expiresOn": "2026-11-16 04:00:00", "expires_at": "2026-11-16 04:00:00"},
            299,
            301,
        ),  # no zone
    ],
)
def test_json_has_the_key_and_its_expiry(tmp_path, document, fresh, stale):
    log, clock = tmp_path / "log", Clock()
    command = KeyCommand(counting(log, json.dumps(document)), clock=clock)
    assert asyncio.run(command.key()) == TOKEN
    clock.now += fresh
    assert asyncio.run(command.key()) == TOKEN
    assert runs(log) == 1
    if stale is not None:
        clock.now += stale - fresh
        asyncio.run(command.key())
        assert runs(log) == 2


def test_requests_at_the_same_time_share_one_run(tmp_path):
    log = tmp_path / "log"
    command = KeyCommand(counting(log, TOKEN))

    async def main():
        first = asyncio.ensure_future(command.key())
        others = [asyncio.ensure_future(command.key()) for _ in range(20)]
        await asyncio.sleep(0)
        first.cancel()  # the others still get the key
        assert set(await asyncio.gather(*others)) == {TOKEN}

    asyncio.run(main())
    assert runs(log) == 1


def test_dropped_key_is_replaced_once(tmp_path):
    log = tmp_path / "log"
    command = KeyCommand(counting(log, TOKEN))
    key = asyncio.run(command.key())
    command.drop("another key")
    asyncio.run(command.key())
    assert runs(log) == 1
    command.drop(key)
    assert command.latest == key  # to be removed from error messages
    asyncio.run(command.key())
    assert runs(log) == 2


def test_failure_is_not_repeated_at_once(tmp_path):
    log, clock = tmp_path / "log", Clock()
    command = KeyCommand(
        python("import sys; open(sys.argv[1], 'a').write('run\\n'); sys.exit(3)", str(log)), clock=clock
    )
    for _ in range(3):
        assert "failed with status 3" in failure(command)
    assert runs(log) == 1
    clock.now += 6
    failure(command)
    assert runs(log) == 2


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("pass", "printed nothing"),
        ("print('a b')", "characters that are not allowed"),
        ("print('two\\nlines')", "characters that are not allowed"),
        ("print('{\"token\": ')", "printed invalid JSON"),
        ("print('{\"other\": 1}')", "printed no key"),
        ('print(\'{"token": "abc", "expires_in": -1}\')', "has expired"),
        ("print('x' * 100_000)", "more than 65536 bytes"),
        ("import sys; sys.stderr.write('no login\\x1b[31m'); sys.exit(1)", r"failed with status 1: no login\x1b[31m"),
        ("import sys; sys.stderr.write('e' * 100_000); sys.exit(1)", "failed with status 1: eee"),
    ],
)
def test_failures_are_explained(code, words):
    said = failure(KeyCommand(python(code)))
    assert words in said
    assert len(said) < 1000
    assert "run the command in a shell" in said


def test_key_and_arguments_are_not_part_of_errors():
    code = f"import sys; print('{TOKEN}'); sys.stderr.write('bad token {TOKEN}'); sys.exit(1)"
    command = KeyCommand(python(code, "--password=p4ssw0rd"))
    said = failure(command)
    assert "bad token [key]" in said
    for text in (said, repr(command)):
        assert TOKEN not in text
        assert "p4ssw0rd" not in text


def is_dead(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_slow_command_is_killed_with_its_children(tmp_path):
    marker = tmp_path / "pid"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open(sys.argv[1] + '.new', 'w').write(str(child.pid)); os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "time.sleep(600)\n"
    )
    command = KeyCommand(python(code, str(marker)), timeout=3)
    assert "did not end in 3 s" in failure(command)
    if marker.exists():
        wait_until(lambda: is_dead(int(marker.read_text())))


def test_command_whose_output_is_not_read_any_more_is_killed():
    """A command with endless output: its pipe is full, and asyncio has paused it."""

    async def main():
        process = await asyncio.create_subprocess_exec("yes", stdout=asyncio.subprocess.PIPE, start_new_session=True)
        await until(lambda: process.stdout._paused)
        await asyncio.wait_for(_kill(process), 300)
        assert process.returncode == -signal.SIGKILL

    asyncio.run(main())


def test_no_shell_interprets_the_arguments(tmp_path):
    marker = tmp_path / "created"
    command = KeyCommand(python("import sys; print(len(sys.argv[1]))", f"$(touch {marker}); touch {marker}"))
    assert int(asyncio.run(command.key())) > 10
    assert not marker.exists()


def test_standard_input_is_empty():
    assert asyncio.run(KeyCommand(python("import sys; print(repr(sys.stdin.read()))")).key()) == "''"


def test_loop_runs_while_the_command_runs(tmp_path):
    """The command waits for a file that the loop creates."""
    signal = tmp_path / "go"
    code = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('k' * 20)"

    async def main():
        key = asyncio.ensure_future(KeyCommand(python(code, str(signal)), timeout=60).key())
        await asyncio.sleep(0.01)
        assert not key.done()
        signal.touch()
        return await key

    assert asyncio.run(main()) == "k" * 20


def test_new_keys_are_reported_for_redaction():
    seen = []
    asyncio.run(KeyCommand(python(f"print('{TOKEN}')"), on_key=seen.append).key())
    assert seen == [TOKEN]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("gcloud auth print-access-token", 'write a list, such as key_command = \\["gcloud", "auth"'),
        ((), "begins with a program"),
        (("",), "begins with a program"),
        (("a", "b\0c"), "begins with a program"),
    ],
)
def test_invalid_commands_are_rejected(arguments, words):
    with pytest.raises(ConfigError, match=words):
        KeyCommand(arguments)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": float("nan")}, {"ttl": -1}, {"ttl": float("inf")}])
def test_invalid_times_are_rejected(options):
    with pytest.raises(ConfigError, match="must be positive and finite"):
        KeyCommand(("x",), **options)


def test_missing_program_is_found_before_the_first_request():
    with pytest.raises(ConfigError, match="cannot find the program 'no-such-program-at-all'"):
        KeyCommand(("no-such-program-at-all",)).check(os.environ)
    KeyCommand((sys.executable,)).check({})
    assert "cannot start the key command" in failure(KeyCommand(("/no/such/program",)))
