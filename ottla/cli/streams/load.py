"""The application in a program's file, for tools that run or describe it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from types import ModuleType

    from ottla.streams import Application


def load(program: str) -> Application:
    """Load the application of `FILE` or `FILE:NAME`. OttlaError says what the file lacks.

    NAME is an application, or a function without arguments that returns one. Without NAME the file must hold exactly
    one application, or else such a function named `program` or `app`.
    """
    file, _, name = program.partition(":")
    path = Path(file)
    if path.is_dir():
        raise OttlaError(f"{file} is a directory: name the file of the program in it")
    if not path.is_file():
        raise OttlaError(f"there is no file {file}: `ottla streams run` takes the Python file of a program")
    module = _module(path)
    return _named(module, file, name) if name else _only(module, file)


def _module(path: Path) -> ModuleType:
    from ottla.streams.application import reading

    name = f"ottla_program_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise OttlaError(f"{path} is not a Python file (expected a name that ends in .py)")
    sys.path.insert(0, str(path.parent.resolve()))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    token = reading.set(True)
    try:
        with _own_errors(path, spec.origin):
            spec.loader.exec_module(module)
    finally:
        reading.reset(token)
    return module


@contextmanager
def _own_errors(path: object, origin: str | None) -> Iterator[None]:
    """Name the line of the program's file where it raised an error."""
    try:
        yield
    except OttlaError:
        raise
    except SyntaxError as error:
        raise OttlaError(f"{path}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        steps = traceback.extract_tb(error.__traceback__)
        own = [step for step in steps if step.filename == origin]
        where = f"{path}:{own[-1].lineno}" if own else str(path)
        raise OttlaError(f"{where}: {type(error).__name__}: {error}") from error


def _named(module: ModuleType, file: str, name: str) -> Application:
    from ottla.streams import Application

    value = getattr(module, name, None)
    if value is None:
        raise OttlaError(f"{file} does not define {name}{_there(module)}")
    if callable(value) and not isinstance(value, Application):
        with _own_errors(file, module.__file__):
            value = value()
    if not isinstance(value, Application):
        kind = type(value).__name__
        raise OttlaError(
            f"{name} in {file} is of type {kind} (expected an application, the result of StreamsBuilder.build)"
        )
    return value


def _only(module: ModuleType, file: str) -> Application:
    from ottla.streams import Application

    there = _applications(module)
    if len(there) == 1:
        application = getattr(module, there[0])
        assert isinstance(application, Application)
        return application
    if there:
        raise OttlaError(f"{file} has several applications ({', '.join(there)}): name one, as in {file}:{there[0]}")
    for name in ("program", "app"):
        if callable(getattr(module, name, None)):
            return _named(module, file, name)
    raise OttlaError(
        f"{file} has no application: assign the result of StreamsBuilder.build to a name, as in "
        'app = builder.build(application_id="...")'
    )


def _applications(module: ModuleType) -> list[str]:
    from ottla.streams import Application

    names_by_id: dict[int, str] = {}
    for name, value in vars(module).items():
        if isinstance(value, Application):
            names_by_id.setdefault(id(value), name)
    return list(names_by_id.values())


def _there(module: ModuleType) -> str:
    there = _applications(module)
    return f"; it defines {', '.join(there)}" if there else ""
