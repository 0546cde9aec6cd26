"""The types of dependencies that tools declare are compared with those of the agent."""

from typing import Any, Protocol

import pytest

import toolwire
from toolwire import Agent, Runner
from toolwire.ir.errors import ConfigError
from toolwire.run import CallContext
from toolwire.testing import ScriptedModel


class Database:
    """Dependencies of an agent."""


class Replica(Database):
    """A more specific kind of them."""


class Queries(Protocol):
    """A protocol that cannot be checked at run time."""

    def query(self) -> str: ...


def tool_with(annotation):
    def look(city: str, context: annotation) -> str:
        """Look up a city."""
        return city

    return toolwire.tool(effect="read")(look)


def agent_with(annotation, **options):
    return Agent(ScriptedModel([]), [tool_with(annotation)], **options)


@pytest.mark.parametrize(("deps_type", "given"), [(None, "no dependencies"), (str, "dependencies of type str")])
def test_tool_with_other_dependencies_is_refused(deps_type, given):
    options = {} if deps_type is None else {"deps_type": deps_type}
    with pytest.raises(ConfigError, match=rf"the tool look takes a CallContext\[Database\], but the agent has {given}"):
        agent_with(CallContext[Database], **options)


def test_annotations_in_text_and_the_tools_of_a_runner_are_checked():
    with pytest.raises(ConfigError, match="set deps_type=Database"):
        Agent(ScriptedModel([]), Runner(tool_with("CallContext[Database]")), deps_type=int)


@pytest.mark.parametrize(
    "annotation",
    [
        CallContext[Database],
        CallContext[Any],
        CallContext[None],
        CallContext,
        CallContext[Queries],
        CallContext[object],
    ],
)
def test_matching_and_general_contexts_are_accepted(annotation):
    assert agent_with(annotation, deps_type=Replica).deps_type is Replica


def test_tool_of_a_subclass_is_refused():
    with pytest.raises(ConfigError, match="Replica"):
        agent_with(CallContext[Replica], deps_type=Database)
