import asyncio

from toolwire import Agent


async def main() -> None:
    agent = Agent("openai/gpt-5.6", system="Reply very concisely.")
    conversation = agent.conversation()

    answer = await conversation.run("What city is the Golden Gate Bridge in?")
    print(answer.output)

    answer = await conversation.run("What state is it in?")
    print(answer.output)


asyncio.run(main())
