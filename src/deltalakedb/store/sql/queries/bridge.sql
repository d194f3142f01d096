-- Open transactions of the bridge's clients, which any endpoint can go on with.

-- name: insert_open_transaction
-- A transaction that has begun; does nothing if the same request has begun one before.
insert into dl_open_transactions
    (txn_id, request_id, actor, message, lock_names, table_names, pins, num_calls, stage, failure, seen_ms)
values (:txn_id, :request_id, :actor, :message, :lock_names, :table_names, :pins, 0, 'open', null, :seen_ms)
on conflict (request_id) do nothing;

-- name: select_transaction_of_request
-- The transaction that a request has begun.
select txn_id from dl_open_transactions where request_id = :request_id;

-- name: select_open_transaction
-- Where a transaction stands.
select actor, num_calls, stage, failure, seen_ms from dl_open_transactions where txn_id = :txn_id;

-- name: select_beginning
-- What a transaction was begun with.
select message, lock_names, table_names, pins from dl_open_transactions where txn_id = :txn_id;

-- name: select_staged_calls
-- The recorded calls of a transaction from a number on.
select kind, arguments, body from dl_staged_calls where txn_id = :txn_id and call_number >= :call_number order by call_number;

-- name: record_calls
-- Makes room for calls, unless another endpoint has recorded some, or the transaction is being committed or is over.
update dl_open_transactions set num_calls = num_calls + :added, seen_ms = :seen_ms
where txn_id = :txn_id and num_calls = :num_calls and stage = 'open';

-- name: insert_staged_call
-- One call of a transaction.
insert into dl_staged_calls (txn_id, call_number, kind, arguments, body) values (:txn_id, :call_number, :kind, :arguments, :body);

-- name: see_open_transaction
-- A sign of life.
update dl_open_transactions set seen_ms = :seen_ms where txn_id = :txn_id and stage <> 'failed' and seen_ms < :seen_ms;

-- name: begin_to_commit
-- From now on the transaction takes no calls; not if calls were recorded since the committer has looked.
update dl_open_transactions set stage = 'committing', seen_ms = :seen_ms
where txn_id = :txn_id and num_calls = :num_calls and stage <> 'failed';

-- name: fail_open_transaction
-- Keeps the reason why a transaction has ended without a commit, for those who ask.
update dl_open_transactions set stage = 'failed', failure = :failure, seen_ms = :seen_ms, pins = '{}' where txn_id = :txn_id;

-- name: delete_open_transaction
-- A transaction that is over.
delete from dl_open_transactions where txn_id = :txn_id;

-- name: delete_staged_calls
-- The calls of a transaction that is over.
delete from dl_staged_calls where txn_id = :txn_id;

-- name: select_silent_transactions
-- Transactions without a sign of life since an instant, and failed ones that nobody asks for any more.
select txn_id, actor, stage, seen_ms from dl_open_transactions
where (stage <> 'failed' and seen_ms < :silent_ms) or (stage = 'failed' and seen_ms < :forgotten_ms);

-- name: claim_silent_transaction
-- The right to end a silent transaction, for one of several endpoints.
update dl_open_transactions set seen_ms = :seen_ms where txn_id = :txn_id and seen_ms = :last_ms;

-- name: select_live_transactions
-- The transactions that are not over.
select txn_id from dl_open_transactions where stage <> 'failed';
