-- Batches of replays: which dead letters somebody wanted replayed, frozen at the moment they asked, and how far
-- it came. A batch that is RUNNING and has not been heard of for two minutes was left behind by a crash.
create table dead_letter_replay (
    replay_id     uuid        not null,
    requested_at  timestamptz not null default now(),
    requested_by  text        not null,
    reason        text,
    filter        json        not null,
    ids           uuid[]      not null,
    ramp          integer[]   not null,
    state         text        not null default 'RUNNING',
    resolved      integer     not null default 0,
    failed        integer     not null default 0,
    skipped       integer     not null default 0,
    stopped_entry uuid,
    stopped_why   text,
    updated_at    timestamptz not null default now(),
    constraint dead_letter_replay_pk primary key (replay_id),
    constraint dead_letter_replay_state check (state in ('RUNNING', 'DONE', 'STOPPED')),
    constraint dead_letter_replay_stop check ((state = 'STOPPED') = (stopped_why is not null)),
    constraint dead_letter_replay_counts check (resolved >= 0 and failed >= 0 and skipped >= 0)
);

-- Which batch an action belongs to. The key of an action is a number of its own, because two operators may act on
-- an entry at the same moment.
alter table dead_letter_action
    add column replay_id uuid,
    add column action_id bigint generated always as identity,
    drop constraint dead_letter_action_pk,
    add constraint dead_letter_action_pk primary key (action_id);

create index dead_letter_action_entry on dead_letter_action (dead_letter_id, action_id);

-- A message without any event id is recognised by what it says: it is kept once, like the others.
delete from dead_letter d
using dead_letter first
where d.event_id is null and first.event_id is null and d.consumer = first.consumer and d.subject = first.subject
    and md5(d.payload) = md5(first.payload) and d.dead_letter_id > first.dead_letter_id;

create unique index dead_letter_once_without_id on dead_letter (consumer, subject, md5(payload)) where event_id is null;
