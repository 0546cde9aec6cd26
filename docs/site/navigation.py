"""The navigation of the site: its sections in the order of tasks, and the site path of every page.

A page is named by its path in the repository. The rules of the audit and the API reference are added by their generators.
"""

__all__ = ["NAVIGATION", "PAGES"]

NAVIGATION: dict[str, list[str]] = {
    "Start": ["docs/README.md", "README.md", "docs/choosing.md", "docs/compare.md", "docs/glossary.md"],
    "Tutorials": [
        "docs/tutorials/README.md",
        "docs/tutorials/first-agent.md",
        "docs/tutorials/structured-output.md",
        "docs/tutorials/approvals.md",
        "docs/tutorials/mcp.md",
        "docs/tutorials/openapi.md",
        "docs/tutorials/translate.md",
        "docs/tutorials/gateway.md",
        "docs/tutorials/audit.md",
        "docs/tutorials/testing.md",
        "docs/tutorials/traces.md",
    ],
    "Build agents": [
        "docs/agents.md",
        "docs/structured-outputs.md",
        "docs/clients.md",
        "docs/running.md",
        "docs/approvals.md",
        "docs/stores.md",
        "docs/durable.md",
        "docs/traces.md",
        "docs/neighbours.md",
        "docs/notebooks.md",
        "docs/local.md",
        "docs/chat-and-run.md",
        "docs/do.md",
    ],
    "Connect tools": ["docs/mcp.md", "docs/mcp-client.md", "docs/openapi.md", "docs/retrieval.md"],
    "Translate": [
        "docs/transports.md",
        "docs/losses.md",
        "docs/console.md",
        "docs/streams.md",
        "docs/schemas.md",
        "docs/repair.md",
        "docs/limits.md",
        "docs/translation.md",
        "docs/wires.md",
        "docs/violations.md",
        "docs/upstreams.md",
    ],
    "Run a gateway": [
        "docs/with.md",
        "docs/gateway.md",
        "docs/relay.md",
        "docs/gateway-operations.md",
        "docs/operations/many-machines.md",
        "docs/operations/runbook.md",
        "docs/operations/scale.md",
        "docs/gateway-observability.md",
        "docs/capabilities.md",
        "docs/vendors.md",
        "docs/clients-matrix.md",
    ],
    "Test and audit": ["docs/testing.md", "docs/testing-tools.md", "docs/audit.md", "docs/audit-skill.md"],
    "Open models": [
        "docs/text-formats.md",
        "docs/formats.md",
        "docs/parser-names.md",
        "docs/serving-stacks.md",
        "docs/masks.md",
        "docs/learning.md",
        "docs/training-data.md",
        "docs/fine-tuning.md",
        "docs/toolformer.md",
        "docs/toolkengpt.md",
        "docs/evaluation.md",
        "docs/experiments/fine-tuning.md",
        "docs/experiments/toolformer.md",
        "docs/experiments/tool-calls.md",
        "docs/experiments/toolkengpt.md",
    ],
    "Reference": [
        "docs/commands.md",
        "docs/extending.md",
        "docs/architecture.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "bench/RESULTS.md",
        "bench/README.md",
    ],
    "Migrate": [
        "docs/migrate/README.md",
        "docs/migrate/litellm.md",
        "docs/migrate/pydantic-ai.md",
        "docs/migrate/openai-agents.md",
        "docs/migrate/fastmcp.md",
        "examples/compare/README.md",
    ],
}
_RENAMED = {
    "README.md": "start.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/RESULTS.md": "bench/results.md",
    "bench/README.md": "bench/index.md",
    "examples/compare/README.md": "compare/tasks.md",
}


def _site_path(page: str) -> str:
    path = _RENAMED.get(page) or page.removeprefix("docs/")
    return path.removesuffix("README.md") + "index.md" if path.endswith("README.md") else path


PAGES = {page: _site_path(page) for pages in NAVIGATION.values() for page in pages}
