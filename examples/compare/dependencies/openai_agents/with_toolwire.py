import asyncio
from dataclasses import dataclass

from toolwire import Agent, tool
from toolwire.run import CallContext


@dataclass
class UserInfo:
    name: str
    uid: int


@tool(effect="read")
async def fetch_user_age(context: CallContext[UserInfo]) -> str:
    """Fetch the age of the user. Call this function to get user's age information."""
    return f"The user {context.deps.name} is 47 years old"


async def main() -> None:
    user_info = UserInfo(name="John", uid=123)

    agent = Agent("openai/gpt-5.6", [fetch_user_age], deps_type=UserInfo)

    answer = await agent.run("What is the age of the user?", deps=user_info)

    print(answer.output)


asyncio.run(main())
