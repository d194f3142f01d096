-- The open transactions of the bridge's clients, so that any endpoint can go on with them.

-- pins: the tables that the transaction sees, {"table_id": [version, vacuum_count, namespace, name]}. lock_names and table_names: those it
-- was begun with. num_calls: how many calls are recorded. stage: `open`, `committing`, or `failed`, for the reason in failure.
create table dl_open_transactions (
    txn_id text not null primary key,
    request_id text not null,
    actor text not null,
    message text,
    lock_names text not null,
    table_names text,
    pins text not null,
    num_calls bigint not null,
    stage text not null,
    failure text,
    seen_ms bigint not null
);
create unique index dl_open_transactions_by_request on dl_open_transactions (request_id);

-- What these transactions have read and staged, in this order. body: the text of a staged commit.
create table dl_staged_calls (
    txn_id text not null,
    call_number bigint not null,
    kind text not null,
    arguments text not null,
    body text,
    primary key (txn_id, call_number)
);
