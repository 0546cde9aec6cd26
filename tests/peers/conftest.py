"""`make test-peers` names the framework whose environment runs the tests: its tests must not be skipped."""

import asyncio
import os

import pytest

MODULES = {
    "pydantic-ai": "test_pydantic_ai_toolset.py",
    "openai-agents": "test_openai_agents_tools.py",
    "langchain": "test_langchain_tools.py",
    "llama-index": "test_llama_index_tools.py",
    "google-adk": "test_google_adk_tools.py",
}


def pytest_collection_finish(session):
    peer = os.environ.get("TOOLWIRE_PEER")
    if peer is not None and not any(item.path.name == MODULES[peer] for item in session.items):
        pytest.exit(f"no test of {MODULES[peer]} was collected: {peer} cannot be imported", returncode=1)


@pytest.fixture(autouse=True)
def _close_left_event_loop():
    """Close an event loop that a synchronous function of another library left in this thread, as PydanticAI's do."""
    yield
    local = getattr(asyncio.get_event_loop_policy(), "_local", None)
    loop = getattr(local, "_loop", None)
    if loop is not None and not loop.is_running() and not loop.is_closed():
        loop.close()
        asyncio.set_event_loop(None)
