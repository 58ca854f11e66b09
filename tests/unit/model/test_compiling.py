"""The word that kernels are being compiled."""

from rocketlens.model import compiling


def test_it_is_said_once():
    said = []
    compiling.tell(said.append)
    compiling.is_compiling(is_kept=True)
    compiling.is_compiling(is_kept=True)
    assert said == [True]


def test_nothing_is_said_where_nothing_is_set():
    compiling.tell(lambda _: 1 / 0)
    compiling.tell(None)
    compiling.is_compiling(is_kept=False)
