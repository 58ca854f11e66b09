"""Collects the records, copies and traces of one message from an archive.

Consumer groups and their offsets are not archived. What a group did is known only from copies in
its retry and dead letter topics, and from traces.
"""

from typing import Final

from rocketlens.model.message import MessageExt
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.facts.group_state import GroupFacts
from rocketlens.query.story.story import Unlearnt
from rocketlens.query.story.story_search import SourceFacts, StorySource

_NO_GROUPS: Final = Unlearnt(Sentence("groups_did"), Sentence("not_in_archive"))


class ArchiveStorySource(StorySource):
    """Answers a story search from an archive."""

    def facts(self, _message: MessageExt, groups: set[str], group: str | None) -> SourceFacts:
        """Return the groups without any state: offsets of groups are not archived."""
        names = sorted({group} if group is not None else groups)
        return SourceFacts(tuple(map(GroupFacts, names)), (_NO_GROUPS,))

    def said_by(self, _message: MessageExt) -> str:
        return Sentence("by_archive", source=self.source.name)
