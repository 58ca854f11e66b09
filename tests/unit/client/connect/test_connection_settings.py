"""Settings of clients are keyword arguments; a wrong one is refused under the client's name."""

import inspect

import pytest

import rocketlens
from rocketlens.client.connect.connection_settings import ConnectionSettings, takes_settings


class Reader:
    @takes_settings(ConnectionSettings)
    def __init__(self, settings):
        self.settings = settings


class Heir(Reader):
    """Has the arguments of `Reader`."""


def test_a_client_gets_its_settings_as_one_object():
    settings = Reader("a:1", namespace="n").settings
    assert (settings.name_servers, settings.namespace) == ("a:1", "n")
    assert settings == ConnectionSettings("a:1", namespace="n")
    with pytest.raises(AttributeError):
        settings.namespace = "other"


@pytest.mark.parametrize("client", [Reader, Heir])
@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((), {"tsl": None}, "has no argument 'tsl'; did you mean tls?"),
        (("a:1", "n"), {}, "too many positional arguments"),
        (("a:1",), {"name_servers": "a:1"}, "multiple values for argument 'name_servers'"),
    ],
)
def test_a_wrong_argument_is_refused_under_the_name_of_the_client(client, arguments, options, text):
    with pytest.raises(TypeError) as caught:
        client(*arguments, **options)
    assert str(caught.value).startswith(f"{client.__name__}()")
    assert text in str(caught.value)


@pytest.mark.parametrize("client", [rocketlens.PushConsumer, rocketlens.LitePullConsumer])
def test_a_missing_argument_is_refused_under_the_name_of_the_client(client):
    with pytest.raises(TypeError, match=rf"^{client.__name__}\(\).*'group'"):
        client("a:1")


def test_help_shows_each_argument_with_its_default():
    shown = inspect.signature(Reader).parameters
    assert list(shown) == list(inspect.signature(ConnectionSettings).parameters)
    assert shown["timeout_s"].default == ConnectionSettings().timeout_s
    assert shown["name_servers"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {each.kind for each in list(shown.values())[1:]} == {inspect.Parameter.KEYWORD_ONLY}
