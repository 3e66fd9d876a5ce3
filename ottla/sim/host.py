"""A simulated host: a clock that drifts and steps, an event loop whose callbacks take time, sockets, threads.

Rules:
- A host runs one process at a time. `boot` starts one; `kill` is SIGKILL (the kernel closes its sockets); `power_off`
  drops its network connections silently. Callbacks and jobs of a dead process never run.
- `pause` is SIGSTOP: time passes, nothing runs; bytes still arrive in the kernel's buffers.
- The loop implements the part of asyncio's interface that nodes and clients use, with real tasks and futures.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ottla.sim.disk import Crashed
from ottla.sim.socket import SimSocket
from ottla.sim.transport import SimTransport

if TYPE_CHECKING:
    from ottla.sim.world import World

_T = TypeVar("_T")
#: The duration of a callback: a node handles a small request in about 100 us (docs/internals/bench.md).
_COST_US = (10, 120)
_COSTS = _COST_US[1] - _COST_US[0]
_COST_BITS = _COSTS.bit_length()
#: The delay until a job on another thread runs.
_JOB_US = (20, 3_000)
_EPOCH_MS = 1_700_000_000_000


class DriftingClock:
    """The clock of one host. It runs `drift_ppm` millionths faster than true time."""

    __slots__ = ("_world", "drift_ppm", "offset_us", "wall_ms")

    def __init__(self, world: World, offset_us: int, drift_ppm: int) -> None:
        self._world = world
        self.offset_us = offset_us
        self.drift_ppm = drift_ppm
        #: The wall clock minus the monotonic time.
        self.wall_ms = _EPOCH_MS

    def monotonic_us(self) -> int:
        now = self._world.now_us
        return now + now * self.drift_ppm // 1_000_000 + self.offset_us

    def true_us(self, monotonic_us: int) -> int:
        """The first true time at which this clock shows `monotonic_us`."""
        now = (monotonic_us - self.offset_us) * 1_000_000 // (1_000_000 + self.drift_ppm)
        while now + now * self.drift_ppm // 1_000_000 + self.offset_us < monotonic_us:
            now += 1
        return now

    def monotonic_ms(self) -> int:
        # `monotonic_us`, which a node calls too often for a call more.
        now = self._world.now_us
        return (now + now * self.drift_ppm // 1_000_000 + self.offset_us) // 1000

    def now_ms(self) -> int:
        return self.wall_ms + self.monotonic_ms()

    def step(self, ms: int) -> None:
        """Step the wall clock, forward or back; the monotonic clock is not affected."""
        self.wall_ms += ms


class Host:
    """A machine. `World.host` creates it."""

    def __init__(self, world: World, name: str, address: str) -> None:
        self.world = world
        self.name = name
        self.address = address
        rng = world.rng
        self.clock = DriftingClock(world, rng.randrange(3_600_000_000), rng.randrange(-100, 101))
        #: The factor by which callbacks are slower than on other hosts.
        self.slowness = 1
        self.paused = False
        #: True if the machine has power.
        self.is_up = True
        #: Exceptions of tasks and futures that its programs never retrieved.
        self.unretrieved: list[str] = []
        #: Called when the process raises `Crashed` (the disk's planned crash).
        self.on_crash: Callable[[], None] = self.kill
        #: The process's loop; None while no process runs.
        self.loop: HostLoop | None = None
        #: Every open socket of this host's kernel.
        self.sockets: dict[int, SimSocket] = {}
        self._descriptors = 2

    def boot(self) -> HostLoop:
        """Start a new process with an empty loop."""
        assert self.loop is None, f"{self.name} runs a process"
        self.paused = False
        self.is_up = True
        self.loop = HostLoop(self)
        return self.loop

    def kill(self) -> None:
        """SIGKILL: end the process; the kernel resets its connections."""
        self._end()
        for each in list(self.sockets.values()):
            each.reset()

    def power_off(self) -> None:
        """Cut the power; peers get no notice."""
        self._end()
        self.is_up = False
        for each in list(self.sockets.values()):
            each.vanish()

    def _end(self) -> None:
        if self.loop is not None:
            self.loop.dead = True
            self.loop = None

    def pause(self) -> None:
        """SIGSTOP."""
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        if self.loop is not None:
            self.loop.go_on()

    def socket(self, *_: Any) -> Any:
        """`socket.socket` for programs on this host."""
        self._descriptors += 1
        made = self.sockets[self._descriptors] = SimSocket(self, self._descriptors)
        return made

    def run(self, work: Coroutine[Any, Any, _T], *, limit_ms: int = 600_000) -> _T:
        """Run a coroutine on this host's process to its end."""
        assert self.loop is not None, f"{self.name} runs no process"
        task: asyncio.Task[_T] = self.loop.create_task(work)
        assert self.world.run_until(task.done, limit_ms=limit_ms), f"{self.name}: no end within {limit_ms} ms: {work}"
        return task.result()


