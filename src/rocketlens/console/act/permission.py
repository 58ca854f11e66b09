"""Decides what the current user may act on."""

from rocketlens.console.login.viewer import LOCAL, current_viewer
from rocketlens.console.sources.sources import ClusterOfConsole, Sources
from rocketlens.console.sources.visible import ConsoleSource
from rocketlens.errors import MessageNotFound, RocketLensError
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import Sentence
from rocketlens.terminal.cluster_access import user_name


class ActRefused(RocketLensError):
    """The act is not allowed here, or for this user."""


def current_user() -> str:
    viewer = current_viewer()
    return user_name() if viewer is LOCAL else viewer.name


def current_login() -> str:
    """Return the name of the logged-in user; empty in a console without users."""
    viewer = current_viewer()
    return "" if viewer is LOCAL else viewer.name


def is_writable(source: ConsoleSource) -> bool:
    return source.cluster is not None and source.cluster.access is not None


def may_act(source: ConsoleSource, topic: str) -> bool:
    return is_writable(source) and current_viewer().may_act(source.name, source.plain(topic))


def may_send(sources: Sources, origin: ConsoleSource, topic: str) -> bool:
    """Return whether the user may send a message again: to its own cluster, or from a file to
    any.
    """
    goes_to = [origin] if origin.kind == "cluster" else sources
    return any(may_act(each, topic) for each in goes_to)


def may_act_at_all(sources: Sources) -> bool:
    return any(is_writable(each) and current_viewer().may_act_in(each.name) for each in sources)


def check_may_act(source: ConsoleSource, topic: str) -> ClusterOfConsole:
    """Return the cluster of a source.

    :raises ActRefused: if the user may not act on the topic there.
    """
    cluster = check_cluster(source)
    if not may_act(source, topic):
        names = {"user": current_user(), "topic": printable(topic), "source": source.name}
        raise ActRefused(Sentence("may_not_act", **names))
    return cluster


def check_cluster(source: ConsoleSource) -> ClusterOfConsole:
    """Return the cluster of a source.

    :raises ActRefused: if it is not a cluster, or read-only.
    """
    cluster = source.cluster
    if cluster is None:
        raise ActRefused(Sentence("store_only_read", source=source.name))
    if cluster.access is None:
        raise ActRefused(Sentence("context_read_only", source=source.name))
    return cluster


def check_may_see_job(sources: Sources, name: str, login: str, cluster: str) -> None:
    """Check that the user may see a job or act: an own one, or one of a cluster whose topics are
    all visible. Jobs of operating system users belong to no login.

    :raises MessageNotFound: if not, as for one that does not exist.
    """
    viewer = current_viewer()
    sees_cluster = any(
        viewer.sees_all(each.name) and cluster in {each.name, each.title} for each in sources
    )
    if viewer is not LOCAL and viewer.name != login and not sees_cluster:
        raise MessageNotFound(Sentence("no_job", name=name))
