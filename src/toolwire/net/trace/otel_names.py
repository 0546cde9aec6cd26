"""Names of attributes and metrics: the OpenTelemetry conventions for generative AI, and our own under `toolwire`.

They are written out here because the package of the conventions is a part of the SDK, and a library needs only the API.
A test compares every name with `opentelemetry-semantic-conventions`.
"""

from __future__ import annotations

AGENT_NAME = "gen_ai.agent.name"
CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
CALL_ID = "gen_ai.tool.call.id"
CALL_RESULT = "gen_ai.tool.call.result"
CHOICE_COUNT = "gen_ai.request.choice.count"
ERROR_TYPE = "error.type"
FINISH_REASONS = "gen_ai.response.finish_reasons"
HTTP_STATUS = "http.response.status_code"
INPUT_MESSAGES = "gen_ai.input.messages"
MAX_TOKENS = "gen_ai.request.max_tokens"
OPERATION = "gen_ai.operation.name"
OUTPUT_MESSAGES = "gen_ai.output.messages"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
SEED = "gen_ai.request.seed"
STREAM = "gen_ai.request.stream"
TEMPERATURE = "gen_ai.request.temperature"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105  # not a secret
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOP_K = "gen_ai.request.top_k"
TOP_P = "gen_ai.request.top_p"
USAGE_CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE = "gen_ai.usage.cache_creation.input_tokens"
USAGE_INPUT = "gen_ai.usage.input_tokens"
USAGE_OUTPUT = "gen_ai.usage.output_tokens"
USAGE_REASONING = "gen_ai.usage.reasoning.output_tokens"

ATTEMPTS = "toolwire.attempts"
CALL_CODE = "toolwire.tool.code"
COST = "toolwire.cost"
DECISION = "toolwire.approval.decision"
EFFECT = "toolwire.tool.effect"
GIVE_UP_REASON = "toolwire.run.reason"
INGRESS = "toolwire.ingress"
LOSSES = "toolwire.losses"
REASONING_EFFORT = "toolwire.request.reasoning.effort"
REQUEST_ID = "toolwire.request.id"
RUN_ID = "toolwire.run.id"
UPSTREAM = "toolwire.upstream"

DURATION_METRIC = "gen_ai.client.operation.duration"
FIRST_CHUNK_METRIC = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_METRIC = "gen_ai.client.token.usage"  # noqa: S105  # not a secret
