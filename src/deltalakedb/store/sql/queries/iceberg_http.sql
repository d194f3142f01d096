-- Idempotency keys of Iceberg clients: who answers a request first, and what was answered.

-- name: claim_idempotency_key
-- Makes this request the one that is answered under the key; does nothing if another one came first.
insert into dl_idempotency_keys (idempotency_key, request_hash, answer_status, answer, created_at_ms, expires_ms)
values (:idempotency_key, :request_hash, null, null, :created_at_ms, :expires_ms)
on conflict (idempotency_key) do nothing;

-- name: select_idempotency_key
-- The request that came first under a key, and its answer; without a status it is still being answered.
select request_hash, answer_status, answer, created_at_ms from dl_idempotency_keys where idempotency_key = :idempotency_key;

-- name: take_over_idempotency_key
-- Answers a request again whose first try never ended; one of several that try it at once wins.
update dl_idempotency_keys set created_at_ms = :created_at_ms
where idempotency_key = :idempotency_key and answer_status is null and created_at_ms = :first_ms;

-- name: answer_idempotency_key
-- Stores the final answer, unless another try has taken the request over.
update dl_idempotency_keys set answer_status = :answer_status, answer = :answer
where idempotency_key = :idempotency_key and answer_status is null and created_at_ms = :created_at_ms;

-- name: release_idempotency_key
-- Forgets a request that failed without an effect, so that a repeat is answered anew.
delete from dl_idempotency_keys
where idempotency_key = :idempotency_key and answer_status is null and created_at_ms = :created_at_ms;

-- name: delete_expired_idempotency_key
-- A key may be used for another request once it has expired.
delete from dl_idempotency_keys where idempotency_key = :idempotency_key and expires_ms <= :now_ms;

-- name: delete_expired_idempotency_keys
-- Removes the keys that clients may not repeat any more.
delete from dl_idempotency_keys where expires_ms <= :now_ms;
