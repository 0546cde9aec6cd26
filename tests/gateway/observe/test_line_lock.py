"""Long lines of several processes on one pipe are not mixed."""

import subprocess
import sys

WRITER = """
import sys
from pathlib import Path
from toolwire.gateway.observe import log
from toolwire.gateway.observe.workers import LineLock

log._MAX_WAIT = 60.0  # seconds: no line is lost, also on a busy machine
write = log.to_stream("stderr", lock=LineLock(Path(sys.argv[1])))
for _ in range(30):
    write(sys.argv[2] * 50_000)
"""


def test_long_lines_of_several_processes_are_not_mixed(tmp_path):
    script = "".join(f'{sys.executable} -c "$1" "$2" {letter} & ' for letter in "abc") + "wait"
    command = ["sh", "-c", script, "sh", WRITER, str(tmp_path / "lock")]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    lines = done.stderr.splitlines()
    assert sorted(lines) == sorted(letter * 50_000 for letter in "abc" * 30)
