"""What all tests of the console share."""

import pytest

from rocketlens.console.login.viewer import LOCAL, seen_by


@pytest.fixture(autouse=True)
def seen_by_the_local_viewer():
    """Ask for the viewer of a console without users: outside of requests nobody asks."""
    with seen_by(LOCAL):
        yield
