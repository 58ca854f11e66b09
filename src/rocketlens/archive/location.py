"""The location of an archive: a directory, or a prefix in an S3 bucket.

``s3://BUCKET/PREFIX`` is read and written with the variables that Amazon's own tools use:

==========================  ================================================================
``AWS_ACCESS_KEY_ID``       with ``AWS_SECRET_ACCESS_KEY`` and ``AWS_SESSION_TOKEN``; without
                            them, the credentials files or the role of the machine
``AWS_REGION``              or ``AWS_DEFAULT_REGION``; ``us-east-1`` by default
``AWS_ENDPOINT_URL_S3``     or ``AWS_ENDPOINT_URL``: the address of a store other than Amazon's
==========================  ================================================================

They are read when an archive is opened, and Spark's tasks receive them with their work. A commit
is a conditional put (``If-None-Match: *``): if two archivers commit one version at once, the store
has to refuse one of them. A store that ignores the header lets the second commit overwrite the
first, and both archivers believe that theirs succeeded. Errors of libraries are shortened to one
line, and secrets in them are replaced.
"""

import os
import re
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from rocketlens.archive.seal import SEALED, read_sealed_metadata
from rocketlens.errors import ArchiveError, BadInput
from rocketlens.late import pa, pq
from rocketlens.model.arrow import package
from rocketlens.model.text.escape import printable
from rocketlens.store.disk import Disk

if TYPE_CHECKING:
    import pyarrow.fs

JOURNAL: Final = "journal"
_S3: Final = "s3://"
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|s3:/")
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]+")
_NOT_IN_PREFIX: Final = "?#%\\"
_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_KEY: Final = "aws_access_key_id"
_SECRET: Final = "aws_secret_access_key"  # noqa: S105 - the name of an option
_TOKEN: Final = "aws_session_token"  # noqa: S105 - likewise
_REGION: Final = "aws_region"
_ENDPOINT: Final = "aws_endpoint"
_VARIABLES: Final = {
    _KEY: ("AWS_ACCESS_KEY_ID",),
    _SECRET: ("AWS_SECRET_ACCESS_KEY",),
    _TOKEN: ("AWS_SESSION_TOKEN",),
    _REGION: ("AWS_REGION", "AWS_DEFAULT_REGION"),
    _ENDPOINT: ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
CONNECT_S: Final = 5
_REQUEST_S: Final = 60
_DELTA: Final = {
    "conditional_put": "etag",
    "allow_http": "true",
    "connect_timeout": f"{CONNECT_S}s",
    "timeout": f"{_REQUEST_S}s",
    "max_retries": "3",
    "retry_timeout": f"{_REQUEST_S}s",
}
_DECORATION: Final = re.compile(r"\x1b\[[0-9;]*m|↳")
_OBSTORE_CAUSE: Final = re.compile(r'message: "([^"]*)"')
"""Matches the message of the operating system in an error of obstore."""
_S3_ERROR: Final = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)")
_MAX_REASON: Final = 300


def delta() -> Any:
    """Return the package deltalake; raise PackageMissing without it, or without pyarrow."""
    package("pyarrow", "archive", "an archive")
    return package("deltalake", "archive", "an archive")


