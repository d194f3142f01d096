-- The tables of a publication with the columns that may name a row: those of the primary key and of the index that is
-- the replica identity. An index that is not valid or is checked at commit only names nothing. Also the columns that are
-- generated, a partition whose changes are in no log, if there is one, and the mark of the publication's options: what they
-- are, but for the kinds of changes that are sent, and the transaction that last set them.
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
       )::bigint,
       array(
           select att.attname::text
             from pg_attribute att
            where att.attrelid = cls.oid and att.attnum > 0 and not att.attisdropped and att.attgenerated <> ''
            order by att.attnum
       ),
       case when cls.relkind = 'p' then (
           select min(format('%%I.%%I', leafnsp.nspname, leaf.relname))
             from pg_partition_tree(cls.oid) part
             join pg_class leaf on leaf.oid = part.relid
             join pg_namespace leafnsp on leafnsp.oid = leaf.relnamespace
            where part.isleaf and (leaf.relkind = 'f' or leaf.relpersistence = 'u')
       ) end,
       own.xmin || ' '
           || md5((to_jsonb(own) - '{pubinsert,pubupdate,pubdelete,pubtruncate}'::text[])::text)
  from pg_publication_tables pub
  join pg_publication own on own.pubname = pub.pubname
  join pg_namespace nsp on nsp.nspname = pub.schemaname
  join pg_class cls on cls.relnamespace = nsp.oid and cls.relname = pub.tablename
 where pub.pubname = %s
 order by 2, 3
