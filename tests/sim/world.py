"""A world that one seed decides: a virtual clock, processes that die and pause, machines whose clocks jump, a network.

The package's own code runs in it, on an event loop without sockets and threads. What the world replaces:

    event loop   `SimLoop`: time stands still while anything is ready, then jumps to the next timer.
    threads      greenlets: a blocking call inside of them gives the control back to the loop until its virtual end.
                 Only one runs at a time, so a seed has one order of all steps.
    processes    a context variable. A killed process never runs again: none of its callbacks, not even a `finally`.
                 A paused one (SIGSTOP) runs its callbacks later, in their order.
    clocks       `time.time` is the clock of the machine of the running process, `time.monotonic` the virtual time.
    network      `Link`: requests and replies are delayed, reordered, lost, repeated or late; processes are cut off.

No order of callbacks is shuffled: asyncio promises theirs. The random delays of messages shuffle everything that has no
promised order.
"""

import asyncio
import contextvars
import gc
import random
import secrets
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from greenlet import GreenletExit, getcurrent, greenlet

from toolwire.ir.errors import StoreError

EPOCH = 1_700_000_000.0  # of the machines' clocks; any date after 2001 has as many digits
TIMEOUT = 5.0  # seconds until a client gives up a request, as in `stores.redis_client` and `postgres_pool`
_process: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)
_world: contextvars.ContextVar["World | None"] = contextvars.ContextVar("world", default=None)


class Violation(AssertionError):
    """An invariant does not hold."""


class Deadlock(AssertionError):
    """Nothing is ready, and no timer is set."""


class _NoSockets:
    """The selector of a loop without sockets: waiting advances its clock."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("no callback is ready, and no timer is set")
        self._loop.now += timeout
        return []


class SimLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time, whose callbacks belong to processes."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self.now = 1_000.0  # as after a start of the machines some minutes ago
        self._world = world
        self._clock_resolution = 1e-9
        self._selector = _NoSockets(self)

    def time(self) -> float:
        return self.now

    def _process_events(self, events: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def call_soon(self, callback, *args, context=None):
        return super().call_soon(_guard, _owner(context), callback, args, context=context)

    call_soon_threadsafe = call_soon

    def call_at(self, when, callback, *args, context=None):
        return super().call_at(when, _guard, _owner(context), callback, args, context=context)

    def run_in_executor(self, executor, function, *args):
        pool = self._world.pool_of(executor)
        return asyncio.wrap_future(pool.submit(lambda: function(*args)), loop=self)


def _owner(context: contextvars.Context | None) -> "Process | None":
    return _process.get() if context is None else context.get(_process)


def _guard(owner: "Process | None", callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Run a callback unless its process is dead; later if it is paused."""
    if owner is None:
        callback(*args)
    elif owner.is_paused:
        owner.backlog.append((callback, args, contextvars.copy_context()))
    elif owner.is_alive:
        callback(*args)


