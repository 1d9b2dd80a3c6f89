"""Postgres: the only source of truth. Signatures below are being implemented in this folder."""

# # Store interface (STORE -> CONTROL). Domain objects: memory/{tenants,encoding,changes,deletion,workers,facts}.py
# 
# from inferscale_core.store import Store, JobQueue, JobHandlers, EncodeJob, ForgetJob, content_hash, new_id
# 
# Embedding = npt.NDArray[np.float32]      # 1-D, checked (NaN, inf, zero, dimension) before SQL -> InvalidInput("embedding", ..)
# 
# class Store:
#     def __init__(self, settings: DatabaseSettings, embedding_dimension: int, url: str | None = None)
#     async def check() -> None                       # role, schema version, dimension; raises Unsupported / Unavailable
#     def transaction(tenant_id) -> AsyncContextManager[TenantTransaction]   # commits at the end, rolls back on exception
#     def snapshot(tenant_id)    -> AsyncContextManager[TenantTransaction]   # read only, REPEATABLE READ (list_changes needs it)
#     def system()               -> AsyncContextManager[SystemTransaction]   # no tenant: workers, key lookup, sweep
#     async def authenticate(secret_hash: str) -> ApiKey | None              # live keys only; hash = sha256 hex of secret
#     async def close()
# 
# class TenantTransaction:            # one tenant, one transaction; repositories never commit
#     tenant_id
#     tenants:   create(tenant: Tenant) -> Tenant | get() -> Tenant (NotFound) (num_facts filled) | set_quotas(quotas) -> Tenant
#     api_keys:  add(key_id, label, secret_hash) -> ApiKey | list() -> list[ApiKey] | revoke(key_id) -> ApiKey (NotFound)
#     users:     state(user_id) -> UserState          # UserState(0, 0) for a user nobody has written
#     facts:     add(user_id, new: NewFact, embedding) -> AddedFact(fact, already_existed)      # QuotaExceeded, NotFound(turn)
#                get(user_id, fact_id) -> Fact (NotFound)
#                replayed(user_id, fact_id) -> Fact (AlreadyDeleted)       # for a replayed request id
#                page(user_id, *, after_version=0, limit) -> list[Fact]    # by memory_version; token = last memory_version
#                nearest(user_id, query: Embedding, *, limit) -> list[ScoredFact]               # exact, ties to older id
#                update(user_id, fact_id, *, text, occurred_at, embedding, expected_revision: int|None) -> UpdatedFact(fact, dependants: tuple[FactId,...])
#                delete(user_id, fact_id, *, purge_sources: bool) -> DeletedFact(fact_id, state: UserState, receipt: DeletionReceipt, purged_turn_ids)
#     turns:     append(user_id, conversation_id, turns: Sequence[NewTurn]) -> list[Turn]   # NewTurn(speaker,text,occurred_at,turn_id|None)
#                delete(user_id, conversation_id, turn_ids: Sequence[TurnId] | None) -> DeletedTurns(turn_ids, dependants, state)
#     encodings: statuses(user_id, fact_ids) -> dict[FactId, tuple[EncodeStatus, ...]]
#                record(user_id, results: Sequence[EncodeResult], *, kv_epoch) -> int   # number kept; the others were stale and discarded.
#                                                     # kv_epoch = the one sent in EncodeRequest.user
#                fail_pending(user_id, model, reason) -> int
#     deletions: get(user_id, receipt_id) -> DeletionReceipt (NotFound)
#                acknowledge(receipt_id, worker_id, purged: Mapping[Holder, int], pending: Collection[Holder] = ()) -> DeletionReceipt
#     holders:   add(user_id, worker_id) ; list(user_id) -> list[WorkerId]     # call add before the first request to a worker about a user
#     requests:  find(request_id, operation, content_hash) -> RequestOutcome | None       # before embedding: cheap replay
#                claim(request_id, operation, content_hash) -> RequestOutcome | None      # FIRST statement of a mutation; None: ours
#                complete(request_id, RequestOutcome(fact_ids, turn_ids, receipt_id, memory_version, ...))   # before the end
#                # other content -> InvalidInput("request_id", ...)
#     audit:     record(actor, action, user_id, *, request_id, ids: Mapping[str, list[str]])
#     changes:   page(user_id, after_version, *, limit=500) -> ChangePage      # loop: after = page.reached_version until page.last; each in a NEW snapshot(); state of the last page is the copy's
#     async queue_encoding(user_id) -> None        # one job per model of the tenant, in this transaction
#     async queue_forget(user_id, receipt_id, worker_id) -> None
# 
# class SystemTransaction:
#     workers: join(worker: Worker) -> bool (True: new instance: its arena is empty)  | live(max_age_s) -> list[Worker] | get(worker_id) | remove(worker_id)
#              # join with new instance and remove end the worker's pending receipt lines
#     async users_of_model(model, *, after: tuple[TenantId, UserId] | None, limit) -> list[tuple[TenantId, UserId]]
#     async queue_encoding(tenant_id, user_id, model)   # for a worker that has just started
# 
# class JobQueue:
#     def __init__(self, store: Store, handlers: JobHandlers, *, concurrency, listen_url=None, poll_s=1.0)
#     async def run() -> None      # until stop(); stalled jobs of killed processes are taken up again
#     def stop() -> None
# JobHandlers(encode=async (EncodeJob(tenant_id,user_id,model)) -> None, forget=async (ForgetJob(tenant_id,user_id,receipt_id,worker_id)) -> None)
# # a handler that raises is run again with backoff 1,2,4..30 s for ever (Unavailable) ; nothing is lost.
# 
# embedded.py: EmbeddedPostgres(folder) .start() -> admin_url ; .stop()
# migrations: upgrade(admin_url, app_role, app_password, embedding_dimension)
# tests: fixtures in tests/fixtures_postgres.py: postgres_server (session), database (module-scoped fresh database, migrated): .app_url .admin_url ; store (function)
