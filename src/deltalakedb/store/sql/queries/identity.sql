-- Named tokens, and the requests that committed transactions.

-- name: insert_token
-- Stores a token; the secret itself is shown to its owner once, and never stored.
insert into dl_tokens (token_id, name, actor, actor_groups, secret_hash, parent_id, created_by, created_at_ms, expires_ms, revoked_at_ms)
values (:token_id, :name, :actor, :actor_groups, :secret_hash, cast(:parent_id as text), cast(:created_by as text), :created_at_ms,
        cast(:expires_ms as bigint), null);

-- name: select_tokens
-- The tokens that were created by name, the newest first.
select token_id, name, actor, actor_groups, created_by, created_at_ms, expires_ms, revoked_at_ms
from dl_tokens where parent_id is null order by created_at_ms desc, token_id;

-- name: select_token_by_name
-- The token of a name that is not revoked.
select token_id, name, actor, actor_groups, created_by, created_at_ms, expires_ms, revoked_at_ms
from dl_tokens where name = :name and parent_id is null and revoked_at_ms is null;

-- name: select_token_by_id
-- What proves a token, and whose it is. A short-lived token ends with the one that it was given for.
select t.token_id, t.name, t.actor, t.actor_groups, t.secret_hash, t.parent_id, t.expires_ms, t.revoked_at_ms,
       p.expires_ms as parent_expires_ms, p.revoked_at_ms as parent_revoked_at_ms
from dl_tokens t left join dl_tokens p on p.token_id = t.parent_id
where t.token_id = :token_id;

-- name: revoke_token
-- Ends a token for good.
update dl_tokens set revoked_at_ms = :revoked_at_ms where token_id = :token_id and revoked_at_ms is null;

-- name: delete_ended_tokens
-- Short-lived tokens whose time is over.
delete from dl_tokens where parent_id is not null and expires_ms < :now_ms;

-- name: insert_request
-- Records the request that made a transaction, unless the transaction was not taken.
insert into dl_requests (txn_id, request_id, proof, address, user_agent)
select cast(:txn_id as text), cast(:request_id as text), cast(:proof as text), cast(:address as text), cast(:user_agent as text)
where exists (select 1 from dl_transactions x where x.txn_id = :txn_id)
on conflict (txn_id) do nothing
returning txn_id;

-- name: delete_old_requests
-- Requests of transactions that are not in SQL any more.
delete from dl_requests where txn_id not in (select x.txn_id from dl_transactions x);
