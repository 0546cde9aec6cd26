"""Make every Runner of a program a dry run, and count the functions of tools that it calls, and the plans that it returns."""

import atexit
import functools
import json
from pathlib import Path

from toolwire.net.tools.runner import Runner
from toolwire.run import Toolbox, plan_of


class Counts:
    """The tools whose functions were called, and those for which a plan was returned."""

    def __init__(self):
        self.invoked = []
        self.planned = []


def install(patch, counts):
    """Replace methods of Runner by `patch(class, name, function)`."""
    initialise, perform = Runner.__init__, Runner._perform_call

    @functools.wraps(initialise)
    def dry(self, *sources, **options):
        initialise(self, Toolbox(*sources).wrap(functools.partial(count_calls, counts)), **{**options, "dry_run": True})

    @functools.wraps(perform)
    async def observed(self, run, *outcome):
        result = await perform(self, run, *outcome)
        if plan_of(result) is not None:
            counts.planned.append(run.call.name)
        return result

    patch(Runner, "__init__", dry)
    patch(Runner, "_perform_call", observed)


def count_calls(counts, function):
    @functools.wraps(function)
    def counted(*arguments, **named):
        counts.invoked.append(getattr(function, "__name__", repr(function)))
        return function(*arguments, **named)

    return counted


def install_in_this_process(path):
    """Count in a process of its own, which appends the counts to the file at its end."""
    counts = Counts()
    install(setattr, counts)

    def report():
        with Path(path).open("a") as file:
            file.write(json.dumps([counts.invoked, counts.planned]) + "\n")

    atexit.register(report)
