"""Processes start without the main script, whoever else starts one meanwhile, and nothing stays hidden afterwards."""

from __future__ import annotations

import os
import signal
import sys
import threading

from unchoke.jobs.pool import main_script_hidden, stop_signals_held_back
from unchoke.jobs.signals import STOP_SIGNALS


def test_main_script_is_back_after_two_threads_hid_it() -> None:
    script, variables = sys.modules["__main__"], dict(os.environ)
    second_is_in, first_is_out = threading.Event(), threading.Event()

    def second() -> None:
        with main_script_hidden():
            second_is_in.set()
            first_is_out.wait(60)
            assert sys.modules["__main__"] is not script

    thread = threading.Thread(target=second)
    with main_script_hidden():
        thread.start()
        second_is_in.wait(60)
    first_is_out.set()
    thread.join()
    assert sys.modules["__main__"] is script
    assert dict(os.environ) == variables


def test_stop_signals_are_held_back_inside() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with stop_signals_held_back():
        assert set(STOP_SIGNALS) <= signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
