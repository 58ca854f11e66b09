"""A server as a process: its line when it is ready, and its end while kernels are loaded."""

import subprocess
import sys

from rocketlens.terminal.exit_code import ExitCode
from rocketlens.terminal.server_process import end_process, print_ready


def test_a_server_says_in_one_line_that_it_is_ready_and_tells_systemd(capsys, monkeypatch):
    told = []
    monkeypatch.setattr("rocketlens.net.event_loop.notify", told.append)
    print_ready("broker 127.0.0.1:10911")
    assert capsys.readouterr().out == "ready: broker 127.0.0.1:10911\n"
    assert told == ["READY=1"]


def test_a_server_that_loads_no_kernels_ends_as_other_commands_do():
    assert end_process() is ExitCode.OK


def test_a_process_whose_kernels_are_being_loaded_ends_at_once_and_loses_no_line():
    code = (
        "import atexit, logging, logging.handlers\n"
        "from rocketlens.store.read import kernel_loader\n"
        "from rocketlens.terminal.server_process import end_process\n"
        "class Loading:\n"
        "    is_loading = True\n"
        "kernel_loader.KERNELS = Loading()\n"
        "kept = logging.handlers.MemoryHandler(99, target=logging.StreamHandler())\n"
        "logging.getLogger().addHandler(kept)\n"
        "atexit.register(print, 'the interpreter was torn down')\n"
        "print('served', end='')\n"
        "logging.warning('stopped')\n"
        "end_process()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("served", "stopped\n")
