"""A configuration file with contexts."""

import pytest

SECRET = "k7-very-secret"
CONFIG = f"""
default_context = "test"

[contexts.prod]
namesrv = "10.0.0.1:9876;10.0.0.2:9876"
namespace = "shop"
access_key = "reader"
secret_key = "{SECRET}"

[contexts.test]
namesrv = "10.0.9.1:9876"

[contexts.backup]
store = "copies/store"

[contexts.file]
namesrv = "10.0.0.1:9876"
access_key = "reader"
secret_key_file = "reader.secret"

[contexts.variable]
namesrv = "10.0.0.1:9876"
access_key = "reader"
secret_key_env = "THE_SECRET"
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Give ``config(text) -> Path``, which writes the configuration file."""
    path = tmp_path / "config" / "rocketlens" / "config.toml"
    path.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(text):
        path.write_text(text)
        path.chmod(0o600)
        return path

    write(CONFIG)
    return write
