//! The saga's steps in the payment service: one function per step, named as the step is. Both have three phases: they write
//! down what they are about to do, ask the card processor with no transaction open, and settle its answers.

use contracts::{
    Money, OrderId,
    order_fulfillment::{
        OrderCancelled, PROCESS_PAYMENT, PaymentFailed, PaymentProcessed, PaymentRefunded, REFUND_PAYMENT,
        StockReserved,
    },
};
use messaging::{Batch, Context, Delivery, StepError, StepResult};
use saga::{Retry, Step, StepOn};
use saga_store::{Finding, Found, Next, Prepared, StepTransaction, ThreePhases};
use uuid::Uuid;

use crate::{
    App,
    domain::{self, Answer, Ask, Plan, Status, Tell},
    gateway::{GatewayError, Intent},
    store::{self, NewPayment, StoredPayment},
};

/// Step 2: charges once, and says whether the card was declined. An order that was cancelled or timed out is not charged,
/// and if it is charged all the same its refund is on its way.
pub async fn process_payment(app: App, batch: Batch<StockReserved>) -> StepResult {
    app.participant.three_phases(&Charge(&app), batch).await
}

/// Undoes step 2: makes sure that payment keeps nothing of the order and never will, and always answers, with zero when
/// nothing was ever captured.
pub async fn refund_payment(app: App, batch: Batch<OrderCancelled>) -> StepResult {
    app.participant.three_phases(&Refund(&app), batch).await
}

struct Charge<'a>(&'a App);

impl ThreePhases for Charge<'_> {
    type Event = StockReserved;
    type Question = Question;
    type Answer = Answer;

    const WOULD_ASK: &'static str = ASKS_THE_PROCESSOR;

    fn step(&self) -> &'static StepOn<StockReserved> {
        &PROCESS_PAYMENT
    }

    /// Writes the intents: which orders are about to be charged, under which key.
    async fn prepare(
        &self,
        tx: &mut StepTransaction<()>,
        reserved: &[&Delivery<StockReserved>],
    ) -> Prepared<Question, Answer> {
        let saga_ids: Vec<Uuid> = reserved.iter().filter_map(|d| d.meta.saga_id()).collect();
        let sagas = store::saga_statuses(tx.conn(), &saga_ids).await?;
        let moves_forward = |d: &Delivery<StockReserved>| {
            d.meta.saga_id().and_then(|id| sagas.get(&id)).is_some_and(|status| status.moves_forward())
        };
        let intended = |d: &&Delivery<StockReserved>| {
            let StockReserved { order_id, total, payment_method, .. } = &d.event;
            Some(NewPayment::new(*order_id, d.meta.saga_id()?, *total, payment_method))
        };
        let intents: Vec<NewPayment> = reserved.iter().filter(|d| moves_forward(d)).filter_map(intended).collect();
        store::insert_intents(tx.conn(), &intents).await?;
        let orders: Vec<OrderId> = reserved.iter().map(|d| d.event.order_id).collect();
        let payments = store::payments_of(tx.conn(), &orders).await?;
        let next = reserved.iter().map(|d| {
            let stored = payments.get(&d.event.order_id);
            next(domain::plan_charge(stored.map(|s| &s.payment), moves_forward(d), d.event.total.amount), stored)
        });
        Ok(next.collect())
    }

    async fn ask(&self, question: Question, context: &Context) -> Result<Answer, StepError> {
        ask(self.0, &PROCESS_PAYMENT, question, context).await
    }

    async fn settle(
        &self,
        tx: &mut StepTransaction<Delivery<StockReserved>>,
        found: &[Found<StockReserved, Answer>],
    ) -> Result<(), StepError> {
        let orders: Vec<OrderId> = found.iter().map(|(reserved, _)| reserved.event.order_id).collect();
        let mut payments = store::lock_payments(tx.conn(), &orders).await?;
        for (reserved, finding) in found {
            let answer = match finding {
                Finding::Answer(answer) => answer,
                Finding::NotAsked(reason) => {
                    tx.skip(reserved, reason)?;
                    continue;
                }
            };
            let stored = payments.get_mut(&reserved.event.order_id);
            let stored = stored.ok_or_else(|| StepError::failed("a payment was asked for that is not there"))?;
            let settled = domain::settle_charge(&stored.payment, answer, tx.moves_forward(reserved))?;
            stored.becomes(settled.status);
            let (order_id, payment_id, amount) = (stored.order_id, stored.payment_id, stored.amount);
            match settled.tell {
                Tell::Processed(reference) => {
                    let event = PaymentProcessed { order_id, payment_id, amount, gateway_reference: reference.0 };
                    tx.advance(reserved, stored.next_event(), &event)?;
                }
                Tell::Failed(code) => {
                    tx.after_commit(self.0.declines.count(&code));
                    let event = PaymentFailed { order_id, payment_id, amount, decline_code: code.0 };
                    tx.refuse(reserved, stored.next_event(), &event)?;
                }
                Tell::Nothing(reason) => tx.skip(reserved, reason)?,
            }
        }
        store::save_payments(tx.conn(), &store::changed(&payments)).await
    }
}

