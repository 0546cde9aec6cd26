from toolwire import Agent
from toolwire.run import Budget

joke_generation_agent = Agent("gemini/gemini-3-flash-preview", name="joke_generation_agent", output_type=list[str])
joke_selection_agent = Agent(
    "openai/gpt-5.2",
    [joke_generation_agent.as_tool("joke_factory", "Generate jokes.")],
    name="joke_selection_agent",
    system=("Use the `joke_factory` to generate some jokes, then choose the best. You must return just a single joke."),
    budget=Budget(iterations=5, tokens=500),
)
answer = joke_selection_agent.run_sync("Tell me a joke.")
print(answer.output)
print(answer.usage)
