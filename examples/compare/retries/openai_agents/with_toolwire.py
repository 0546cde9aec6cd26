from toolwire import Agent, ModelClient

agent = Agent(ModelClient("openai/gpt-5.6-sol", retries=4))
answer = agent.run_sync("When did the Roman Empire fall?")
print(answer.output)