struct Refund<'a>(&'a App);

impl ThreePhases for Refund<'_> {
    type Event = OrderCancelled;
    type Question = Question;
    type Answer = Answer;

    const WOULD_ASK: &'static str = ASKS_THE_PROCESSOR;

    fn step(&self) -> &'static StepOn<OrderCancelled> {
        &REFUND_PAYMENT
    }

    /// Writes down that the orders are cancelled: from now on nothing is charged for them.
    async fn prepare(
        &self,
        tx: &mut StepTransaction<()>,
        cancelled: &[&Delivery<OrderCancelled>],
    ) -> Prepared<Question, Answer> {
        let tombstone = |d: &&Delivery<OrderCancelled>| {
            let OrderCancelled { order_id, total, payment_method, .. } = &d.event;
            Some(NewPayment::new(*order_id, d.meta.saga_id()?, *total, payment_method))
        };
        let tombstones: Vec<NewPayment> = cancelled.iter().filter_map(tombstone).collect();
        let payments = store::cancel_payments(tx.conn(), &tombstones).await?;
        let next = cancelled.iter().map(|d| {
            let stored = payments.get(&d.event.order_id);
            let stored = stored.ok_or_else(|| StepError::failed("a tombstone was written and is gone"))?;
            Ok(next(domain::plan_refund(&stored.payment), Some(stored)))
        });
        next.collect()
    }

    async fn ask(&self, question: Question, context: &Context) -> Result<Answer, StepError> {
        ask(self.0, &REFUND_PAYMENT, question, context).await
    }

    async fn settle(
        &self,
        tx: &mut StepTransaction<Delivery<OrderCancelled>>,
        found: &[Found<OrderCancelled, Answer>],
    ) -> Result<(), StepError> {
        let orders: Vec<OrderId> = found.iter().map(|(cancelled, _)| cancelled.event.order_id).collect();
        let mut payments = store::lock_payments(tx.conn(), &orders).await?;
        for (cancelled, finding) in found {
            let stored = payments.get_mut(&cancelled.event.order_id);
            let stored = stored.ok_or_else(|| StepError::failed("a payment was cancelled that is not there"))?;
            stored.becomes(domain::settle_refund(&stored.payment, finding.answer())?);
            let (order_id, payment_id, charged) = (stored.order_id, stored.payment_id, stored.amount);
            let refunded = matches!(stored.payment.status, Status::Refunded(_));
            let amount = if refunded { charged } else { Money::new(0, charged.currency) };
            let receipt = PaymentRefunded { order_id, payment_id, amount };
            tx.undone(cancelled, stored.next_event(), &receipt)?;
        }
        store::save_payments(tx.conn(), &store::changed(&payments)).await
    }
}

/// What the card processor is asked, and about which payment.
type Question = (Ask, Intent);

/// What a dry run says of an event for which the card processor would be asked.
const ASKS_THE_PROCESSOR: &str = "it would ask the card processor; what follows depends on its answer";

fn next(plan: Plan, stored: Option<&StoredPayment>) -> Next<Question, Answer> {
    match (plan, stored) {
        (Plan::Ask(ask), Some(stored)) => Next::Ask((ask, intent(stored))),
        (Plan::Ask(_), None) => Next::Settle(Finding::NotAsked("there is no payment")),
        (Plan::Known(answer), _) => Next::Settle(Finding::Answer(answer)),
        (Plan::Skip(reason), _) => Next::Settle(Finding::NotAsked(reason)),
    }
}

/// Asks until the outcome is known, or patience ends. Between deliveries the step waits for longer than here.
async fn ask(app: &App, step: &Step, (ask, intent): Question, context: &Context) -> Result<Answer, StepError> {
    let retry = app.participant.policy(step).retry;
    let retry = Retry { initial: retry.initial / 10, max: retry.initial * 2, ..retry };
    let question = || app.gateway.ask(&ask, &intent, context);
    Ok(resilience::retry(&retry, app.config.gateway_patience, GatewayError::is_unknown, question).await?)
}

pub(crate) fn intent(payment: &StoredPayment) -> Intent {
    Intent {
        payment_id: payment.payment_id,
        order_id: payment.order_id,
        amount: payment.amount,
        method: payment.method.clone(),
    }
}
