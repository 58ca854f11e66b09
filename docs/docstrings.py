"""Turn docstrings into Markdown for the page of the Python API. An extension of griffe."""

from typing import Any

import griffe

from docs.generate import markdown_of


class MarkdownDocstrings(griffe.Extension):
    """Rewrites each docstring after it was read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute. griffe calls this."""
        if obj.docstring is not None:
            obj.docstring.value = markdown_of(obj.docstring.value)
