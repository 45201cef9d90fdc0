-- Where the saga began, as W3C trace context: what its deadlines set in motion later belongs to the same trace.
alter table saga_instance add column traceparent text;
