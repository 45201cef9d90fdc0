-- A completed saga can owe steps behind its pivot: until they are done, their services stand in `receipts_due`. What was
-- published for such a saga is published again when it is lost. The key never changes, so a step that changes neither the
-- status nor what is due stays a heap-only update.
create index saga_instance_owed on saga_instance (saga_id) where status = 'COMPLETED' and receipts_due <> '{}';
