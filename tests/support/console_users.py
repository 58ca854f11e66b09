"""Users of a console whose passwords are cheap to check."""

from rocketlens.console.login.users import LocalUser, LocalUsers, PasswordHash
from rocketlens.console.login.viewer import Grant, Role, Viewer

CHEAP = (16, 1, 1)
PASSWORD = "correct horse"
HASH = "scrypt$16$1$1$MDEyMzQ1Njc4OWFiY2RlZg==$2nYYR1WNiVIE4oqKrxPuQubql1AU4+laWwCM1jFvCJc="
"""Its hash; always the same, because it is in names of tests."""


def user(name, *grants, password=PASSWORD):
    """Give one user."""
    return LocalUser(PasswordHash.of(password, CHEAP), Viewer(name, grants))


def users(*several):
    """Give users; without any, an administrator named root."""
    return LocalUsers(several or [user("root", Grant(Role.ADMIN))])
