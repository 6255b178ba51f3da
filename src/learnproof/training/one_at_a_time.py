"""Calls that never interleave, from whatever thread or event loop they come.

    with calls.working(): ...                 # at once, in the caller's thread
    await calls.in_thread(job)                # in a thread of its own, in the order in which they were asked for

torch keeps its thread count and its treatment of subnormal numbers per thread, so both are set wherever work begins: an awaited call
gives the same bytes as the same call at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from ..config import Settings
from ..errors import UsageError
from .assembly import set_up_torch

Result = TypeVar("Result")


class OneAtATime:
    def __init__(self, settings: Settings, name: str) -> None:
        self.settings = settings
        self.closed = False
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    @contextmanager
    def working(self) -> Iterator[None]:
        with self._lock:
            if self.closed:
                raise UsageError("This engine is closed. Go on with TrainingEngine.load(path), or make a new one.")
            set_up_torch(self.settings)
            yield

    async def in_thread(self, job: Callable[[], Result]) -> Result:
        if self.closed:
            with self.working():
                pass
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    def close(self) -> bool:
        """Wait for what was begun; False where it was closed before."""
        self._thread.shutdown()
        with self._lock:
            before, self.closed = self.closed, True
        return not before