@dataclass(frozen=True)
class ArchiveLocation:
    """The directory or the address of an archive, and the options of its object store.

    :raises OSError: in methods for files, if one cannot be read or written.
    """

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, root: str | os.PathLike[str]) -> Self:
        """Return the location, with the options that the environment gives for its object store.

        :raises BadInput: if ``root`` is neither a directory nor ``s3://BUCKET/PREFIX``.
        """
        text = os.fspath(root)
        scheme = _URI.match(text)
        if scheme is None:
            return cls(text)
        bucket, _, prefix = text[len(_S3) :].rstrip("/").partition("/")
        if not text.startswith(_S3) or not _BUCKET.fullmatch(bucket) or not prefix:
            raise BadInput(
                f"an archive of {scheme[0]}… is a directory or s3://BUCKET/PREFIX: credentials are "
                "those of the environment, such as AWS_ACCESS_KEY_ID"
            )
        _check_prefix(prefix)
        options = {
            option: value
            for option, names in _VARIABLES.items()
            if (value := next(filter(None, map(os.environ.get, names)), None))
        }
        return cls(text.rstrip("/"), {_REGION: "us-east-1", **options})

    @property
    def is_remote(self) -> bool:
        return self.root.startswith(_S3)

    @property
    def endpoint(self) -> str | None:
        """The address of the object store; None for Amazon's, and for a directory."""
        return self.options.get(_ENDPOINT)

    @property
    def delta_options(self) -> dict[str, str] | None:
        """The storage options for deltalake."""
        return {**self.options, **_DELTA} if self.is_remote else None

    def path(self, *parts: str) -> str:
        """Return the path or the address of a file or directory in the archive."""
        return "/".join((self.root, *parts)) if self.is_remote else str(Path(self.root, *parts))

    def check_path(self) -> None:
        """Check that the path is not empty, and that Delta takes it as written; else raise
        BadInput.
        """
        if not self.root:
            raise BadInput(
                "the location of the archive is empty: give a directory or s3://BUCKET/PREFIX"
            )
        if "\0" in self.root:
            raise BadInput("the directory of an archive has a zero character in it")
        if not self.is_remote and _ENCODED.search(self.root):
            raise BadInput(
                f"{printable(self.root)[:200]} has a % before two digits, which Delta reads as "
                "another character: name the directory differently"
            )

    def is_archive(self) -> bool:
        """Return whether a directory holds an archive; True for any address, without a request."""
        return self.is_remote or Path(self.root, JOURNAL, "_delta_log").is_dir()

    def may_exist(self, path: str) -> bool:
        """Return False if a file does not exist; True for any address, without a request."""
        return self.is_remote or os.path.lexists(path)

    def check_inside(self, path: str) -> None:
        """Check that a path is a regular file in the archive's own directories.

        Otherwise an archive that other users can write to could lead to files outside of it.

        :raises OSError: if it does not exist, is a link, pipe or device, or leads elsewhere.
        """
        if self.is_remote:
            return
        self._check_parent(path)
        if not stat.S_ISREG(Path(path).lstat().st_mode):
            raise OSError(f"{path} is not a regular file")

    def _check_parent(self, path: str) -> None:
        parent = Path(path).parent
        expected = Path(self.root).resolve() / parent.relative_to(self.root)
        if ".." in parent.parts or parent.resolve() != expected:
            raise OSError(f"{path} leads out of the archive")

    def check_log(self, *parts: str) -> None:
        """Check that a directory of deltalake has only regular files; else raise ArchiveError."""
        directory = Path(self.path(*parts))
        if self.is_remote or not directory.exists():
            return
        with self.archive_errors():
            self._check_parent(str(directory / "file"))
            for each in directory.iterdir():
                if not stat.S_ISDIR(each.lstat().st_mode):
                    self.check_inside(str(each))

    def parquet(
        self,
        path: str,
        file: "pa.NativeFile | None" = None,
        *,
        coded: Sequence[str] = (),
        metadata: Any = None,
    ) -> "pq.ParquetFile":
        """Open a Parquet file; ``file`` and ``metadata`` are reused if given.

        Columns in ``coded`` are read as dictionaries.

        :raises OSError: if it cannot be read.
        :raises ValueError: if it is not a Parquet file, or its sealed footer is damaged.
        """
        opened = file or self.open(path)
        with self.short_errors():
            if metadata is None and path.endswith(SEALED):
                metadata = read_sealed_metadata(opened)
            return pq.ParquetFile(
                opened,
                metadata=metadata,
                read_dictionary=coded,
                pre_buffer=self.is_remote,
                page_checksum_verification=True,
            )

    def open(self, path: str) -> "pa.NativeFile":
        """Open a file for random reads."""
        if not self.is_remote:
            self.check_inside(path)
            return pa.memory_map(path)
        with self.short_errors():
            return self._files().open_input_file(path.removeprefix(_S3))

    def create(self, path: str) -> Any:
        """Create a file and its directories; return a sink for ``ParquetWriter``."""
        if not self.is_remote:
            Disk().make_directory(Path(path).parent)
            self._check_parent(path)
            return pa.OSFile(path, "wb")
        with self.short_errors():
            return self._files().open_output_stream(path.removeprefix(_S3))

    def finish(self, path: str, sink: Any) -> int:
        """Close and sync a file of `create`; return its size."""
        if not self.is_remote:
            sink.close()
            disk = Disk()
            disk.sync_file(Path(path))
            disk.sync_directory(Path(path).parent)
            return Path(path).stat().st_size
        with self.short_errors():
            size: int = sink.tell()
            sink.close()
            return size

    def abort(self, path: str, sink: Any) -> None:
        """Close and remove a file of `create`."""
        with suppress(OSError, ValueError):
            sink.close()
        with suppress(ArchiveError):
            self.remove(path)

    def remove(self, path: str) -> bool:
        """Remove a file; return False if it does not exist. Raise ArchiveError if that fails."""
        with self.archive_errors():
            try:
                if self.is_remote:
                    self._files().delete_file(path.removeprefix(_S3))
                else:
                    self.check_inside(path)
                    Path(path).unlink()
            except FileNotFoundError:
                return False
        return True

    def check_conditional_put(self) -> bool:
        """Check, by putting a probe twice, that the object store refuses the second put.

        Return False if the environment has no keys for this. A directory and Amazon S3 need no
        check.

        :raises ArchiveError: if the store does not refuse it, or the probe cannot be written.
        :raises PackageMissing: if obstore is not installed.
        """
        if not self.is_remote or self.endpoint is None:
            return True
        if _KEY not in self.options or _SECRET not in self.options:
            return False
        obstore = package("obstore", "archive", "an archive in an object store")
        store = obstore.store.from_url(
            self.root,
            config=self.options,
            client_options={
                "allow_http": True,
                "connect_timeout": f"{CONNECT_S}s",
                "timeout": f"{_REQUEST_S}s",
            },
            retry_config={"max_retries": 0},
        )
        probe = f"_probe-{uuid.uuid4()}"
        try:
            obstore.put(store, probe, b"", mode="create")
            with suppress(obstore.exceptions.AlreadyExistsError):
                obstore.put(store, probe, b"", mode="create")
                raise ArchiveError(
                    f"{self.root}: the object store {self.endpoint} ignores If-None-Match: it let "
                    "a second put overwrite the first, and so would let one archiver overwrite "
                    "what another committed. Use a store that refuses such puts, as Amazon S3 and "
                    "MinIO do, or a directory"
                )
        except obstore.exceptions.BaseError as error:
            said, _, details = str(error).partition("\n\n")
            cause = _OBSTORE_CAUSE.search(details)
            reason = self.reason(error if cause is None else OSError(f"{said}: {cause[1]}"))
            raise ArchiveError(
                f"{self.root}: the object store {self.endpoint} does not take a put with "
                f"If-None-Match: {reason}"
            ) from None
        finally:
            with suppress(obstore.exceptions.BaseError):
                obstore.delete(store, probe)
        return True

    def _files(self) -> "pyarrow.fs.S3FileSystem":
        return _s3_files(tuple(sorted(self.options.items())))

    @contextmanager
    def archive_errors(self) -> Iterator[None]:
        """Convert errors of deltalake and of an object store to `ArchiveError`, in one line."""
        errors = (delta().exceptions.DeltaError, OSError)
        try:
            yield
        except errors as error:
            text = f"{self.root}: {self.reason(error)}"
            # The error of an object store's library can contain secrets.
            raise ArchiveError(text) from None if self.is_remote else error

    @contextmanager
    def short_errors(self, path: str = "") -> Iterator[None]:
        """Shorten errors of reading or writing a file to one line, which begins with ``path``."""
        try:
            yield
        except OSError as error:
            text = f"{path}: {self.reason(error)}" if path else self.reason(error)
            raise type(error)(text) from None if self.is_remote else error

    def reason(self, error: Exception) -> str:
        """Describe an error in one line, without secrets."""
        s3_error = _S3_ERROR.search(str(error))
        if s3_error is not None:
            text = f"the object store says {s3_error[1]}: {s3_error[2].strip()}"
        else:
            lines = [_DECORATION.sub("", each).strip() for each in str(error).splitlines()]
            shown = [each for each in lines if each] or [type(error).__name__]
            text = shown[0] if len(shown) == 1 else f"{shown[0]}: {shown[-1]}"
            # Delta's kernel adds these prefixes to errors of the operating system.
            text = text.removeprefix("Kernel error -> ").removeprefix("Kernel error: ")
        for option in (_SECRET, _TOKEN, _KEY):
            if self.options.get(option):
                text = text.replace(self.options[option], "***")
        return text[:_MAX_REASON]


def _check_prefix(prefix: str) -> None:
    """Check that all programs read an address with this prefix alike; else raise BadInput."""
    odd = next((each for each in prefix if each in _NOT_IN_PREFIX or not each.isprintable()), None)
    if odd is not None:
        raise BadInput(
            f"the prefix of an archive has {odd!r}, which not all programs read alike: use "
            "letters, digits, - _ . and /"
        )
    if not all(part.strip(".") for part in prefix.split("/")):
        raise BadInput("the prefix of an archive has an empty part, or a part of dots only")


@cache
def _s3_files(options: tuple[tuple[str, str], ...]) -> "pyarrow.fs.S3FileSystem":
    from pyarrow.fs import S3FileSystem

    named = dict(options)
    endpoint = urlsplit(named.get(_ENDPOINT, "https:"))
    return S3FileSystem(
        access_key=named.get(_KEY),
        secret_key=named.get(_SECRET),
        session_token=named.get(_TOKEN),
        region=named[_REGION],
        scheme=endpoint.scheme,
        endpoint_override=endpoint.netloc or None,
        connect_timeout=CONNECT_S,
        request_timeout=_REQUEST_S,
    )
