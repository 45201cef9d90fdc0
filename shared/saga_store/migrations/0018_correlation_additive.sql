-- To find the sagas of one correlation id, which a caller chose and may use again. The id never changes, so updates of a saga
-- stay out of this index. Created while writers of saga_instance wait.
create index saga_instance_correlation on saga_instance (correlation_id, saga_id);
