"""Checks that an object store refuses to overwrite an object where it is asked not to.

A commit of Delta is a put with ``If-None-Match: *``: of two archivers that commit one version at
once, the store has to refuse one. A store that ignores the header lets the second overwrite the
commit of the first, and both believe that theirs is there. So a probe is put twice before a job
begins. Amazon's own stores are not asked: they know the header.
"""

import re
import uuid
from contextlib import suppress
from typing import Final

from rocketlens.archive.location import ArchiveLocation
from rocketlens.errors import ArchiveError
from rocketlens.model.arrow import package

_CAUSE: Final = re.compile(r'message: "([^"]*)"')
"""Finds the message of the operating system in an error of obstore."""


def check_conditional_put(location: ArchiveLocation) -> bool:
    """Check that the object store of an archive refuses a second put; return False if that cannot
    be checked, because the environment has no keys.

    A directory and Amazon S3 need no check.

    :raises ArchiveError: if the store does not refuse it, or the probe cannot be written.
    :raises PackageMissing: if obstore is not installed.
    """
    if not location.is_remote or location.endpoint is None:
        return True
    if not location.has_keys:
        return False
    obstore = package("obstore", "archive", "an archive in an object store")
    store = obstore.store.from_url(location.root, **location.store_options)
    probe = f"_probe-{uuid.uuid4()}"
    try:
        obstore.put(store, probe, b"", mode="create")
        with suppress(obstore.exceptions.AlreadyExistsError):
            obstore.put(store, probe, b"", mode="create")
            raise ArchiveError(
                f"{location.root}: the object store {location.endpoint} ignores If-None-Match: it "
                "let a second put overwrite the first, and so would let one archiver overwrite "
                "what another committed. Use a store that refuses such puts, as Amazon S3 and "
                "MinIO do, or a directory"
            )
    except obstore.exceptions.BaseError as error:
        said, _, details = str(error).partition("\n\n")
        cause = _CAUSE.search(details)
        reason = location.reason(error if cause is None else OSError(f"{said}: {cause[1]}"))
        raise ArchiveError(
            f"{location.root}: the object store {location.endpoint} does not take a put with "
            f"If-None-Match: {reason}"
        ) from None
    finally:
        with suppress(obstore.exceptions.BaseError):
            obstore.delete(store, probe)
    return True
