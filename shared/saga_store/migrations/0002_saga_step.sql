-- The journal of every saga, append-only: what each step did, when, and what it made of the saga's
-- status. SKIPPED entries are steps that came too late and changed nothing.
create table saga_step (
    saga_id        uuid        not null,
    position       integer     not null,
    step_number    smallint    not null,
    step           text        not null,
    service        text        not null,
    direction      text        not null,
    event_type     text        not null,
    event_id       uuid,
    status         text        not null,
    occurred_at    timestamptz not null default clock_timestamp(),
    reason         text,
    status_before  text        not null,
    status_after   text        not null,
    trace_id       text,
    fault          text,
    constraint saga_step_pk primary key (saga_id, position),
    constraint saga_step_saga foreign key (saga_id) references saga_instance on delete cascade,
    constraint saga_step_direction check (direction in ('FORWARD', 'COMPENSATION')),
    constraint saga_step_status check (status in ('COMPLETED', 'FAILED', 'COMPENSATED', 'SKIPPED'))
);
