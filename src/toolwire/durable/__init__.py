"""Agent runs in queues on any number of machines, with DBOS (extra `durable`), and batch work on Ray (extra `ray`)."""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .jobs import RunReport as RunReport
    from .ray_executor import RayExecutor as RayExecutor
    from .runs import DurableRuns as DurableRuns
    from .updates import RunUpdate as RunUpdate
    from .worker import RunWorker as RunWorker
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "jobs": "RunReport",
            "ray_executor": "RayExecutor",
            "runs": "DurableRuns",
            "updates": "RunUpdate",
            "worker": "RunWorker",
        },
        extras={"dbos": "durable"},
    )
