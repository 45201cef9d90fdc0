-- The effective privileges of each role, including those of PUBLIC and of single columns.
with role (name) as (
    select rolname::text from pg_roles where rolname like '%\_service' or rolname = 'auditor'
    union all select 'public'
), schema as (
    select oid, nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'
), relation as (
    select c.oid, c.relkind, n.nspname, c.relname
    from pg_class c join schema n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'v', 'm', 'S')
), held (role, kind, object, privilege) as (
    select r.name, 'role', '', attribute
    from role r
    join pg_roles p on p.rolname = r.name,
        lateral (values ('SUPERUSER', rolsuper), ('CREATEDB', rolcreatedb), ('CREATEROLE', rolcreaterole),
            ('REPLICATION', rolreplication), ('BYPASSRLS', rolbypassrls)) a (attribute, has)
    where has
    union all
    select r.name, 'role', 'member of ' || g.rolname, 'MEMBER'
    from role r
    join pg_roles p on p.rolname = r.name
    join pg_auth_members m on m.member = p.oid
    join pg_roles g on g.oid = m.roleid
    union all
    select r.name, 'database', 'the suite''s', p
    from role r, unnest(array['CONNECT', 'CREATE', 'TEMPORARY']) p
    where has_database_privilege(r.name, current_database(), p)
    union all
    select r.name, 'schema', n.nspname, p
    from role r, schema n, unnest(array['USAGE', 'CREATE']) p
    where has_schema_privilege(r.name, n.oid, p)
    union all
    -- The days of a partitioned table are told as one.
    select r.name, 'table', t.nspname || '.' || regexp_replace(t.relname, '_2\d{7}$', '_DAY'), p
    from role r, relation t, unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
    where t.relkind <> 'S' and has_table_privilege(r.name, t.oid, p)
    union all
    select r.name, 'column', t.nspname || '.' || t.relname || '.' || a.attname, p
    from role r, relation t
    join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped,
        unnest(array['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) p
    where t.relkind <> 'S' and has_column_privilege(r.name, t.oid, a.attnum, p) and not has_table_privilege(r.name, t.oid, p)
    union all
    select r.name, 'sequence', t.nspname || '.' || t.relname, p
    from role r, relation t, unnest(array['USAGE', 'SELECT', 'UPDATE']) p
    where case when t.relkind = 'S' then has_sequence_privilege(r.name, t.oid, p) else false end
    union all
    select r.name, case when f.prosecdef then 'function of the owner' else 'function' end,
        n.nspname || '.' || f.proname || '(' || pg_get_function_identity_arguments(f.oid) || ')', 'EXECUTE'
    from role r, pg_proc f join schema n on n.oid = f.pronamespace
    where has_function_privilege(r.name, f.oid, 'EXECUTE')
)
select format('%s | %s | %s | %s', role, kind, object, string_agg(privilege, ' ' order by privilege))
from (select distinct * from held) each
group by role, kind, object
order by role collate "C", kind collate "C", object collate "C"
