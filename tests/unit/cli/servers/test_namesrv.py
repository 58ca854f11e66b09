"""``rocketlens namesrv``; a running one is tested with ``broker`` in the tests of ``serve``."""

import pytest


@pytest.mark.parametrize("port", ["-1", "65536", "x", "9" * 5000])
def test_a_number_that_is_not_a_port_is_refused(run, port):
    done = run("namesrv", f"--port={port}")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "expected 0 to 65535" in done.err


def test_a_configuration_file_that_is_missing_is_one_line_and_code_2(run, tmp_path):
    done = run("namesrv", "-c", tmp_path / "namesrv.conf")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "namesrv.conf" in done.err
