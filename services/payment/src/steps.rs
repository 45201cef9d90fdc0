//! The saga's steps in the payment service: one function per step, named as the step. Both have three phases: they write the
//! intent, call the card processor with no transaction open, and apply its answers.

use contracts::{
    Money, OrderId,
    order_fulfillment::{
        OrderCancelled, PROCESS_PAYMENT, PaymentFailed, PaymentProcessed, PaymentRefunded, REFUND_PAYMENT,
        StockReserved,
    },
};
use messaging::{Batch, Context, Delivery, StepError, StepResult};
use saga::{Retry, Step, StepOn};
use saga_store::{DeliveryOutcome, Next, Outcome, Prepared, StepTransaction, ThreePhases, saga_of};
use uuid::Uuid;

use crate::{
    App,
    domain::{self, Answer, Ask, ChargeEvent, Plan, Status},
    gateway::{GatewayError, Intent},
    store::{self, NewPayment, StoredPayment},
};

/// Step 2: charges once, and publishes whether the card was declined. An order that was cancelled or timed out is not charged;
/// a charge that is already made is refunded by its cancellation.
pub async fn process_payment(app: App, batch: Batch<StockReserved>) -> StepResult {
    app.participant.three_phases(&Charge(&app), batch).await
}

/// Undoes step 2: ensures that the order holds no money, now and later, and always publishes the receipt, with zero when
/// nothing was captured.
pub async fn refund_payment(app: App, batch: Batch<OrderCancelled>) -> StepResult {
    app.participant.three_phases(&Refund(&app), batch).await
}

struct Charge<'a>(&'a App);

impl ThreePhases for Charge<'_> {
    type Event = StockReserved;
    type Question = Question;
    type Answer = Answer;

    const WOULD_ASK: &'static str = CALLS_THE_PROCESSOR;

    fn step(&self) -> &'static StepOn<StockReserved> {
        &PROCESS_PAYMENT
    }

    /// Writes the intents: the orders to be charged, with their keys.
    async fn prepare(
        &self,
        tx: &mut StepTransaction<()>,
        reserved: &[&Delivery<StockReserved>],
    ) -> Prepared<Question, Answer> {
        let saga_ids = reserved.iter().map(|d| saga_of(d)).collect::<Result<Vec<Uuid>, _>>()?;
        let sagas = store::saga_statuses(tx.conn(), &saga_ids).await?;
        let moves_forward = |saga_id: &Uuid| sagas.get(saga_id).is_some_and(|status| status.moves_forward());
        let charges = reserved.iter().zip(&saga_ids);
        let intended = |(d, saga_id): (&&Delivery<StockReserved>, &Uuid)| {
            let StockReserved { order_id, total, payment_method, .. } = &d.event;
            moves_forward(saga_id).then(|| NewPayment::new(*order_id, *saga_id, *total, payment_method))
        };
        let intents: Vec<NewPayment> = charges.clone().filter_map(intended).collect();
        store::insert_intents(tx.conn(), &intents).await?;
        let orders: Vec<OrderId> = reserved.iter().map(|d| d.event.order_id).collect();
        let payments = store::payments_of(tx.conn(), &orders).await?;
        let next = charges.map(|(d, saga_id)| {
            let stored = payments.get(&d.event.order_id);
            let plan = domain::plan_charge(stored.map(|s| &s.payment), moves_forward(saga_id), d.event.total.amount);
            next(plan, stored)
        });
        Ok(next.collect())
    }

    async fn ask(&self, question: Question, context: &Context) -> Result<Answer, StepError> {
        ask(self.0, &PROCESS_PAYMENT, question, context).await
    }

    async fn apply_outcomes(
        &self,
        tx: &mut StepTransaction<Delivery<StockReserved>>,
        outcomes: &[DeliveryOutcome<StockReserved, Answer>],
    ) -> Result<(), StepError> {
        let orders: Vec<OrderId> = outcomes.iter().map(|(reserved, _)| reserved.event.order_id).collect();
        let mut payments = store::lock_payments(tx.conn(), &orders).await?;
        for (reserved, outcome) in outcomes {
            let answer = match outcome {
                Outcome::Answer(answer) => answer,
                Outcome::NotAsked(reason) => {
                    tx.skip(reserved, reason)?;
                    continue;
                }
            };
            let stored = payments.get_mut(&reserved.event.order_id);
            let stored = stored.ok_or_else(|| StepError::failed("the charged payment does not exist"))?;
            let charged = domain::apply_charge_answer(&stored.payment, answer, tx.moves_forward(reserved))?;
            stored.set_status(charged.status);
            let Intent { order_id, payment_id, amount, .. } = stored.intent;
            match charged.event {
                ChargeEvent::Processed(reference) => {
                    let event = PaymentProcessed { order_id, payment_id, amount, gateway_reference: reference.0 };
                    tx.advance(reserved, stored.next_event(), &event)?;
                }
                ChargeEvent::Failed(code) => {
                    tx.after_commit(self.0.declines.count(&code));
                    let event = PaymentFailed { order_id, payment_id, amount, decline_code: code.0 };
                    tx.refuse(reserved, stored.next_event(), &event)?;
                }
                ChargeEvent::None(reason) => tx.skip(reserved, reason)?,
            }
        }
        store::save_payments(tx.conn(), &payments).await
    }
}

