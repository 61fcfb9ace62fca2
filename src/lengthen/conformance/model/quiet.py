"""transformers without its progress bars and advice, for a while."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Its bars and its log below errors are off, and warnings ignored; afterwards all is as it was. Never imports it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "transformers" not in sys.modules:
            yield
            return
        from transformers.utils import logging

        level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()
