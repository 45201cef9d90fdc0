//! The observable state of one order, in the database and in the model.

use model::{World, gateway::Key, mail::Kind, world::Fulfilment};
use serde::Deserialize;

pub(super) const AMOUNT: i64 = 500;

/// One order's rows, the stock, and the number of its events.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Seen {
    order: String,
    saga: String,
    step: u8,
    receipts_due: Vec<String>,
    attempts: i16,
    reservation: Option<String>,
    held: i64,
    payment: Option<String>,
    cancelled: bool,
    available: i64,
    reserved: i64,
    /// Events by their type, in the order of [`Kind::ALL`].
    events: Vec<i64>,
    confirmations: i64,
    receipts: i64,
    /// Rows of all inboxes for this order's events.
    inbox: i64,
}

impl Seen {
    /// Its state in the database; `$1` is the order, `$2` its product.
    pub(super) const SQL: &str = "
        with event as (
            select event_id, split_part(event_type, '.', 1) as name, saga_id from audit.outbox
            union all select event_id, split_part(event_type, '.', 1), saga_id from audit.outbox_published
        )
        select json_build_object(
            'order', o.status, 'saga', s.status, 'step', s.current_step, 'receipts_due', s.receipts_due,
            'attempts', s.compensation_attempts, 'reservation', r.status,
            'held', (select coalesce(sum(quantity), 0) from inventory.reservation_line l
                where l.order_id = o.order_id and l.status = 'RESERVED'),
            'payment', p.status, 'cancelled', p.cancelled_at is not null,
            'available', product.available, 'reserved', product.reserved,
            'events', (select json_agg((select count(*) from event where event.saga_id = s.saga_id and event.name = kind)
                order by place) from unnest($3::text[]) with ordinality as k (kind, place)),
            'confirmations', (select count(*) from event where event.saga_id = s.saga_id and name = 'OrderConfirmed'),
            'receipts', (select count(*) from event where event.saga_id = s.saga_id
                and name in ('StockReleased', 'PaymentRefunded')),
            'inbox', (select count(*) from audit.inbox join event using (event_id) where event.saga_id = s.saga_id)
        )
        from orders.customer_order o
        join saga.saga_instance s on s.saga_id = o.saga_id
        join inventory.product product on product.sku = $2
        left join inventory.reservation r on r.order_id = o.order_id
        left join payment.payment p on p.order_id = o.order_id
        where o.order_id = $1";

    /// Its state in the model.
    pub(super) fn predicted(world: &World, order: &Fulfilment) -> Seen {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let events = |kind: Kind| count(order.mail.iter().filter(|m| m.id.0 == kind).count());
        let applied = |m: &model::mail::Message| m.applied.iter().map(|times| i64::from(*times)).sum::<i64>();
        let undos = order.mail.iter().filter(|m| m.id.0 == Kind::OrderCancelled);
        Seen {
            order: order.order.as_str().to_owned(),
            saga: order.saga.status.as_str().to_owned(),
            step: order.saga.current_step,
            receipts_due: order.saga.receipts_due.clone(),
            attempts: order.attempts,
            reservation: order.reservation.map(|r| r.status.as_str().to_owned()),
            held: i64::from(order.holds_stock()),
            payment: order.payment.as_ref().map(|p| p.status.as_str().to_owned()),
            cancelled: order.payment.as_ref().is_some_and(|p| p.cancelled),
            available: i64::from(world.available),
            reserved: i64::from(world.reserved),
            events: Kind::ALL.map(|(kind, _)| events(kind)).to_vec(),
            confirmations: i64::from(order.history.confirmed),
            // Every cancellation that a participant has applied was confirmed.
            receipts: undos.map(applied).sum(),
            inbox: order.mail.iter().map(applied).sum(),
        }
    }

    /// The sum of all charges that were not refunded.
    pub(super) fn money(world: &World) -> i64 {
        world.orders.iter().filter(|o| o.key == Key::Charged).map(|_| AMOUNT).sum()
    }
}