struct Refund<'a>(&'a App);

impl ThreePhases for Refund<'_> {
    type Event = OrderCancelled;
    type Question = Question;
    type Answer = Answer;

    const WOULD_ASK: &'static str = CALLS_THE_PROCESSOR;

    fn step(&self) -> &'static StepOn<OrderCancelled> {
        &REFUND_PAYMENT
    }

    /// Writes the cancellations: from now on these orders are not charged.
    async fn prepare(
        &self,
        tx: &mut StepTransaction<()>,
        cancelled: &[&Delivery<OrderCancelled>],
    ) -> Prepared<Question, Answer> {
        let tombstone = |d: &&Delivery<OrderCancelled>| {
            let OrderCancelled { order_id, total, payment_method, .. } = &d.event;
            Ok(NewPayment::new(*order_id, saga_of(d)?, *total, payment_method))
        };
        let tombstones = cancelled.iter().map(tombstone).collect::<Result<Vec<NewPayment>, StepError>>()?;
        let payments = store::cancel_payments(tx.conn(), &tombstones).await?;
        let next = cancelled.iter().map(|d| {
            let stored = payments.get(&d.event.order_id);
            let stored = stored.ok_or_else(|| StepError::failed("the tombstone does not exist any more"))?;
            Ok(next(domain::plan_refund(&stored.payment), Some(stored)))
        });
        next.collect()
    }

    async fn ask(&self, question: Question, context: &Context) -> Result<Answer, StepError> {
        ask(self.0, &REFUND_PAYMENT, question, context).await
    }

    async fn apply_outcomes(
        &self,
        tx: &mut StepTransaction<Delivery<OrderCancelled>>,
        outcomes: &[DeliveryOutcome<OrderCancelled, Answer>],
    ) -> Result<(), StepError> {
        let orders: Vec<OrderId> = outcomes.iter().map(|(cancelled, _)| cancelled.event.order_id).collect();
        let mut payments = store::lock_payments(tx.conn(), &orders).await?;
        for (cancelled, outcome) in outcomes {
            let stored = payments.get_mut(&cancelled.event.order_id);
            let stored = stored.ok_or_else(|| StepError::failed("the cancelled payment does not exist"))?;
            stored.set_status(domain::apply_refund_answer(&stored.payment, outcome.answer())?);
            let Intent { order_id, payment_id, amount: charged, .. } = stored.intent;
            let refunded = matches!(stored.payment.status, Status::Refunded(_));
            let amount = if refunded { charged } else { Money::new(0, charged.currency) };
            let receipt = PaymentRefunded { order_id, payment_id, amount };
            tx.undone(cancelled, stored.next_event(), &receipt)?;
        }
        store::save_payments(tx.conn(), &payments).await
    }
}

/// A call to the card processor, and its payment.
pub(crate) type Question = (Ask, Intent);

/// The report of a dry run for an event that needs a call to the card processor.
const CALLS_THE_PROCESSOR: &str = "it would call the card processor; the outcome depends on its answer";

fn next(plan: Plan, stored: Option<&StoredPayment>) -> Next<Question, Answer> {
    match (plan, stored) {
        (Plan::Ask(ask), Some(stored)) => Next::Ask((ask, stored.intent.clone())),
        (Plan::Ask(_), None) => Next::Apply(Outcome::NotAsked("there is no payment")),
        (Plan::Known(answer), _) => Next::Apply(Outcome::Answer(answer)),
        (Plan::Skip(reason), _) => Next::Apply(Outcome::NotAsked(reason)),
    }
}

/// Calls until the outcome is known, or `gateway_patience` ends. The waits are shorter than those between deliveries.
pub(crate) async fn ask(
    app: &App,
    step: &Step,
    (ask, intent): Question,
    context: &Context,
) -> Result<Answer, StepError> {
    let retry = app.participant.policy(step).retry;
    let retry = Retry { initial: retry.initial / 10, max: retry.initial * 2, ..retry };
    let question = || app.gateway.ask(&ask, &intent, context);
    Ok(resilience::retry(&retry, app.config.gateway_patience, GatewayError::is_unknown, question).await?)
}