class _Handle:
    """A planned callback, which the world runs: the part of `asyncio.TimerHandle` that programs use."""

    __slots__ = ("_when", "args", "callback", "context", "loop")

    def __init__(
        self,
        loop: HostLoop,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.loop = loop
        self._when = when
        #: None once it is cancelled.
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self._when

    def due(self) -> None:
        """Run at the loop's next free moment."""
        if self.callback is not None:
            self.loop.enqueue(self)


class HostLoop:
    """The part of `asyncio.AbstractEventLoop` that nodes and clients use, for one process of a host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.dead = False
        self._world = host.world
        self._as_loop = cast(asyncio.AbstractEventLoop, self)
        self._clock = host.clock
        self._label = host.name
        self._timer_label = f"{host.name} timer"
        self._ready: deque[_Handle] = deque()
        self._free_us = 0
        self._planned = False

    # ---- asyncio's interface

    def time(self) -> float:
        return self._clock.monotonic_us() / 1_000_000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> _Handle:
        handle = _Handle(self, 0.0, callback, args, context)
        if not self.dead:
            self._ready.append(handle)
            if not self._planned:
                self.go_on()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        return self.call_at(self._clock.monotonic_us() / 1_000_000 + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> _Handle:
        handle = _Handle(self, when, callback, args, context)
        # Rounded up to a microsecond, so that it never runs too early.
        self._world.at(self._clock.true_us(-int(-when * 1_000_000 // 1)), handle.due, self._timer_label)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

    def create_task(
        self, coro: Coroutine[Any, Any, _T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[_T]:
        return asyncio.Task(coro, loop=cast(asyncio.AbstractEventLoop, self), name=name, context=context)

    def run_in_executor(self, executor: Any, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run `work` on another thread."""
        answer = self.create_future()

        def run() -> None:
            try:
                result = work(*args)
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.beside(run)
        return answer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note an exception that the program never retrieved; asyncio's loops log it at garbage collection."""
        if not self.dead:
            self.host.unretrieved.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int, *, ssl: None = None, **_: Any
    ) -> tuple[SimTransport, Any]:
        """Connect to `host`:`port`, with a protocol from `factory`."""
        assert ssl is None, "TLS is not simulated"
        sock: SimSocket = self.host.socket()
        answer = self.create_future()
        sock.connect_ex((host, port))

        def connected() -> None:
            self.remove_writer(sock.fileno())
            if answer.done():
                return
            code = sock.getsockopt(0, 0)
            if code:
                answer.set_exception(ConnectionRefusedError(code, "Connection refused"))
            else:
                answer.set_result(None)

        self.add_writer(sock.fileno(), connected)
        try:
            await answer
        except BaseException:
            self.remove_writer(sock.fileno())
            sock.close()
            raise
        protocol = factory()
        transport = SimTransport(self, sock, protocol)
        return transport, protocol

    # ---- descriptors: level-triggered, as by a selector

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        sock = self.host.sockets.get(fd)
        if sock is not None:
            sock.on_readable = partial(callback, *args) if args else callback
            self.poll(sock)

    def remove_reader(self, fd: int) -> None:
        sock = self.host.sockets.get(fd)
        if sock is not None:
            sock.on_readable = None

    def add_writer(self, fd: int, callback: Callable[..., object], *args: Any) -> None:
        sock = self.host.sockets.get(fd)
        if sock is not None:
            sock.on_writable = partial(callback, *args) if args else callback
            self.poll(sock)

    def remove_writer(self, fd: int) -> None:
        sock = self.host.sockets.get(fd)
        if sock is not None:
            sock.on_writable = None

    def poll(self, sock: SimSocket) -> None:
        """Schedule the callbacks of a socket that may have become ready."""
        if sock.closed or self.dead:
            return
        if sock.on_readable is not None and not sock.read_planned and sock.readable:
            sock.read_planned = True
            self.call_soon(self._may_read, sock)
        if sock.on_writable is not None and not sock.write_planned and sock.writable:
            sock.write_planned = True
            self.call_soon(self._may_write, sock)

    def _may_read(self, sock: SimSocket) -> None:
        sock.read_planned = False
        if sock.on_readable is not None and not sock.closed and sock.readable:
            sock.on_readable()
        self.poll(sock)

    def _may_write(self, sock: SimSocket) -> None:
        sock.write_planned = False
        if sock.on_writable is not None and not sock.closed and sock.writable:
            sock.on_writable()
        self.poll(sock)

    # ---- for the world

    def beside(self, work: Callable[[], None]) -> None:
        """Run `work` on another thread: atomically, at some later moment."""

        def run() -> None:
            if self.dead:
                return
            if self.host.paused:
                self.beside(work)
            else:
                self._guarded(work)

        self._world.after(self._world.between(*_JOB_US) * self.host.slowness, run, f"{self._label} thread")

    def busy(self, ms: int) -> None:
        """Make the current callback take `ms` longer."""
        self._free_us = max(self._free_us, self._world.now_us) + ms * 1000

    def go_on(self) -> None:
        """Plan the next callback, also after a pause of the host."""
        if self._ready and not self._planned and not self.host.paused:
            self._planned = True
            self._world.at(self._free_us, self._run_one, self._label)

    def enqueue(self, handle: _Handle) -> None:
        if not self.dead:
            self._ready.append(handle)
            if not self._planned:
                self.go_on()

    def _run_one(self) -> None:
        self._planned = False
        host, ready = self.host, self._ready
        if self.dead or host.paused or not ready:
            return
        handle = ready.popleft()
        if handle.callback is not None:
            world = self._world
            # `World.between(*_COST_US)`, for each callback.
            draw = world.draw
            cost_us = draw(_COST_BITS)
            while cost_us >= _COSTS:
                cost_us = draw(_COST_BITS)
            self._free_us = world.now_us + (_COST_US[0] + cost_us) * host.slowness
            self._guarded(handle.context.run, handle.callback, *handle.args)
        if ready:
            self.go_on()

    def _guarded(self, work: Callable[..., object], *args: Any) -> None:
        network = self._world.network
        asyncio._set_running_loop(self._as_loop)
        current, network.current = network.current, self.host
        try:
            work(*args)
        except Crashed:
            self.host.on_crash()
        finally:
            network.current = current
            asyncio._set_running_loop(None)
