# Source: https://github.com/pydantic/pydantic-ai/blob/v2.33.0/docs/api/models/test.md (Pydantic AI 2.33.0, MIT licence, copyright Pydantic Services Inc.).
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

my_agent = Agent('openai:gpt-5.2', instructions='...')


async def test_my_agent():
    """Unit test for my_agent, to be run by pytest."""
    m = TestModel()
    with my_agent.override(model=m):
        result = await my_agent.run('Testing my agent...')
        assert result.output == 'success (no tool calls)'
    assert m.last_model_request_parameters.function_tools == []
