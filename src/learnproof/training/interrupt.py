"""Ctrl-C and SIGTERM: finish the iteration, save, say how to go on. A second Ctrl-C stops at once.

Stopping at once loses what came after the last checkpoint and nothing else: checkpoints are whole or not there.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Set by a signal; the loop looks at it once per iteration."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def listen_for_stop(say: Callable[[str], None]) -> Iterator[StopRequest]:
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # Python delivers signals to the main thread alone
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if request:
            raise KeyboardInterrupt
        request.signal = signal.Signals(number)
        say(f"{request.signal.name}: finishing this iteration, then saving. Again to stop at once.")

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
