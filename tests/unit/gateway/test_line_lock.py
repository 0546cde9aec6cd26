"""Long lines of several processes on one pipe are not mixed."""

import subprocess
import sys

WRITER = """
import sys
import time
from pathlib import Path
from toolwire.gateway.observe.line_lock import LineLock
from toolwire.gateway.observe.log import to_stream

write = to_stream("stderr", lock=LineLock(Path(sys.argv[1])))
written = 0
while written < 30:
    try:
        write(sys.argv[2] * 50_000)
    except BlockingIOError:  # on a busy machine; a part may be written
        time.sleep(0.1)
    else:
        written += 1
"""


def test_long_lines_of_several_processes_are_not_mixed(tmp_path):
    script = "".join(f'{sys.executable} -c "$1" "$2" {letter} & ' for letter in "abc") + "wait"
    command = ["sh", "-c", script, "sh", WRITER, str(tmp_path / "lock")]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    lines = done.stderr.splitlines()
    assert all(len(set(line)) == 1 for line in lines)
    assert sorted(line for line in lines if len(line) == 50_000) == sorted(letter * 50_000 for letter in "abc" * 30)
