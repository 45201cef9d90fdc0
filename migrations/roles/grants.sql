-- What each role may do: its own schema's rows, and of the shared saga tables what its steps need.
-- Run by `provision` as the owner, any number of times, beside a temporary table `participant` with service, schema and role
-- of each participant. Nobody but the owner has DDL.
revoke create on schema public from public;
revoke all on schema saga from public;

do $$
declare
    granted text;
begin
    for granted in
        select format($rights$
            revoke all on schema %1$I from public;
            grant usage on schema %1$I, saga to %2$I;
            grant select, insert, update, delete on all tables in schema %1$I to %2$I;
            -- Which migrations were applied is compared at boot, and written by nobody but the owner.
            revoke insert, update, delete on %1$I._migration, %1$I._messaging_migration, %1$I._webhook_migration from %2$I;
            grant execute on function %1$I.ensure_partitions(integer), %1$I.drop_partitions(interval, interval),
                %1$I.archive_events(interval, interval), %1$I.archive_late_events(interval, interval),
                %1$I.aggregate_events(text, text, bigint, bigint), %1$I.published_after(bigint, integer) to %2$I;
            revoke all on sequence %1$I.outbox_published_ordinal from public;
            grant usage, select on sequence %1$I.outbox_published_ordinal to %2$I;

            grant select on saga._migration to %2$I;
            grant select, update on saga.saga_instance to %2$I;
            grant select, insert on saga.saga_step, saga.fault_hit to %2$I;
            grant select, insert, update (status) on saga.operator_action to %2$I;
            grant select, insert, update (ended_at) on saga.annotation to %2$I;
            grant select, insert, update (passes, hits, disarmed) on saga.armed_fault to %2$I;

            -- Order explains why an order waits, and tells its history. It may ask the other schemas that, and read nothing else.
            grant usage on schema %1$I to order_service;
            grant execute on function %1$I.obstacles(uuid, text[]), %1$I.events(uuid[]) to order_service;
        $rights$, schema, role)
        from participant
    loop
        execute granted;
    end loop;
end $$;

-- Only order begins sagas, coordinates orchestrated ones, and lets finished ones be purged.
grant insert on saga.saga_instance to order_service;
grant select, insert, update, delete on saga.coordinator, saga.coordination to order_service;
grant execute on function saga.purge_terminal(interval, integer), saga.activity() to order_service;
grant execute on function payment.at_gateway(uuid) to order_service;
grant execute on function orders.refresh_customer_summary() to order_service;
