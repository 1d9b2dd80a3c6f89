"""Every error a caller may need to tell apart.

    InferScaleError
    ├── InvalidInput          bad input; names the field and the limit        INVALID_ARGUMENT
    ├── NotFound              no such memory, conversation, turn, key, …      NOT_FOUND
    ├── AlreadyDeleted        a replay of a request whose fact was deleted    NOT_FOUND
    ├── RevisionConflict      the fact moved on since the caller read it      ABORTED
    ├── AnswerWithdrawn       memory that an answer had seen was deleted      ABORTED
    ├── QuotaExceeded         a tenant's limit is reached                     RESOURCE_EXHAUSTED
    ├── Unauthenticated       no credential, or one that is not valid         UNAUTHENTICATED
    ├── PermissionDenied      the credential does not allow this call         PERMISSION_DENIED
    ├── Unsupported           a model, layout or setting we refuse by name    FAILED_PRECONDITION
    ├── Incompatible          two parts that may not work together            FAILED_PRECONDITION
    ├── WorkerIdTaken         another process works under a worker's id       FAILED_PRECONDITION
    ├── Unavailable           a part is down or draining; try again           UNAVAILABLE
    ├── DeadlineExceeded      time is up; a write may have been made          DEADLINE_EXCEEDED
    ├── StoreError            the database failed                             UNAVAILABLE
    └── EngineError           the engine failed one request                   INTERNAL

Messages name ids, fields and limits, never the text of a fact, prompt or answer.
"""

from __future__ import annotations


class InferScaleError(Exception):
    """Base of the tree. `code` is stable: clients and dashboards may match on it."""

    code = "internal"


class InvalidInput(InferScaleError):
    """The caller's input cannot be accepted. Nothing was written."""

    code = "invalid_input"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class NotFound(InferScaleError):
    code = "not_found"

    def __init__(self, kind: str, identifier: str) -> None:
        super().__init__(f"{kind} {identifier!r} does not exist")
        self.kind = kind
        self.identifier = identifier


class AlreadyDeleted(InferScaleError):
    """A request id is replayed whose fact has been deleted since."""

    code = "already_deleted"

    def __init__(self, fact_id: str) -> None:
        super().__init__(f"memory {fact_id!r} was stored by this request, and deleted since")
        self.fact_id = fact_id


class RevisionConflict(InferScaleError):
    code = "revision_conflict"

    def __init__(self, fact_id: str, expected: int, actual: int) -> None:
        super().__init__(f"memory {fact_id!r} is at revision {actual}, not {expected}")
        self.fact_id = fact_id
        self.expected = expected
        self.actual = actual


class AnswerWithdrawn(InferScaleError):
    """A chat was ended because what it was answering from was deleted. Asked again, it is answered
    without; what came of the answer had seen it."""

    code = "answer_withdrawn"


class QuotaExceeded(InferScaleError):
    code = "quota_exceeded"

    def __init__(self, quota: str, limit: int) -> None:
        super().__init__(f"quota {quota} is exhausted: the limit is {limit}")
        self.quota = quota
        self.limit = limit


class Unauthenticated(InferScaleError):
    code = "unauthenticated"


class PermissionDenied(InferScaleError):
    code = "permission_denied"


class Unsupported(InferScaleError):
    """A model, rotary variant, cache layout or setting that we refuse, by name."""

    code = "unsupported"


class Incompatible(InferScaleError):
    """Two parts state different models, recipes or embedders."""

    code = "incompatible"


class WorkerIdTaken(InferScaleError):
    """A worker that has been replaced ends; one that has just started waits for the other's lease.

    address: where the other is reached, empty when the worker was removed.
    """

    code = "worker_id_taken"

    def __init__(self, worker_id: str, address: str) -> None:
        other = f"the instance at {address}" if address else "none any more: it was removed"
        super().__init__(f"worker id {worker_id!r} belongs to {other}")
        self.worker_id = worker_id
        self.address = address


class Unavailable(InferScaleError):
    code = "unavailable"


class DeadlineExceeded(InferScaleError):
    """Time is up. A write may or may not have been made: repeat it with its request id."""

    code = "deadline_exceeded"


class StoreError(InferScaleError):
    code = "store"


class EngineError(InferScaleError):
    code = "engine"
