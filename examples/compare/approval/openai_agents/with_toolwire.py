import asyncio

from toolwire import Agent, open_store, tool
from toolwire.net import approve_call, deny_call


@tool(effect="read", approve=lambda arguments: "Oakland" in arguments["city"])
async def get_temperature(city: str) -> str:
    return f"The temperature in {city} is 20° Celsius"


store = open_store("runs.db")
agent = Agent(
    "openai/gpt-5.6",
    [get_temperature],
    name="Weather assistant",
    system="Answer weather questions with the provided tools.",
    approve="suspend",
    store=store,
)


def prompt_approval(tool_name: str, arguments: object) -> bool:
    answer = input(f"Approve {tool_name} with {arguments}? [y/N]: ").strip().lower()
    return answer in {"y", "yes"}


async def main() -> None:
    answer = await agent.run("What is the temperature in Oakland?")

    while answer.pending:
        # The run is in the store: the decision can be made later, in a different process.
        for call in answer.pending:
            if await asyncio.to_thread(prompt_approval, call.tool, call.arguments):
                approve_call(store, answer.run_id, call.call_id)
            else:
                deny_call(store, answer.run_id, call.call_id)

        answer = await agent.resume(answer.run_id)

    print(answer.output)


asyncio.run(main())
