"""`NamedTuple`: like typing's, but creating the class takes a sixth of the time.

    class Appended(NamedTuple):
        base_offset: int
        duplicate: bool = False

Rules:
- The classes behave like typing's: a tuple with `_fields`, `_make`, `_replace`, `_asdict`, getters in C, the same repr,
  equality, pickle and `match`. mypy sees `typing.NamedTuple`.
- `__new__` is compiled when the class is called for the third time: a starting node creates many of them once.

Not obvious: typing compiles `__new__` for each class at import, which takes 0.19 ms, and a starting node imports fifty
of them (docs/decisions/0540-named-tuples-are-compiled-on-first-use.md).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.implementation.name != "cpython":
    # The getters in C are CPython's.
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter
    from inspect import signature

    _new_tuple = tuple.__new__
    #: The number of the call that compiles `__new__`.
    _COMPILED_AT = 3

    def _make_new(owner):
        """Compile `__new__` as collections.namedtuple does."""
        names = ", ".join(owner._fields)
        source = f"lambda _cls, {names}: _new_tuple(_cls, ({names},))" if names else "lambda _cls: _new_tuple(_cls, ())"
        # Evaluating a text, not code, makes CPython forget that Ctrl-C ends the program: the node stops at its exit.
        code = compile(source, "<named>", "eval")
        made = eval(code, {"_new_tuple": _new_tuple, "__name__": owner.__module__})
        made.__name__, made.__qualname__ = "__new__", f"{owner.__qualname__}.__new__"
        made.__defaults__ = tuple(owner._field_defaults.values())
        if annotate := getattr(owner, "__annotate__", None):
            made.__annotate__ = annotate
        else:
            made.__annotations__ = owner.__annotations__
        owner.__new__ = staticmethod(made)
        return made

    def _new_stub(owners):
        """Return a stub of `__new__`; its third call compiles the real one, replaces itself with it, and calls it."""
        calls = 0

        def __new__(_cls, /, *arguments, **keywords):  # noqa: N807
            nonlocal calls
            calls += 1
            if calls < _COMPILED_AT and (values := _values(owners[0], arguments, keywords)) is not None:
                return _new_tuple(_cls, values)
            return _make_new(owners[0])(_cls, *arguments, **keywords)

        return __new__

    def _values(owner, arguments, keywords):
        """Return the fields' values; None if the arguments do not fit: the compiled `__new__` raises."""
        fields = owner._fields
        missing = fields[len(arguments) :]
        if len(arguments) > len(fields) or not keywords.keys() <= set(missing):
            return None
        given = {**owner._field_defaults, **keywords}
        return (*arguments, *(given[name] for name in missing)) if given.keys() >= set(missing) else None

    class _Signature:
        """`__signature__`, which the stub cannot provide."""

        def __get__(self, instance, owner):
            complete = signature(_make_new(next(cls for cls in owner.__mro__ if "_fields" in cls.__dict__)))
            return complete.replace(parameters=[*complete.parameters.values()][1:])

    def _make(cls, iterable):
        made = _new_tuple(cls, iterable)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **changes):
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            # As in typing, where the type changed with Python 3.13.
            kind = TypeError if sys.version_info >= (3, 13) else ValueError
            raise kind(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def _repr(self):
        shown = ", ".join([f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)])
        return f"{self.__class__.__name__}({shown})"

    def _getnewargs(self):
        return tuple(self)

    def _annotated(namespace):
        """Return the names of a class's fields. From Python 3.14 on, a function may yield the annotations (PEP 749)."""
        if sys.version_info >= (3, 14) and "__annotations__" not in namespace:
            from annotationlib import Format, call_annotate_function, get_annotate_from_class_namespace

            annotate = get_annotate_from_class_namespace(namespace)
            return tuple(call_annotate_function(annotate, Format.FORWARDREF)) if annotate else ()
        return tuple(namespace.get("__annotations__", ()))

    _SHARED = {
        "__slots__": (),
        "__signature__": _Signature(),
        "_make": classmethod(_make),
        "_replace": _replace,
        "__replace__": _replace,
        "_asdict": _asdict,
        "__repr__": _repr,
        "__getnewargs__": _getnewargs,
    }

    class _Maker(type):
        def __new__(cls, name, bases, namespace):
            fields = _annotated(namespace)
            defaults = {field: namespace[field] for field in fields if field in namespace}
            owners = []
            made = type(
                name,
                (tuple, *bases[1:]),
                {
                    **_SHARED,
                    **namespace,
                    **{field: _tuplegetter(at, f"Alias for field number {at}") for at, field in enumerate(fields)},
                    "_fields": fields,
                    "_field_defaults": defaults,
                    "__match_args__": fields,
                    "__new__": _new_stub(owners),
                },
            )
            owners.append(made)
            return made

    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})
