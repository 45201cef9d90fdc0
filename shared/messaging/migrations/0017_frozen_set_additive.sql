-- The entries that a dry run has selected, so that the action that follows concerns exactly these. Kept as long as dead letters.
create table frozen_set (
    set_id      uuid        not null,
    selected_at timestamptz not null default clock_timestamp(),
    selected_of text        not null,
    selected_by text        not null,
    ids         uuid[]      not null,
    constraint frozen_set_pk primary key (set_id),
    constraint frozen_set_of check (selected_of in ('OUTBOX', 'DEAD_LETTERS'))
);
