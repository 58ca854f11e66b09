"""Finds messages by key or unique key: index files and memory first, then the log decides."""

from collections import deque
from collections.abc import Collection, Iterator

from rocketlens import limits
from rocketlens.errors import BadInput, IndexFileError, RecordError
from rocketlens.formats.commitlog_record import Reason, Record, message_of
from rocketlens.formats.index_keys import key_hash
from rocketlens.model.answer import Answer
from rocketlens.model.arguments import check_int
from rocketlens.model.message import MessageExt
from rocketlens.query.held import held_bytes
from rocketlens.query.source import StoreSource
from rocketlens.query.verify import Wanted
from rocketlens.store.read.index_files import CorruptIndexFile, Hit, newest_first
from rocketlens.store.read.tail import Tail

_Evidence = Hit | None
"""The index entry that led to an offset; None when the memory did."""


def check_key(key: str) -> None:
    """Refuse what can be no key.

    :raises BadInput: when it is empty, or longer than a record's properties can be.
    """
    if not key:
        message = "the key is empty: give the order number or id the message was sent with"
        raise BadInput(message)
    size = len(key.encode("utf-8", "surrogatepass"))
    if size > limits.MAX_KEY_BYTES:
        message = (
            f"the key has {size} bytes; a message can hold keys of {limits.MAX_KEY_BYTES} at most"
        )
        raise BadInput(message)


def check_max_num(max_num: int | None) -> None:
    """Refuse a negative number of messages.

    :raises WrongType: when it is no number.
    :raises BadInput: when it is negative.
    """
    if max_num is not None and check_int(max_num, "max_num") < 0:
        message = f"max_num is {max_num}; give how many messages you want, or nothing for all"
        raise BadInput(message)


def query_by_key(
    source: StoreSource,
    query: str,
    wanted: Wanted,
    max_num: int | None = None,
    *,
    oldest: bool = False,
) -> Answer:
    """Give the messages that have the wanted key or unique key.

    With no topic wanted, every topic that the store knows is searched. With more than ``max_num``
    of them, or more than an answer can hold, the newest are given; with ``oldest`` the oldest one
    alone. An index file that turns out to be damaged on the way is left,
    and its part of the log read instead.

    :raises BadInput: when the key can be none, or ``max_num`` is negative.
    """
    text = wanted.key if wanted.key is not None else wanted.unique_key
    check_key(text or "")
    check_max_num(max_num)
    log_end_offset = source.least_end(source.tail_end)
    while True:
        topics = {wanted.topic} if wanted.topic is not None else wanted.topics
        named = source.topics.known() if topics is None else topics
        hashes = {key_hash(topic, text or "") for topic in named}
        search = _Search(source, wanted, max_num, log_end_offset, oldest=oldest)
        try:
            answer = search.answer(query, hashes)
        except CorruptIndexFile as rejected:
            source.reject_index_file(rejected)
            continue
        if answer.messages or topics is not None or not source.topics.may_be_more():
            return answer
        source.topics.read_log()


class _Search:
    """One attempt: candidates by hash, each verified, newest first, cut once."""

    def __init__(
        self,
        source: StoreSource,
        wanted: Wanted,
        max_num: int | None,
        log_end_offset: int,
        *,
        oldest: bool,
    ) -> None:
        self._source = source
        self._wanted = wanted
        self._max_num = max_num
        self._log_end_offset = log_end_offset
        self._oldest = oldest
        self._failures: list[str] = []
        self._truncated = False

    def answer(self, query: str, hashes: Collection[int]) -> Answer:
        """Search for entries with one of these hashes.

        :raises CorruptIndexFile: when an index file turns out to be damaged.
        """
        # The memory first: bringing it up to date can bring new index files, which it leaves out.
        tail = self._source.tail
        messages = self._messages(hashes, tail)
        if not messages:
            self._source.index.count_slots()
        coverage = self._source.key_coverage(tail, self._log_end_offset)
        if self._wanted.topic is None and self._wanted.topics is None:
            coverage += tuple(self._source.topics.coverage(is_found=bool(messages)))
        coverage += tuple(self._source.log_failures(self._failures))
        return Answer(
            query,
            tuple(reversed(messages)),
            coverage,
            truncated=self._truncated,
            index_last_update_timestamp_ms=max((c.indexed_to_ms or 0 for c in coverage), default=0),
        )

    def _messages(self, hashes: Collection[int], tail: Tail) -> list[MessageExt]:
        """Return the wanted messages, newest first, with no look at what is older."""
        messages: list[MessageExt] = []
        if self._oldest:
            # The last of these; the others are not decompressed.
            return [message_of(record) for record in deque(self._records(hashes, tail), maxlen=1)]
        size = 0
        for record in self._records(hashes, tail):
            if len(messages) == self._max_num:
                self._truncated = True
                break
            message = message_of(record)
            size += held_bytes(message)
            if size > limits.MAX_ANSWER_BYTES:
                self._truncated = True
                break
            messages.append(message)
        return messages

    def _records(self, hashes: Collection[int], tail: Tail) -> Iterator[Record]:
        """Return the wanted records, newest first."""
        source = self._source
        for offset, evidence in newest_first(source.index.find(hashes), tail.find(hashes)):
            if offset < source.log.min_offset:
                break
            record = self._read(offset, evidence)
            if record is not None:
                yield record

    def _read(self, offset: int, evidence: _Evidence) -> Record | None:
        """Give the record at an offset if it is wanted; account for one that is damaged."""
        try:
            record = self._source.log.record_at(offset)
        except RecordError as error:
            if offset < self._source.log.min_offset:
                return None
            if error.reason != Reason.CRC:
                self._check(evidence)
                self._failures.append(str(error))
            elif self._wanted.matches(self._source.log.record_at(offset, check_crc=False)):
                self._failures.append(str(error))
            return None
        if not self._wanted.matches(record):
            self._check(evidence)
            return None
        return record

    def _check(self, evidence: _Evidence) -> None:
        """Make sure that an entry which led to nothing wanted is that of another key."""
        if evidence is None:
            return
        try:
            evidence.file.check_entry(self._source.log, evidence.number)
        except IndexFileError as error:
            raise CorruptIndexFile(evidence.file, error) from error
