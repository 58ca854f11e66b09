"""Answers as HTML tables in notebooks, and as pandas frames."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rocketlens.model.arrow import package
from rocketlens.model.message import utc_datetime
from rocketlens.model.text.escape import printable

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd

_SHOWN_ROWS: Final = 20
_SHOWN_CHARACTERS: Final = 100


class TableView:
    """An object that notebooks show as a table, with its ``repr`` below."""

    __slots__ = ()
    _titles: ClassVar[tuple[str, ...]] = ()

    def _rows(self) -> Iterable[Sequence[object]]:
        """Return the rows, with one value per title; times are datetimes in UTC."""
        return ()

    def _remarks(self) -> Iterable[str]:
        """Return lines to show below the table."""
        return ()

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows as a pandas DataFrame.

        :raises PackageMissing: if pandas is not installed.
        """
        pandas: Any = package("pandas", "pandas", "to_pandas")
        frame: pd.DataFrame = pandas.DataFrame(list(self._rows()), columns=list(self._titles))
        return frame

    def _repr_html_(self) -> str:
        """Return an HTML table of the first rows."""
        # Late imports, also below: commands that print text need neither.
        from html import escape

        rows = list(islice(self._rows(), _SHOWN_ROWS + 1))
        lines = (
            "".join(f"<td>{escape(printable(cell(value)))}</td>" for value in row)
            for row in rows[:_SHOWN_ROWS]
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        head = "".join(f"<th>{title}</th>" for title in self._titles)
        more = f"<p>the first {_SHOWN_ROWS} rows only</p>" if len(rows) > _SHOWN_ROWS else ""
        remarks = "".join(f"<li>{escape(printable(each))}</li>" for each in self._remarks())
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
            f"<p>{escape(printable(repr(self)))}</p>" + (f"<ul>{remarks}</ul>" if remarks else "")
        )


def utc_time(epoch_ms: int | None) -> "datetime | None":
    """Return a datetime in UTC; None for None, and outside the range of datetime."""
    try:
        return None if epoch_ms is None else utc_datetime(epoch_ms)
    except OverflowError:
        return None


def cell(value: object) -> str:
    """Return the text of a table cell: times in milliseconds, long texts shortened."""
    from datetime import datetime

    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
