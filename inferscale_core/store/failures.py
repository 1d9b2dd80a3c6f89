"""Driver errors, translated once: what leaves the store is of the tree in `errors.py`.

    connection lost, refused or not free in time, lock or statement timeout,
    serialisation failure, deadlock, server shutting down                      Unavailable
    everything else                                                            StoreError

Messages carry the SQLSTATE and never the driver's own text, which may quote a row. For the same
reason a refused row's error is not chained: a traceback in a log would show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import sqlalchemy.exc

from inferscale_core.errors import InferScaleError, StoreError, Unavailable

_PASSING_CLASSES = {"08", "40", "53", "57"}
"""SQLSTATE classes: connection, transaction rollback, resources, operator intervention."""

_LOCK_NOT_AVAILABLE = "55P03"


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except InferScaleError:
        raise
    except sqlalchemy.exc.TimeoutError as exc:
        raise Unavailable("no database connection became free in time") from exc
    except sqlalchemy.exc.DBAPIError as exc:
        shown = None if _quotes_a_row(exc.orig) else exc
        raise _translate(exc.orig, invalidated=exc.connection_invalidated) from shown
    except sqlalchemy.exc.SQLAlchemyError as exc:
        raise StoreError(f"the database layer failed: {type(exc).__name__}") from exc
    except psycopg.Error as exc:
        raise _translate(exc, invalidated=False) from (None if _quotes_a_row(exc) else exc)


def _quotes_a_row(cause: BaseException | None) -> bool:
    return isinstance(cause, psycopg.Error) and cause.diag.message_detail is not None


def _translate(cause: BaseException | None, *, invalidated: bool) -> InferScaleError:
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    if state is None:
        if invalidated or isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
            return Unavailable("the database connection was lost or refused")
        return StoreError(f"the database driver failed: {type(cause).__name__}")
    if state[:2] in _PASSING_CLASSES or state == _LOCK_NOT_AVAILABLE or invalidated:
        return Unavailable(f"the database is busy or restarting (SQLSTATE {state})")
    return StoreError(f"the database refused a statement (SQLSTATE {state})")
