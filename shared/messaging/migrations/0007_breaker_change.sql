-- Each change of state of each step's circuit breaker, in every replica.
create table breaker_change (
    changed_at timestamptz not null default clock_timestamp(),
    replica    text        not null,
    step       text        not null,
    from_state text        not null,
    to_state   text        not null,
    why        text        not null
);

create index breaker_change_at on breaker_change (changed_at);
