-- How many deliveries were dropped because the consumer had processed the event already.
alter table inbox add column duplicates integer not null default 0;
