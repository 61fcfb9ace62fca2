"""Ctrl-C that waits for the end of the step."""

import signal
import threading
from types import FrameType


class Interrupt:
    """While entered, a first SIGINT or SIGTERM only sets `requested`; a second one acts as if this were not here.

    Signals reach the main thread alone; entered elsewhere, it does nothing. What the shell has set to be ignored, as it does
    for a script's background jobs, stays ignored.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self):
        self.requested = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            heeded = [s for s in self._SIGNALS if signal.getsignal(s) != signal.SIG_IGN]
            self._before = {s: signal.signal(s, self._take) for s in heeded}
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before = {}

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self.__exit__()
