-- Each time that the stream of this service came back in an older state (a restored disk, a power cut). Receipts beyond
-- `last_sequence` that were written before stand for nothing any more, because other events take their places. One row
-- says so for all of them, however many they are.
create table stream_rollback (
    noticed_at    timestamptz not null default clock_timestamp(),
    stream_epoch  bigint      not null,
    last_sequence bigint      not null,
    constraint stream_rollback_pk primary key (noticed_at)
);

create view void_receipt as
    select event_id
    from outbox_published p
    where exists (
        select from stream_rollback r
        where r.noticed_at > p.published_at and r.stream_epoch = p.stream_epoch and r.last_sequence < p.stream_sequence
    );

-- Nobody looks for receipts by their sequences any more.
drop index outbox_published_sequence;
