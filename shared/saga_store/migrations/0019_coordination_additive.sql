-- A replica that coordinates sagas; it renews its lease while it lives.
create table coordinator (
    replica       uuid        not null,
    leased_until  timestamptz not null,
    constraint coordinator_pk primary key (replica)
);

-- An orchestrated saga that has not ended, and the replica that drives it. A saga without a live one is taken over, once
-- `not_before` has passed.
create table coordination (
    saga_id        uuid        not null,
    replica        uuid,
    -- Until then the step in progress may take; null before it begins.
    step_deadline  timestamptz,
    not_before     timestamptz not null default now(),
    constraint coordination_pk primary key (saga_id),
    -- The saga's row is written at the end of its transaction.
    constraint coordination_saga foreign key (saga_id) references saga_instance on delete cascade
        deferrable initially deferred
);
