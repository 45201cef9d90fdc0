//! The arrows of the saga's table that an order waits on: an event that was committed, and a step that it sets in
//! motion. Each is commit → outbox → relay → stream → consumer → step → commit, and can be held up at any of them.

use saga::{SagaDefinition, Service, Step};
use saga_store::query::{SagaView, StepView};
use uuid::Uuid;

/// A step that is awaited, and the event that sets it in motion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrow<'a> {
    pub(super) step: &'static Step,
    /// Who takes the step.
    pub(super) service: Service,
    pub(super) event_id: Uuid,
    /// The event's name, without its version.
    pub(super) event: &'static str,
    /// Who has committed the event, and publishes it.
    pub(super) publisher: &'a str,
}

/// What has to happen next: the readers of the last event that anybody reads; of a cancellation only those whose
/// receipt is missing. Nothing, when the saga has ended.
pub(super) fn awaited<'a>(
    definition: &'static SagaDefinition,
    saga: &SagaView,
    journal: &'a [StepView],
) -> Vec<Arrow<'a>> {
    let due = |step: &Step| step.service.is_some_and(|service| saga.receipts_due.iter().any(|name| name == service.0));
    let open = || journal.iter().rev().map(|entry| readers(definition, entry)).find(|arrows| !arrows.is_empty());
    match saga.status.as_str() {
        "STARTED" | "IN_PROGRESS" | "TIMED_OUT" => open().unwrap_or_default(),
        "COMPENSATING" | "FAILED" => open().unwrap_or_default().into_iter().filter(|a| due(a.step)).collect(),
        _ => Vec::new(),
    }
}

/// The steps that the event of a journal's entry sets in motion.
fn readers<'a>(definition: &'static SagaDefinition, entry: &'a StepView) -> Vec<Arrow<'a>> {
    let Some(event_id) = entry.event_id else { return Vec::new() };
    let arrow = |step: &'static Step| {
        let (event, service) = (step.consumes()?, step.service?);
        let publisher = entry.service.as_str();
        // In whichever version: a replica of another build may have published it.
        (entry.event_type.split('.').next() == Some(event.name)).then_some(Arrow {
            step,
            service,
            event_id,
            event: event.name,
            publisher,
        })
    };
    definition.steps.iter().filter_map(|step| arrow(step)).collect()
}

#[cfg(test)]
mod tests {
    use contracts::{
        INVENTORY, ORDER, PAYMENT,
        order_fulfillment::{OrderCancelled, OrderConfirmed, OrderCreated, PaymentFailed, SAGA, StockReserved},
    };
    use saga::Event;
    use time::OffsetDateTime;

    use super::*;

    fn saga(status: &str, receipts_due: &[Service]) -> SagaView {
        SagaView {
            saga_id: Uuid::nil(),
            saga_type: SAGA.saga_type.to_owned(),
            business_key: Uuid::nil(),
            correlation_id: String::new(),
            trace_id: String::new(),
            status: status.to_owned(),
            current_step: 0,
            total_steps: 4,
            receipts_due: receipts_due.iter().map(|s| s.0.to_owned()).collect(),
            started_at: OffsetDateTime::UNIX_EPOCH,
            deadline: OffsetDateTime::UNIX_EPOCH,
            compensation_deadline: None,
            compensation_attempts: 0,
            completed_at: None,
            failure_reason: None,
            failed_at_step: None,
            last_progress_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    fn entry<E: Event>(service: Service, event_id: Option<Uuid>) -> StepView {
        StepView {
            position: 1,
            step_number: 0,
            step: "any".to_owned(),
            service: service.0.to_owned(),
            direction: "FORWARD".to_owned(),
            event_type: E::TYPE.wire_name(),
            event_id,
            status: "COMPLETED".to_owned(),
            occurred_at: OffsetDateTime::UNIX_EPOCH,
            reason: None,
            fault: None,
        }
    }

    fn names(saga: &SagaView, journal: &[StepView]) -> Vec<(&'static str, String)> {
        awaited(&SAGA, saga, journal).iter().map(|a| (a.step.name, a.publisher.to_owned())).collect()
    }

    #[test]
    fn the_readers_of_the_last_event_are_awaited() {
        let mut journal = vec![entry::<OrderCreated>(ORDER, Some(Uuid::nil()))];
        assert_eq!(names(&saga("STARTED", &[]), &journal), [("reserve_stock", "order".to_owned())]);
        journal.push(entry::<StockReserved>(INVENTORY, Some(Uuid::nil())));
        assert_eq!(names(&saga("IN_PROGRESS", &[]), &journal), [("process_payment", "inventory".to_owned())]);
        journal.push(entry::<PaymentFailed>(PAYMENT, Some(Uuid::nil())));
        assert_eq!(names(&saga("IN_PROGRESS", &[]), &journal), [("cancel_unpaid_order", "payment".to_owned())]);
    }

    #[test]
    fn a_step_that_was_skipped_has_published_nothing_to_wait_for() {
        let journal = [entry::<OrderCreated>(ORDER, Some(Uuid::nil())), entry::<StockReserved>(INVENTORY, None)];
        assert_eq!(names(&saga("STARTED", &[]), &journal), [("reserve_stock", "order".to_owned())]);
    }

    #[test]
    fn of_a_cancellation_only_those_are_awaited_whose_receipt_is_missing() {
        let journal = [entry::<OrderCancelled>(ORDER, Some(Uuid::nil()))];
        let both = names(&saga("COMPENSATING", &[INVENTORY, PAYMENT]), &journal);
        assert_eq!(both.iter().map(|(step, _)| *step).collect::<Vec<_>>(), ["release_stock", "refund_payment"]);
        assert_eq!(names(&saga("FAILED", &[PAYMENT]), &journal), [("refund_payment", "order".to_owned())]);
        assert_eq!(names(&saga("COMPENSATED", &[]), &journal), []);
    }

    #[test]
    fn an_event_that_nobody_reads_is_waited_for_by_nobody() {
        let journal = [entry::<OrderConfirmed>(ORDER, Some(Uuid::nil()))];
        assert_eq!(names(&saga("IN_PROGRESS", &[]), &journal), []);
    }
}
