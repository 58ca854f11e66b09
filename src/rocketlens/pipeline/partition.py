"""The shares of work that batch reads and streams of the data source give to Spark's tasks."""

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from rocketlens.bulk.messages import Share
    from rocketlens.client.search.queue_stretch import QueueStretch

TABLES: Final = ("messages", "damage", "index_entries")
"""The values of the option ``table``."""


class SharePartition(InputPartition):
    """A share of the work, in the type that Spark asks for."""

    def __init__(self, share: "Share | QueueStretch | None") -> None:
        """Wrap ``share``."""
        super().__init__(share)
