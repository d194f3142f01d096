-- Takes the tables of 0006 back: named tokens are gone, and what is known of requests, except in commits and in the audit.

-- engines: postgres
create or replace function deltalakedb.dl_append(
    lock_timeout_ms text, held json, registered json, intent text, new_txn json, placeholder text, new_version json, new_adds json,
    new_bounds json, new_head json
) returns bigint language plpgsql volatile
set enable_seqscan = off as $$
declare
    head dl_table_heads;
    registry dl_tables;
    made dl_table_versions;
    taken dl_transactions;
    rendered text;
    at_ms bigint;
begin
    perform set_config('lock_timeout', lock_timeout_ms, true);
    perform pg_advisory_xact_lock_shared(109330228406644);
    select * into head from dl_table_heads h where h.table_id = (held ->> 'table_id')::bigint for update;
    if head is distinct from json_populate_record(head, held) then
        return null;
    end if;
    select * into registry from dl_tables t where t.table_id = head.table_id and t.until_ms = 9223372036854775807;
    if registry is distinct from json_populate_record(registry, registered) then
        return null;
    end if;
    if intent is not null and exists (select 1 from dl_leases l where l.lease = intent) then
        return null;
    end if;

    select greatest(floor(extract(epoch from clock_timestamp()) * 1000)::bigint, coalesce(max(x.committed_at_ms), 0) + 1)
      into at_ms from dl_transactions x;
    if at_ms <= head.last_commit_ms then
        return null;
    end if;
    taken := json_populate_record(null::dl_transactions, new_txn);
    insert into dl_transactions (txn_id, client_token, committed_at_ms, actor, message)
    values (taken.txn_id, taken.client_token, at_ms, taken.actor, taken.message)
    on conflict (client_token) do nothing;
    if not found then
        return null;
    end if;

    made := json_populate_record(null::dl_table_versions, new_version);
    rendered := replace(made.commit_info, placeholder, at_ms::text);
    made.rendered_bytes := made.rendered_bytes + octet_length(rendered) - octet_length(made.commit_info);
    made.commit_info := rendered;
    made.committed_at_ms := at_ms;
    insert into dl_table_versions select made.*;
    insert into dl_add_files select * from json_populate_recordset(null::dl_add_files, new_adds);
    insert into dl_file_bounds select * from json_populate_recordset(null::dl_file_bounds, new_bounds);
    head := json_populate_record(head, new_head);
    update dl_table_heads h
       set current_version = head.current_version, num_files = head.num_files, num_records = head.num_records,
           files_without_records = head.files_without_records, size_bytes = head.size_bytes, next_file_id = head.next_file_id,
           mirrored_version = greatest(h.mirrored_version, head.mirrored_version), last_commit_ms = at_ms
     where h.table_id = head.table_id;
    return at_ms;
end
$$;

drop table dl_requests;
drop table dl_tokens;
