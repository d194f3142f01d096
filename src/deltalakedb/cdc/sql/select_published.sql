-- The tables of a publication with the columns that may name a row: those of the primary key and of the index that is
-- the replica identity. An index that is not valid or is checked at commit only names nothing.
with keys as (
    select idx.indrelid, idx.indisprimary, idx.indisreplident,
           array_agg(att.attname::text order by part.place) as columns
      from pg_index idx
     cross join unnest(idx.indkey::int2[]) with ordinality part(number, place)
      join pg_attribute att on att.attrelid = idx.indrelid and att.attnum = part.number
     where (idx.indisprimary or idx.indisreplident)
       and idx.indimmediate and idx.indisvalid
       and part.place <= idx.indnkeyatts
     group by idx.indexrelid, idx.indrelid, idx.indisprimary, idx.indisreplident
)
select cls.oid::bigint,
       pub.schemaname::text,
       pub.tablename::text,
       cls.relreplident::text,
       coalesce((select columns from keys where indrelid = cls.oid and indisprimary), '{}'),
       coalesce((select columns from keys where indrelid = cls.oid and indisreplident), '{}'),
       pg_relation_filenode(cls.oid)::bigint,
       cls.relnatts::integer,
       coalesce(
           (select rel.oid from pg_publication_rel rel where rel.prpubid = own.oid and rel.prrelid = cls.oid),
           (select nsp.oid from pg_publication_namespace nsp
             where nsp.pnpubid = own.oid and nsp.pnnspid = cls.relnamespace),
           own.oid
       )::bigint
  from pg_publication_tables pub
  join pg_publication own on own.pubname = pub.pubname
  join pg_namespace nsp on nsp.nspname = pub.schemaname
  join pg_class cls on cls.relnamespace = nsp.oid and cls.relname = pub.tablename
 where pub.pubname = %s
 order by 2, 3
