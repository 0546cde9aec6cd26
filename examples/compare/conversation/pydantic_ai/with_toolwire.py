from toolwire import Agent

agent = Agent("openai/gpt-5.2", system="Be a helpful assistant.")

first = agent.run_sync("Tell me a joke.")
print(first.output)

second = agent.run_sync("Explain?", history=first)
print(second.output)

print(second.messages)
