from toolwire import Agent
from toolwire.testing import ScriptedModel, says

my_agent = Agent("openai/gpt-5.2", system="...")


def test_my_agent() -> None:
    """Unit test for my_agent, to be run by pytest."""
    model = ScriptedModel([says("success (no tool calls)")])
    with my_agent.override(model=model):
        answer = my_agent.run_sync("Testing my agent...")
        assert answer.output == "success (no tool calls)"
    assert model.requests[-1].tools == ()
