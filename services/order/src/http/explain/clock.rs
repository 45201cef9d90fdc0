//! Where the order is, and what the clock will do about it.

use saga::SagaDefinition;
use saga_store::query::SagaView;
use time::OffsetDateTime;

use super::{
    Known,
    arrows::Arrow,
    finding::{Finding, FindingKind, Remedy, at},
};

/// Where the order is, which steps it waits for, and the first thing that holds it up.
pub(super) fn summary(known: &Known, awaited: &[Arrow<'_>], findings: &[Finding]) -> String {
    let mut sentences = vec![place(known)];
    if known.saga.status == "FAILED" || awaited.is_empty() {
        return sentences.remove(0);
    }
    let steps: Vec<String> = awaited.iter().map(|a| format!("{} of {}", a.step.name, a.service)).collect();
    sentences.push(format!("It waits for {}.", steps.join(" and ")));
    let holds_up = |f: &&Finding| {
        f.kind <= FindingKind::Handled
            || matches!(f.kind, FindingKind::DeadlinePassed | FindingKind::CompensationOverdue)
    };
    sentences.extend(findings.iter().find(holds_up).map(|first| first.what.clone()));
    sentences.join(" ")
}

fn place(known: &Known) -> String {
    let Known { order, saga, definition, .. } = known;
    let cancelled = order.cancellation.as_ref().map_or("no reason given", |c| c.detail.as_str());
    match saga.status.as_str() {
        "STARTED" => "The order is accepted; its stock is not reserved yet.".to_owned(),
        "IN_PROGRESS" => {
            format!("The order has done step {} of {}.", saga.current_step, definition.total_steps().saturating_sub(1))
        }
        "COMPLETED" => "The order is confirmed: stock is reserved, the card is charged.".to_owned(),
        "TIMED_OUT" => "The order took too long and is about to be cancelled.".to_owned(),
        "COMPENSATING" => {
            let due = saga.receipts_due.join(" and ");
            format!("The order is cancelled ({cancelled}); {due} must confirm that all is undone.")
        }
        "COMPENSATED" => format!("The order is cancelled ({cancelled}), and everything is undone."),
        _ => format!(
            "The order is cancelled ({cancelled}), but its compensation is stuck: an operator has to resume it."
        ),
    }
}

/// When the suite loses patience, and what happens then; an operator's turn has no time.
pub(super) fn deadline(definition: &SagaDefinition, saga: &SagaView) -> (Option<OffsetDateTime>, Option<String>) {
    let attempts = saga.compensation_attempts.unsigned_abs();
    let (time, then) = match saga.status.as_str() {
        "STARTED" | "IN_PROGRESS" => {
            (Some(saga.deadline), "The saga times out, and the order is cancelled.".to_owned())
        }
        "TIMED_OUT" => (saga.compensation_deadline, "Order cancels it without waiting for the event.".to_owned()),
        "COMPENSATING" if attempts >= definition.compensation.max_attempts => {
            (saga.compensation_deadline, "The saga is FAILED, and an operator has to resume it.".to_owned())
        }
        "COMPENSATING" => (
            saga.compensation_deadline,
            format!(
                "Unless it is still on its way, the cancellation is published again, for the {} of {} times; after the last \
                 one the saga is FAILED.",
                ordinal(attempts + 1),
                definition.compensation.max_attempts
            ),
        ),
        "FAILED" => {
            let request = resume(saga);
            (None, format!("The missing receipts would end it; {request} drives it on."))
        }
        _ => return (None, None),
    };
    (time, Some(then))
}

/// What the order waits for because of the clock, or what the clock should have done already.
pub(super) fn findings(known: &Known) -> Vec<Finding> {
    let Known { saga, now, .. } = known;
    let overdue = saga.compensation_deadline.filter(|deadline| deadline < now);
    match saga.status.as_str() {
        "STARTED" | "IN_PROGRESS" if saga.deadline < *now => {
            let what = "The deadline has passed, and no service has noticed yet; each looks every few seconds.";
            vec![Finding::new(FindingKind::DeadlinePassed, what.to_owned(), Some(saga.deadline))]
        }
        "TIMED_OUT" => vec![timed_out(saga)],
        "COMPENSATING" => {
            let mut findings = vec![receipts_due(saga)];
            if overdue.is_some() {
                let what = "The receipts are overdue; order is about to publish the cancellation again, unless it is still on its \
                            way.";
                findings.push(Finding::new(FindingKind::CompensationOverdue, what.to_owned(), overdue));
            }
            findings
        }
        "FAILED" => vec![stuck(known)],
        _ => Vec::new(),
    }
}

fn timed_out(saga: &SagaView) -> Finding {
    let deadline = at(saga.deadline);
    let what = match saga.compensation_deadline {
        Some(then) => format!(
            "The deadline of {deadline} has passed. cancel_timed_out_order cancels the order; if it does not by {}, order \
            does so without it.",
            at(then)
        ),
        None => format!("The deadline of {deadline} has passed. cancel_timed_out_order cancels the order."),
    };
    Finding::new(FindingKind::TimedOut, what, Some(saga.last_progress_at))
}

fn receipts_due(saga: &SagaView) -> Finding {
    let (due, asked) = (saga.receipts_due.join(" and "), saga.compensation_attempts + 1);
    let times = if asked == 1 { "once".to_owned() } else { format!("{asked} times") };
    let what = format!("The receipt of {due} is missing: that it keeps nothing of the order. It was asked {times}.");
    Finding::new(FindingKind::ReceiptsDue, what, Some(saga.last_progress_at))
}

fn stuck(known: &Known) -> Finding {
    let saga = &known.saga;
    let missing = match saga.receipts_due.join(" and ") {
        due if due.is_empty() => "All receipts have come since".to_owned(),
        due => format!("The receipt of {due} is still missing"),
    };
    let what = format!("The compensation was given up after {} repetitions. {missing}.", saga.compensation_attempts);
    let remedy = Remedy::request("Drive the compensation on, once its cause is mended.", "order", resume(saga));
    Finding::new(FindingKind::Stuck, what, saga.completed_at).remedy(remedy)
}

fn resume(saga: &SagaView) -> String {
    format!("POST /api/admin/sagas/{}/resume", saga.saga_id)
}

fn ordinal(n: u16) -> String {
    match n {
        1 => "1st".to_owned(),
        2 => "2nd".to_owned(),
        3 => "3rd".to_owned(),
        n => format!("{n}th"),
    }
}
