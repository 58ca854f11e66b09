"""Prepares the page of the Python API: converts docstrings to Markdown, shows settings as
arguments.

An extension of griffe, which reads the code without running it.
"""

from collections.abc import Iterator
from typing import Any

import griffe

from docs.generate import markdown_of
from rocketlens.client.blocking.blocking_client import blocking_doc

_MAKERS = {"waits", "calls", "iterates"}
"""The functions that turn an async method into a blocking one."""


class MarkdownDocstrings(griffe.Extension):
    """Rewrites docstrings, Structs and blocking clients."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of an object. Called by griffe."""
        if obj.docstring is not None:
            obj.docstring.value = markdown_of(obj.docstring.value)

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show the fields of a Struct as arguments, as for dataclasses. Called by griffe."""
        if any(str(base) in {"Struct", "msgspec.Struct"} for base in cls.bases):
            arguments = [griffe.ExprKeyword(*each) for each in cls.keywords.items()]
            call = griffe.ExprCall(griffe.ExprName("dataclass", "dataclasses"), arguments)
            cls.decorators.append(griffe.Decorator(call, lineno=None, endlineno=None))

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Add the arguments and methods that decorators create. Called by griffe."""
        for client in _classes(pkg):
            for name, member in list(client.members.items()):
                if _is_blocking(member):
                    client.set_member(name, _blocking_method(member, pkg))
            init = client.members.get("__init__")
            if not isinstance(init, griffe.Function):
                continue
            for argument in _arguments(init, "takes_settings"):
                settings = pkg.modules_collection[argument.canonical_path]
                own = init.parameters["self"]
                init.parameters = griffe.Parameters(own, *_parameters_of(settings))


def _arguments(decorated: griffe.Class | griffe.Function, name: str) -> Iterator[Any]:
    """Yield the first argument of each decorator of a name."""
    for decorator in decorated.decorators:
        call = decorator.value
        if isinstance(call, griffe.ExprCall) and str(call.function) == name:
            yield call.arguments[0]


def _is_blocking(member: Any) -> bool:
    """Return True if an attribute is a method made from an async client's method."""
    value = member.value if isinstance(member, griffe.Attribute) else None
    return isinstance(value, griffe.ExprCall) and str(value.function) in _MAKERS


def _blocking_method(member: Any, pkg: griffe.Module) -> griffe.Function:
    """Return the method, with the arguments and the docstring of the async one."""
    path, _, name = member.value.arguments[0].canonical_path.rpartition(".")
    original = pkg.modules_collection[path].all_members[name]
    returns = original.returns
    if len(member.value.arguments) > 1:
        returns = member.value.arguments[1]
    made = griffe.Function(
        member.name,
        parameters=original.parameters,
        returns=returns,
        lineno=member.lineno,
        endlineno=member.endlineno,
    )
    if original.docstring is not None:
        made.docstring = griffe.Docstring(blocking_doc(original.docstring.value), parent=made)
    return made


def _parameters_of(settings: griffe.Class) -> list[griffe.Parameter]:
    """Return the fields of a Struct, base classes first; the first field is positional."""
    fields: dict[str, griffe.Parameter] = {}
    for part in reversed([settings, *settings.mro()]):
        for name, field in part.members.items():
            is_field = isinstance(field, griffe.Attribute) and "property" not in field.labels
            if is_field and field.annotation:
                fields[name] = griffe.Parameter(
                    name,
                    annotation=field.annotation,
                    kind=griffe.ParameterKind.keyword_only,
                    default=str(field.value) if field.value is not None else None,
                )
    fields["name_servers"].kind = griffe.ParameterKind.positional_or_keyword
    return list(fields.values())


def _classes(module: griffe.Module) -> Iterator[griffe.Class]:
    for member in module.members.values():
        if isinstance(member, griffe.Class):
            yield member
        elif isinstance(member, griffe.Module):
            yield from _classes(member)
