"""``rocketlens find --cursor``: the messages of an archive in parts, each going on behind the last.

The cursor of a search holds the version of the archive that it began with: what is archived
meanwhile changes nothing. That of a look-up holds the message that came last. Each comes once.
Apart from `find`, which starts without it.
"""

import sys
from argparse import Namespace
from itertools import islice
from typing import TYPE_CHECKING, Final

from rocketlens.cli.message_output import MessageOutput
from rocketlens.errors import BadInput
from rocketlens.terminal.output import discard_stdout, note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketlens.model.answer import Answer
    from rocketlens.model.message import MessageExt
    from rocketlens.query.request import FindRequest
    from rocketlens.terminal.search_progress import SearchProgress

BEGIN: Final = "begin"


def print_page(
    arguments: Namespace, request: "FindRequest", output: MessageOutput
) -> "tuple[SearchProgress, Answer, int]":
    """Print up to ``--max`` messages behind a cursor, the oldest first, and the next cursor.

    Return what was searched, and how many there were.

    :raises BadInput: without an archive, or beside another source.
    """
    from rocketlens.archive.archive import open_archive
    from rocketlens.cli.source import is_merged
    from rocketlens.model.answer import Answer
    from rocketlens.terminal.as_json import answer_fields, json_line
    from rocketlens.terminal.notes import print_notes
    from rocketlens.terminal.search_progress import SearchProgress

    if not arguments.archive or is_merged(arguments):
        raise BadInput("--cursor is for an archive alone: give --archive DIR and no other source")
    is_object = arguments.output == "json"
    if is_object and arguments.max is None:
        raise BadInput("--cursor with -o json needs --max N: one object has to fit into memory")
    token = None if arguments.cursor == BEGIN else arguments.cursor
    with SearchProgress() as progress, open_archive(arguments.archive) as archive:
        find = archive.scan_for if request.text is None else archive.look_up_for
        scan = find(request, cursor=token)
        scan.on_read = progress.report
        page = _Counted(islice(scan, arguments.max))
        if is_object:
            messages = list(page)
            fields = answer_fields(Answer(request.query, (), scan.coverage_so_far))
            head = json_line({**fields, "cursor": scan.cursor})
            sys.stdout.write(f'{head[:-1]},"messages":')
            output.print_array(messages)
            sys.stdout.write("}\n")
        else:
            try:
                output.print_all(page)
                sys.stdout.flush()
            except BrokenPipeError:
                # The reader did not get the last messages: a cursor behind them would skip them.
                discard_stdout()
                return progress, Answer(request.query, (), scan.coverage_so_far), page.count
        sys.stdout.flush()
        progress.end()
        answer = Answer(request.query, (), scan.coverage_so_far)
        if not is_object or not answer.complete:
            print_notes(answer, page.count)
        if scan.cursor is not None and not is_object:
            note(f"to go on: --cursor {scan.cursor}")
        return progress, answer, page.count


class _Counted:
    def __init__(self, messages: "Iterator[MessageExt]") -> None:
        self._messages: Final = messages
        self.count = 0

    def __iter__(self) -> "Iterator[MessageExt]":
        for message in self._messages:
            self.count += 1
            yield message
