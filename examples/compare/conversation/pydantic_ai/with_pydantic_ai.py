# Source: https://github.com/pydantic/pydantic-ai/blob/v2.33.0/docs/message-history.md (Pydantic AI 2.33.0, MIT licence, copyright Pydantic Services Inc.).
from pydantic_ai import Agent

agent = Agent('openai:gpt-5.2', instructions='Be a helpful assistant.')

result1 = agent.run_sync('Tell me a joke.')
print(result1.output)

result2 = agent.run_sync('Explain?', message_history=result1.new_messages())
print(result2.output)

print(result2.all_messages())
