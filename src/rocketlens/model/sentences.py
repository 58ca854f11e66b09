"""The sentences of stories: each has a name and values, and is its English text.

A caller that only shows or compares text needs to know nothing of this: a `Sentence` is a `str`.
One that has another language finds its own text for ``name`` and puts ``values`` in it; a value
that is itself a sentence is a part of the text, in the same language.
"""

from collections.abc import Mapping
from typing import Final, Self

SENTENCES: Final[Mapping[str, str]] = {
    # What happened: records.
    "sent": "sent from {host}{by}{made}",
    "sent_by": " by producer group {group}",
    "key_made_on": "; its unique key was made on {address}",
    "stored": "stored as {at}",
    "stored_again": "stored again as {at}",
    "committed": "transaction committed, stored as {at}",
    "committed_again": "transaction committed, stored again as {at}",
    "half": "half message in {at} for topic {topic}{checked}",
    "half_checked": ", checked {times} times",
    "given_up": "the broker gave its transaction up after too many checks, and keeps it in {at}",
    "delayed": "{waits} in {at} for topic {topic}",
    "given_back": "given back by group {group}: retry {number} {waits} in {at}",
    "waits": "waits",
    "waits_until": "waits until {from_ms} (epoch ms)",
    "waits_at_level": "waits at delay level {level}",
    "waits_at_level_for": "waits at delay level {level}, {delay} by default,",
    "retry_stored": "retry {number} of group {group} stored as {at}",
    "dead_letter_stored": "dead letter of group {group}: {at}",
    # What happened: traces.
    "sent_to": "producer group {group} at {address} sent it to {host} in {ms} ms",
    "sending_failed": "producer group {group} at {address} sent it to {host} in {ms} ms, and was "
    "told that it failed",
    "transaction_ended": "producer group {group} at {address} ended the transaction: {state}",
    "transaction_ended_when_asked": "producer group {group} at {address} ended the transaction "
    "when it was asked: {state}",
    "recalled": "producer group {group} at {address} recalled it",
    "recall_failed": "producer group {group} at {address} recalled it, which failed",
    "delivery": "group {group}: {outcome}{retry}",
    "delivery_retry": " (retry {number})",
    "handed_out": "handed to client {client}, which did not tell how it ended",
    "consumed_by": "consumed by client {client}{took}",
    "consume_failed": "client {client} failed to consume it{took}{why}",
    "took": " in {ms} ms",
    "because": ": {why}",
    "too_late": "too late",
    "exception": "an exception",
    "null_returned": "null returned",
    # What a state of a group rests on: copies and traces.
    "dead_letter_is": "its dead letter is {at}",
    "reported": "its client {client} reported it",
    "reported_at_retry": "its client {client} reported it, at retry {number}",
    "retry_waits": "retry {number} is {at}, waiting",
    "retry_waits_at_level": "retry {number} is {at}, waiting, delay level {level}",
    "retry_unknown": "retry {number} is {at}; whether it had it is not known",
    "retry_done": "retry {number} is {at}; it goes on there at {offset}, and gave it back no more",
    "retry_not_yet": "retry {number} is {at}, and was not consumed yet",
    "with_outcome": "{rests_on}; {outcome}",
    # What a state of a group rests on: offsets and clients.
    "offsets_unknown": "its offsets are not known",
    "broadcasts": "it consumes by broadcasting: its clients keep their offsets themselves",
    "no_offset_in_topic": "it has no offset in topic {topic}",
    "no_offset_nor_subscription": "it has no offset in topic {topic}, and its clients do not "
    "subscribe to it",
    "no_offset_in_queue": "it has no offset in this queue",
    "goes_on": "it goes on at offset {offset}",
    "and_offline": "{offset}; no client is online",
    "and_not_subscribed": "{offset}; its clients do not subscribe to the topic now",
    "passed_filtered": "it goes on at offset {offset}; its clients subscribe to {expression}",
    "passed_unsubscribed": "it goes on at offset {offset}; its clients subscribe to nothing",
    "passed_by_reset": "it goes on at offset {offset}, but its last pull began at {began}: a reset "
    "moved it past",
    "passed_offline": "it goes on at offset {offset}; no client is online: it consumed it before, "
    "or a reset skipped it",
    "passed_subscribed": "it goes on at offset {offset}, and its clients subscribe to it; a reset "
    "would look the same",
    "passed_not_subscribed": "it goes on at offset {offset}, but its clients do not subscribe to "
    "the topic now",
    "passed_unrecorded": "it goes on at offset {offset}; whether it consumed it, or filtered or "
    "skipped it, is not recorded",
    # Who said it.
    "by_record": "its record",
    "by_log": "commit log",
    "by_log_of": "commit log of {source}",
    "by_brokers": "its brokers (208)",
    "by_connections": "its connections (203)",
    "by_both": "{offsets}, {clients}",
    # Why it came more than once.
    "same_key": "{at} has the same unique key as {first}: {why}",
    "resent_by_job": "a resend by RocketLens, job {job}",
    "producer_retry": "a producer's retry: sent {seconds} s after the first from {address}, the "
    "same host",
    "resent": "a resend: sent {seconds} s after the first from {address}",
    "handed_out_again": "{what} was handed out {times} times, to {clients}: {why}",
    "one_offset": "one offset",
    "one_retry": "retry {number}",
    "rebalanced": "the queue went to another client before the first had committed its offset "
    "(a rebalance, or a client that ended)",
    "not_acknowledged": "its acknowledgement failed, or the client began anew before it had "
    "committed",
    # What could not be learnt, and why.
    "copies": "copies of the message",
    "no_unique_key": "it has no unique key, by which its copies could be looked up",
    "first_stored": "how it was first stored",
    "first_is_gone": "only {topic} has it; the first record ({msg_id}) is gone",
    "all_records": "all records of the message",
    "too_many_matches": "more than {count} messages match {query}: the oldest were left out",
    "too_many_records": "more than {count} records have its unique key: the oldest were left out",
    "copies_elsewhere": "copies that were sent to one of {count} other topics",
    "some_topics": "only {count} topics were searched: its own, those of retries and dead letters "
    "of groups of its topic, and those of delays and transactions{more}",
    "find_searches_all": "; find {unique_key} searches all",
    "trace": "its trace",
    "part_of_trace": "part of its trace",
    "trace_damaged": "a trace message has {damage}",
    "said_by_clients": "what its clients said they did (trace)",
    "not_in_trace": "topic {topic} has none of it: clients write traces only if that is switched "
    "on",
    "no_trace_topic": "topic {topic} does not exist: clients write traces only if that is switched "
    "on",
    "groups_did": "what groups did",
    "group_did": "what group {group} did",
    "online_clients": "which clients were online, and what they subscribed to",
    "not_in_files": "no file of a store says that",
    "part_of_story": "a part of its story",
    "not_shown": "why is shown to users who may see every topic",
}
"""Every sentence by its name, with its values in braces."""


class Sentence(str):
    """A sentence by its name in `SENTENCES`, with its values; as text it is English."""

    __slots__ = ("name", "values")
    name: str
    values: dict[str, object]

    def __new__(cls, name: str, /, **values: object) -> Self:
        """Make the sentence.

        :raises KeyError: if there is no such sentence, or a value is missing.
        """
        made = super().__new__(cls, SENTENCES[name].format(**values))
        made.name = name
        made.values = values
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, object]]:
        """Return what makes it again, for copies and pickles."""
        return (self.name,), self.values
