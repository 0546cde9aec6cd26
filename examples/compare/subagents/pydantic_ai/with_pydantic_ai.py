# Source: https://github.com/pydantic/pydantic-ai/blob/v2.33.0/docs/multi-agent-applications.md (Pydantic AI 2.33.0, MIT licence, copyright Pydantic Services Inc.).
from pydantic_ai import Agent, RunContext, UsageLimits

joke_selection_agent = Agent(
    'openai:gpt-5.2',
    name='joke_selection_agent',
    instructions=(
        'Use the `joke_factory` to generate some jokes, then choose the best. '
        'You must return just a single joke.'
    ),
)
joke_generation_agent = Agent(
    'google:gemini-3-flash-preview', name='joke_generation_agent', output_type=list[str]
)


@joke_selection_agent.tool
async def joke_factory(ctx: RunContext, count: int) -> list[str]:
    r = await joke_generation_agent.run(
        f'Please generate {count} jokes.',
        usage=ctx.usage,
    )
    return r.output


result = joke_selection_agent.run_sync(
    'Tell me a joke.',
    usage_limits=UsageLimits(request_limit=5, total_tokens_limit=500),
)
print(result.output)
print(result.usage)
