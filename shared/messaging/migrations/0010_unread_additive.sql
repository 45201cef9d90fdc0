-- Since when an event is handed back because no replica that had it could read its version. It has no failed attempts.
alter table delivery_attempt add column unread_since timestamptz;
