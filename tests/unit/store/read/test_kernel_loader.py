"""Kernels are loaded once, by a thread that no one has to wait for."""

import errno
import threading

import pytest

from rocketlens.errors import StoreBusy
from rocketlens.model import compiling
from rocketlens.store.read.kernel_loader import LOADER_THREAD, KernelLoader

GUARD_S = 60


def test_a_program_loads_kernels_where_it_needs_them():
    threads = []
    loader = KernelLoader()
    loader.load(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]
    assert not loader.is_in_background


def test_a_server_loads_kernels_once_for_all_threads_that_wait():
    calls, may_go_on = [], threading.Event()
    loader = KernelLoader()

    def load():
        calls.append(threading.current_thread().daemon)
        may_go_on.wait(GUARD_S)

    with loader.in_background():
        waiting = [threading.Thread(target=loader.load, args=(load,)) for _ in range(5)]
        for each in waiting:
            each.start()
        may_go_on.set()
        for each in waiting:
            each.join(GUARD_S)
        loader.load(load)
    assert calls == [True]


def test_who_has_no_time_goes_on_while_kernels_are_compiled():
    loader, may_go_on = KernelLoader(), threading.Event()

    def load():
        may_go_on.wait(GUARD_S)

    with loader.in_background():
        assert not loader.try_load(load, 0.0)
        may_go_on.set()
        assert loader.try_load(load)
        assert loader.try_load(load, 0.0)


def test_what_cannot_be_loaded_is_tried_again():
    loader = KernelLoader()
    failures = [OSError("too many open files")]

    def load():
        if failures:
            raise failures.pop()

    with loader.in_background():
        with pytest.raises(OSError, match="too many open files"):
            loader.load(load)
        loader.load(load)


@pytest.mark.parametrize("error", [ImportError("no numba"), OSError("no libllvmlite.so")])
def test_a_machine_without_compiled_code_says_so_once_and_works(caplog, error):
    loader, calls = KernelLoader(), []

    def load():
        calls.append(error)
        raise error

    with loader.in_background():
        assert [loader.try_load(load) for _ in range(3)] == [False] * 3
    assert loader.is_refused
    assert len(calls) == len(caplog.records) == 1
    assert str(error) in caplog.text


def test_too_many_open_files_are_no_refusal():
    loader, failures = KernelLoader(), [OSError(errno.EMFILE, "too many open files")]

    def load():
        if failures:
            raise failures.pop()

    with pytest.raises(OSError, match="too many open files"):
        loader.try_load(load)
    assert not loader.is_refused
    assert loader.try_load(load)


def test_who_waits_goes_on_when_the_server_stops():
    loader = KernelLoader()
    hangs, outcomes, has_begun = threading.Event(), [], threading.Event()

    def load():
        has_begun.set()
        hangs.wait(GUARD_S)

    def wait():
        try:
            loader.load(load)
        except StoreBusy as error:
            outcomes.append(str(error))

    try:
        with loader.in_background():
            waiting = threading.Thread(target=wait)
            waiting.start()
            assert has_begun.wait(GUARD_S)
            loader.abandon()
            waiting.join(GUARD_S)
            assert outcomes == ["the broker stops: kernels are not loaded any more"]
            assert loader.is_loading
            with pytest.raises(StoreBusy):
                loader.load(load)
            with pytest.raises(StoreBusy):
                loader.load(lambda: outcomes.append("loaded"))
    finally:
        hangs.set()
    # The next server of this process loads what it needs.
    with loader.in_background():
        loader.load(lambda: outcomes.append("loaded"))
    assert outcomes[1:] == ["loaded"]


def test_a_kernel_that_a_server_calls_first_is_loaded_in_the_thread_of_the_loader():
    loader, threads = KernelLoader(), []

    def inner():
        threads.append(threading.current_thread().name)

    def outer():
        threads.append(threading.current_thread().name)
        compiling.load(inner)

    with loader.in_background():
        compiling.load(outer)
    compiling.load(inner)
    assert threads == [LOADER_THREAD, LOADER_THREAD, threading.current_thread().name]
