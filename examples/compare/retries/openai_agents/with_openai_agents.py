# Source: https://github.com/openai/openai-agents-python/blob/v0.22.0/docs/models/index.md (OpenAI Agents SDK 0.22.0, MIT licence, copyright OpenAI).
# The last two lines and the import of Runner complete the fragment.
from agents import Agent, ModelRetrySettings, ModelSettings, Runner, retry_policies

agent = Agent(
    name="Assistant",
    model="gpt-5.6-sol",
    model_settings=ModelSettings(
        retry=ModelRetrySettings(
            max_retries=4,
            backoff={
                "initial_delay": 0.5,
                "max_delay": 5.0,
                "multiplier": 2.0,
                "jitter": True,
            },
            policy=retry_policies.any(
                retry_policies.provider_suggested(),
                retry_policies.retry_after(),
                retry_policies.network_error(),
                retry_policies.http_status([408, 409, 429, 500, 502, 503, 504]),
            ),
        )
    ),
)

result = Runner.run_sync(agent, "When did the Roman Empire fall?")
print(result.final_output)
