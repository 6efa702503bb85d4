import os
import signal
import threading

import pytest

from dsf.training.signals import Interrupted, Signals, stopped_at_once


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_what_is_within(number):
    before = signal.getsignal(number)
    reached = []

    def work():
        with stopped_at_once("lunch"):
            reached.append(1)
            os.kill(os.getpid(), number)
            signal.pause()  # until it arrives
            reached.append(2)

    with pytest.raises(Interrupted, match=f"stopped by {number.name} during lunch; what is comp"):
        work()
    assert reached == [1]
    assert signal.getsignal(number) is before


def test_in_another_thread_it_does_nothing():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        with stopped_at_once("lunch"):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_second_interrupt_stops_at_once():
    before = signal.getsignal(signal.SIGINT)  # ignored, where a shell began us in the background
    with Signals() as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.received == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_signals_outside_the_main_thread():
    seen = []

    def work():
        with Signals() as signals:
            seen.append(signals.received)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]