class Machine:
    """A machine with a clock. `offset`: seconds that the clock is ahead of the true time."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.offset = 0.0

    def wall(self) -> float:
        return EPOCH + self._world.loop.now + self.offset

    def ticks(self) -> float:
        return self._world.loop.now


class Process:
    """A process on a machine."""

    def __init__(self, world: "World", name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.world = world
        self.is_alive = True
        self.is_paused = False
        self.cut_off_until = 0.0
        self.was_cut_off = False
        self.was_paused = False
        self.backlog: list[tuple[Callable[..., Any], tuple[Any, ...], contextvars.Context]] = []
        self.dbos: Any = None  # the singleton of DBOS in this process, see `fake_queues`
        self.waits = False
        self.shared: Any = None  # the parts of the scenario that the tools of this process use

    def start(self, work: Any) -> asyncio.Task[Any]:
        """Start a coroutine as a task of this process."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        task = self.world.loop.create_task(work, context=context)
        task.add_done_callback(self._note_failure)
        return task

    def _note_failure(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.world.is_over:
            self.world.note("".join(traceback.format_exception(error)))
            with suppress(Violation):
                self.world.fail(f"{self.name} failed: {error!r}")

    def kill(self) -> None:
        self.world.note(f"{self.name} is killed")
        self.is_alive = False
        self.is_paused = False
        self.backlog.clear()

    def pause(self, seconds: float) -> None:
        if self.is_alive and not self.is_paused:
            self.world.note(f"{self.name} is paused for {seconds:.1f} s")
            self.is_paused = self.was_paused = True
            self.world.later(seconds, self._resume)

    def _resume(self) -> None:
        if not self.is_alive:
            return
        self.is_paused, waiting = False, self.backlog
        self.backlog = []
        for callback, args, context in waiting:
            self.world.loop.call_soon(callback, *args, context=context)

    def cut_off(self, seconds: float) -> None:
        """Lose all messages of this process for a while."""
        self.world.note(f"{self.name} is cut off for {seconds:.1f} s")
        self.was_cut_off = True
        self.cut_off_until = self.world.loop.now + seconds


class Pool:
    """Threads as greenlets, with the interface of `net.threads.ThreadPool`."""

    def __init__(self, max_threads: int) -> None:
        self._free = max_threads
        self._queue: deque[tuple[Future[Any], Callable[[], Any], contextvars.Context]] = deque()

    def submit(self, work: Callable[[], Any], *, share: str | None = None) -> Future[Any]:
        future: Future[Any] = Future()
        self._queue.append((future, work, contextvars.copy_context()))
        self._start()
        return future

    def close(self) -> None: ...

    def _start(self) -> None:
        while self._queue and self._free:
            future, work, context = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                self._free -= 1
                thread = greenlet(lambda f=future, w=work: self._run(f, w))
                thread.gr_context = context
                present_world().threads.append(thread)
                present_world().loop.call_soon(thread.switch, context=context.copy())

    def _run(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            result = work()
        except BaseException as error:  # as a thread does
            future.set_exception(error)
        else:
            future.set_result(result)
        self._free += 1
        self._start()


class World:
    """All of it. `calm`: without faults. `chaos_ends`: the virtual time after which nothing fails any more."""

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        self.random = random.Random(seed)
        self.calm = calm
        self.loop = SimLoop(self)
        self.chaos_ends = float("inf")
        self.away_until = 0.0  # the servers cannot be reached
        self.log: list[str] = []
        self.load: Counter[str] = Counter()  # operations of stores, by name
        # Kept to the end: what is collected before runs its `finally`, and a dead process must not.
        self.tasks: list[asyncio.Task[Any]] = []
        self.threads: list[greenlet] = []
        self.is_over = False
        self._pools: dict[int, tuple[Any, Pool]] = {}
        self._violations: list[BaseException] = []
        # Some worlds have a good network, some a bad one: faults that are always mixed hide what one kind alone causes.
        self.loss = 0.0 if calm else self.random.choice((0.0, 0.02, 0.1))
        self.delay = self.random.choice((0.001, 0.02, 0.3))

    @property
    def is_chaotic(self) -> bool:
        return not self.calm and self.loop.now < self.chaos_ends

    def note(self, text: str) -> None:
        """Add a line to the log of this run, which is printed with a violation."""
        self.log.append(f"{self.loop.now - 1_000.0:12.3f}  {text}")

    def cut_off_all(self, seconds: float) -> None:
        """Lose all messages for a while: the servers are away."""
        self.note(f"all are cut off for {seconds:.1f} s")
        self.away_until = self.loop.now + seconds

    def fail(self, text: str) -> None:
        """Report a violation, and end the run. `run` raises it: code of the package may catch what is raised here."""
        violation = Violation(text)
        self.note(f"VIOLATION: {text}")
        self._violations.append(violation)
        self.loop.stop()
        raise violation

    def later(self, seconds: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call a function of the world, whoever runs now."""
        self.loop.call_later(seconds, callback, *args, context=self._context)

    def block(self, seconds: float) -> None:
        """Let the greenlet wait for virtual seconds."""
        self.loop.call_later(seconds, self._leave())
        getcurrent().parent.switch()

    def wait(self, future: Future[Any]) -> Any:
        """Let the greenlet wait for a future, and return its result."""
        resume = self._leave()
        future.add_done_callback(lambda _: self.loop.call_soon(resume))
        getcurrent().parent.switch()
        return future.result()

    def _leave(self) -> Callable[[], Any]:
        """Return the function that lets this greenlet go on."""
        me = getcurrent()
        if self.is_over:
            raise GreenletExit
        assert me.parent is not None, "a blocking call on the event loop"
        return me.switch

    def pool_of(self, executor: Any) -> Pool:
        if id(executor) not in self._pools:
            self._pools[id(executor)] = executor, Pool(getattr(executor, "_max_workers", 32))
        return self._pools[id(executor)][1]

    def run(self, main: Any) -> None:
        """Run the scenario to its end. Raise the first violation."""
        self._context = contextvars.copy_context()
        self._context.run(_world.set, self)
        self.loop.set_task_factory(self._make_task)
        with self._replaced():
            task = self.loop.create_task(main, context=self._context)
            try:
                self.loop.run_until_complete(task)
            except BaseException as error:
                first = self._violations[0] if self._violations else error
                first.log = self.log  # type: ignore[attr-defined]  # for the report, see `run`
                raise first from None
            finally:
                self._end()

    def _make_task(self, loop: SimLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        task._log_destroy_pending = False  # a dead process leaves its tasks
        self.tasks.append(task)
        return task

    def _end(self) -> None:
        """Close what still waits, without effect."""
        self.is_over = True
        self.loop.set_exception_handler(lambda loop, context: None)
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        for thread in self.threads:
            with suppress(BaseException):
                thread.throw(GreenletExit)
        for task in self.tasks:
            with suppress(BaseException):
                task.get_coro().close()
            if task.done() and not task.cancelled():
                task.exception()
        self.loop.close()
        self.tasks.clear()
        self.threads.clear()
        gc.collect()  # what is left runs its `finally` now, and not in the next schedule or test
        sys.unraisablehook = hook

    @contextmanager
    def _replaced(self):
        """Replace the clocks, threads and random sources of the process."""
        pool_modules = ("toolwire.net.tools.steps", "toolwire.net.tools.runner", "toolwire.net.threads")
        before = random.getstate()
        random.seed(self.random.random())
        with ExitStack() as stack:
            for module in pool_modules:
                stack.enter_context(mock.patch(f"{module}.ThreadPool", Pool))
            stack.enter_context(mock.patch.object(time, "time", self._wall))
            stack.enter_context(mock.patch.object(time, "monotonic", lambda: self.loop.now))
            stack.enter_context(mock.patch.object(time, "sleep", self.block))
            stack.enter_context(mock.patch.object(secrets, "token_hex", self._token))
            try:
                yield
            finally:
                random.setstate(before)

    def _wall(self) -> float:
        process = _process.get()
        return EPOCH + self.loop.now + (0.0 if process is None else process.machine.offset)

    def _token(self, size: int = 32) -> str:
        return f"{self.random.getrandbits(8 * size):0{2 * size}x}"


def present_world() -> World:
    world = _world.get()
    assert world is not None, "outside of a simulation"
    return world


def present_process() -> Process:
    process = _process.get()
    assert process is not None, "outside of a process"
    return process


class Link:
    """The connection of a process to a server. `call` performs an operation there, from a greenlet."""

    def __init__(self, process: Process, *, repeats: bool = True) -> None:
        """`repeats`: the driver repeats a request if its connection was lost."""
        self._process = process
        self._world = process.world
        self._repeats = repeats

    def call(self, name: str, operation: Callable[[], Any]) -> Any:
        """Send a request, and return its result. Raise StoreError if there is no reply in time.

        A request without a reply may have been performed, or be performed later, or never. Drivers repeat a request once
        if its connection was lost, so it may be performed twice.
        """
        world = self._world
        world.load[name] += 1
        fate = world.random.random() if world.is_chaotic else 1.0
        delay, reply = self._delay(), self._delay()
        world.block(delay)
        if self._is_cut_off() or fate < 0.3 * world.loss:
            return self._give_up(name, "was lost")
        if fate < 0.4 * world.loss:
            world.later(TIMEOUT + world.random.uniform(0.0, 60.0), self._perform_late, operation)
            return self._give_up(name, "is late")
        result = _attempt(operation)
        if self._repeats and fate < 0.7 * world.loss:
            world.block(reply)
            result = _attempt(operation)
        world.block(reply)
        if self._is_cut_off() or 0.7 * world.loss <= fate < world.loss:
            return self._give_up(name, "got no reply")
        if isinstance(result, BaseException):
            raise result
        return result

    def _perform_late(self, operation: Callable[[], Any]) -> None:
        _attempt(operation)

    def _is_cut_off(self) -> bool:
        return self._world.loop.now < max(self._process.cut_off_until, self._world.away_until)

    def _delay(self) -> float:
        """Draw a delay: mostly short, sometimes long."""
        draw = self._world.random
        usual = draw.expovariate(1.0 / self._world.delay)
        return min(usual if draw.random() < 0.95 or not self._world.is_chaotic else draw.uniform(0.0, 3.0), 4.0)

    def _give_up(self, name: str, why: str) -> Any:
        self._world.note(f"{self._process.name}: {name} {why}")
        self._world.block(TIMEOUT)
        raise StoreError("the store cannot be reached", hint="the simulator has cut the connection")


def _attempt(operation: Callable[[], Any]) -> Any:
    try:
        return operation()
    except Violation:
        return StoreError("an invariant does not hold")  # it is in the world's list
    except StoreError as error:
        return error


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a blocking function of the package in a greenlet."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)


@contextmanager
def sim_folder() -> Iterator[Path]:
    """A folder for the files of a schedule, in memory where possible: a schedule waits for no disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="toolwire-sim-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
