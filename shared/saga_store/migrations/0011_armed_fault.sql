-- Faults that all replicas of a service hold together. Their passes are counted here, so that "the first two" are two of the
-- service, and from here a replica learns of those that were armed before it was there. Since when and until when a fault
-- lasts is told by its annotation.
create table armed_fault (
    service       text    not null,
    fault_id      bigint  not null,
    annotation_id uuid    not null,
    spec          jsonb   not null,
    armed_by      text    not null,
    -- Passes within its scope that were numbered for one of the replicas, and how many of them were hit.
    passes        bigint  not null default 0,
    hits          bigint  not null default 0,
    -- Not only over: whoever still holds it gives it up.
    disarmed      boolean not null default false,
    constraint armed_fault_pk primary key (service, fault_id),
    constraint armed_fault_annotation foreign key (annotation_id) references annotation on delete cascade
) with (fillfactor = 50);

create index armed_fault_annotation on armed_fault (annotation_id);

-- What is not over is looked for every second.
create index annotation_ended on annotation (ended_at) where kind = 'fault';
