"""The options of a connection."""

from argparse import ArgumentParser

from rocketlens.terminal.contexts import OPTIONS, SWITCHES, Context, add_connection_options


def test_every_option_but_the_name_of_a_context_is_a_setting_of_contexts():
    names = {name.replace("-", "_") for name in (*OPTIONS, *SWITCHES)}
    assert names - {"context"} <= {*Context._fields}


def test_options_that_are_not_given_are_none():
    parser = ArgumentParser()
    add_connection_options(parser)
    assert set(vars(parser.parse_args([])).values()) == {None}
    assert parser.parse_args(["--tls"]).tls is True
