//! The drills. Each row is one hidden fault: where it is, what it is, how it is done and undone, and who mends it.

use contracts::ORDER;
use saga::Service;

use crate::suite::GatewayFaults;

/// One drill.
#[derive(Debug)]
pub(super) struct Drill {
    pub(super) name: &'static str,
    /// A step of the saga, or the relay of a service.
    pub(super) place: &'static str,
    pub(super) cause: &'static str,
    pub(super) damage: Damage,
    pub(super) concerns: Concerns,
    pub(super) mended_by: MendedBy,
    /// Told when it is over.
    pub(super) debrief: &'static str,
}

/// What is done. In SQL, `{sku}` is the drill's product. What undoes it changes nothing where it was not done.
#[derive(Debug, Clone, Copy)]
pub(super) enum Damage {
    /// Statements of the database's owner. Whatever is in the schema `drill` goes with it.
    Sql { damage: &'static [&'static str], undo: &'static [&'static str] },
    /// A transaction that does this and stays open.
    Transaction(&'static str),
    /// A statement that goes on until its session ends.
    Endless { damage: &'static str, undo: &'static [&'static str] },
    /// Hidden faults of the card processor.
    Gateway(GatewayFaults),
    /// The stream of a service is full.
    FullStream(Service),
}

/// Which orders it concerns.
#[derive(Debug, Clone, Copy)]
pub(super) enum Concerns {
    /// Those that do not end as they should, in time.
    Late,
    /// Those that a query finds, before the damage is undone.
    Found(&'static str),
}

/// Who mends it, once its cause is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MendedBy {
    /// An operation of the suite.
    Player,
    /// Whoever administers database, broker or card processor; what it left, such as dead letters, remains for the player.
    Administrator,
}

use Concerns::{Found, Late};
use MendedBy::{Administrator, Player};

const NO_FAULTS: GatewayFaults = GatewayFaults {
    latency_ms: 0,
    error_rate: 0.0,
    drop_rate: 0.0,
    decline_rate: 0.0,
    expires_in_seconds: 3_600,
    hidden: true,
};

/// Makes a trigger that acts on the first three events of a type.
macro_rules! on_three_events {
    ($table:literal, $moment:literal, $event:literal, $act:literal, $result:literal) => {
        &[
            concat!(
                "create function drill.act() returns trigger language plpgsql security definer as $$
                begin
                    if new.event_type like '",
                $event,
                ".%' and (select count(*) from drill.event) < 3 then
                        insert into drill.event select new.*;
                        ",
                $act,
                ";
                    end if;
                    return ",
                $result,
                ";
                end $$"
            ),
            concat!("create table drill.event (like ", $table, ")"),
            concat!(
                "create trigger drill ",
                $moment,
                " insert on ",
                $table,
                " for each row execute function drill.act()"
            ),
        ]
    };
}

pub(super) static DRILLS: [Drill; 20] = [
    Drill {
        name: "a paused step",
        place: "confirm_order",
        cause: "consumer_paused",
        damage: Damage::Sql {
            damage: &["insert into orders.paused_consumer (consumer) values ('order-confirm_order')"],
            undo: &["delete from orders.paused_consumer where consumer = 'order-confirm_order'"],
        },
        concerns: Late,
        mended_by: Player,
        debrief: "The consumer of confirm_order was paused; resume_consumer lets it go on.",
    },
    Drill {
        name: "a paused compensation",
        place: "refund_payment",
        cause: "consumer_paused",
        damage: Damage::Sql {
            damage: &["insert into payment.paused_consumer (consumer) values ('payment-refund_payment')"],
            undo: &["delete from payment.paused_consumer where consumer = 'payment-refund_payment'"],
        },
        concerns: Late,
        mended_by: Player,
        debrief: "The consumer of refund_payment was paused: cancelled orders owed payment's confirmation.",
    },
    Drill {
        name: "a paused relay",
        place: "relay_inventory",
        cause: "relay_paused",
        damage: Damage::Sql {
            damage: &["update inventory.relay_lease set paused = true"],
            undo: &["update inventory.relay_lease set paused = false"],
        },
        concerns: Late,
        mended_by: Player,
        debrief: "The relay of inventory was paused; resume_relay lets it publish what has piled up.",
    },
    Drill {
        name: "a full stream",
        place: "relay_order",
        cause: "stream_full",
        damage: Damage::FullStream(ORDER),
        concerns: Late,
        mended_by: Administrator,
        debrief: "The stream ORDER accepted no message more. Events waited in the outbox, and no attempt was counted.",
    },
    Drill {
        name: "a relay whose lease a zombie holds",
        place: "relay_payment",
        cause: "lease_held",
        // A lease that lasts too long would count as free.
        damage: Damage::Endless {
            damage: "do $$ begin
                for _ in 1..20000 loop
                    update payment.relay_lease
                    set epoch = epoch + case holder when 'payment-0c7d41' then 0 else 1 end,
                        taken_at = case holder when 'payment-0c7d41' then taken_at else clock_timestamp() end,
                        holder = 'payment-0c7d41', expires_at = clock_timestamp() + interval '1 second';
                    commit;
                    perform pg_sleep(0.2);
                end loop;
            end $$",
            undo: &["update payment.relay_lease set expires_at = '-infinity' where holder = 'payment-0c7d41'"],
        },
        concerns: Late,
        mended_by: Administrator,
        debrief: "A process that publishes nothing held the lease of payment's relay, and renewed it.",
    },
    Drill {
        name: "parked events",
        place: "relay_inventory",
        cause: "event_parked",
        damage: Damage::Sql {
            damage: on_three_events!(
                "inventory.outbox",
                "before",
                "StockReserved",
                "new.state := 'PARKED'; new.attempts := 1; new.last_error := 'the broker refused it';
                        insert into inventory.outbox_attempt (event_id, attempt, relay, error)
                        values (new.event_id, 1, 'inventory', 'the broker refused it')",
                "new"
            ),
            undo: &["do $$ begin
                if to_regclass('drill.event') is not null then
                    update inventory.outbox set state = 'PENDING', attempts = 0, next_attempt_at = now()
                    where state = 'PARKED' and event_id in (select event_id from drill.event);
                end if;
            end $$"],
        },
        concerns: Late,
        mended_by: Player,
        debrief: "Three events StockReserved were parked; requeue_outbox_entry publishes them.",
    },
    Drill {
        name: "lost events",
        place: "relay_order",
        cause: "event_lost",
        damage: Damage::Sql {
            damage: on_three_events!(
                "orders.outbox",
                "after",
                "OrderCreated",
                "delete from orders.outbox where event_id = new.event_id",
                "null"
            ),
            undo: &["do $$ begin
                if to_regclass('drill.event') is not null then
                    insert into orders.outbox overriding system value select * from drill.event on conflict do nothing;
                end if;
            end $$"],
        },
        concerns: Late,
        mended_by: Administrator,
        debrief: "Three events OrderCreated vanished from order's outbox after their commit; they were put back.",
    },
    Drill {
        name: "poisoned events",
        place: "process_payment",
        cause: "event_unreadable",
        damage: Damage::Sql {
            damage: on_three_events!(
                "inventory.outbox",
                "before",
                "StockReserved",
                "new.payload := '{\"damaged\": true}'",
                "new"
            ),
            undo: &["do $$ begin
                if to_regclass('drill.event') is not null then
                    update inventory.outbox p set payload = e.payload from drill.event e where p.event_id = e.event_id;
                    update inventory.outbox_published p set payload = e.payload from drill.event e where p.event_id = e.event_id;
                end if;
            end $$"],
        },
        concerns: Late,
        mended_by: Player,
        debrief: "Three events StockReserved were damaged before they were published. Their dead letters are discarded, and \
            their orders cancelled.",
    },
    Drill {
        name: "a slow processor",
        place: "process_payment",
        cause: "processor_slow",
        damage: Damage::Gateway(GatewayFaults { latency_ms: 30_000, ..NO_FAULTS }),
        concerns: Late,
        mended_by: Administrator,
        debrief: "The card processor took 30 s for each answer, longer than payment waits.",
    },
    Drill {
        name: "a declining processor",
        place: "process_payment",
        cause: "processor_declines",
        damage: Damage::Gateway(GatewayFaults { decline_rate: 1.0, ..NO_FAULTS }),
        concerns: Late,
        mended_by: Administrator,
        debrief: "The card processor declined every card. A refusal is an event, so nothing failed but the orders.",
    },
    Drill {
        name: "a failing processor",
        place: "process_payment",
        cause: "processor_fails",
        damage: Damage::Gateway(GatewayFaults { error_rate: 1.0, ..NO_FAULTS }),
        concerns: Late,
        mended_by: Administrator,
        debrief: "The card processor answered 503; the breaker opened, and probed until it worked again.",
    },
    Drill {
        name: "answers that are lost",
        place: "process_payment",
        cause: "processor_answers_lost",
        damage: Damage::Gateway(GatewayFaults { drop_rate: 1.0, ..NO_FAULTS }),
        concerns: Late,
        mended_by: Administrator,
        debrief: "The card processor closed connections without an answer, before the charge or after it; the key of the \
            charge makes the retry safe.",
    },
    Drill {
        name: "a held lock",
        place: "reserve_stock",
        cause: "lock_held",
        damage: Damage::Transaction("update inventory.product set updated_at = updated_at where sku = '{sku}'"),
        concerns: Late,
        mended_by: Administrator,
        debrief: "A transaction held the lock of the product's row, and idled.",
    },
    Drill {
        name: "a slow statement",
        place: "confirm_order",
        cause: "statement_slow",
        damage: Damage::Sql {
            damage: &[
                "create function drill.act() returns trigger language plpgsql as $$
                begin
                    perform pg_sleep(600);
                    return new;
                end $$",
                "create trigger drill before update on orders.customer_order for each row \
                    when (new.status = 'CONFIRMED') execute function drill.act()",
            ],
            undo: &[],
        },
        concerns: Late,
        mended_by: Administrator,
        debrief: "The statement that confirms orders took longer than its time limit: a trigger slept.",
    },
    Drill {
        name: "a missing permission",
        place: "reserve_stock",
        cause: "permission_missing",
        damage: Damage::Sql {
            damage: &["revoke insert on inventory.reservation_line from inventory_service"],
            undo: &["grant insert on inventory.reservation_line to inventory_service"],
        },
        concerns: Late,
        mended_by: Administrator,
        debrief: "Inventory might not write reservations; its dead letters are replayed once it may.",
    },
    Drill {
        name: "a stuck compensation",
        place: "release_stock",
        cause: "constraint_violated",
        damage: Damage::Sql {
            damage: &[
                "alter table inventory.reservation add constraint reservation_kept check (status <> 'RELEASED') not valid",
            ],
            undo: &["alter table inventory.reservation drop constraint if exists reservation_kept"],
        },
        concerns: Late,
        mended_by: Administrator,
        debrief: "A constraint forbade to release reservations; the dead letters of release_stock are replayed without it.",
    },
    Drill {
        name: "confirmations that are refused",
        place: "confirm_order",
        cause: "constraint_violated",
        damage: Damage::Sql {
            damage: &[
                "alter table orders.customer_order add constraint order_open check (status <> 'CONFIRMED') not valid",
            ],
            undo: &["alter table orders.customer_order drop constraint if exists order_open"],
        },
        concerns: Late,
        mended_by: Administrator,
        debrief: "A constraint forbade confirmed orders; the dead letters of confirm_order are replayed without it.",
    },
    Drill {
        name: "a wrong price",
        place: "create_order",
        cause: "price_wrong",
        damage: Damage::Sql {
            damage: &["update orders.product_view set price = price * 3 where sku = '{sku}'"],
            undo: &["update orders.product_view v set price = p.price from inventory.product p \
                where p.sku = v.sku and v.sku = '{sku}'"],
        },
        concerns: Found(
            "select order_id from orders.order_line l join inventory.product p using (sku) \
            where sku = '{sku}' and l.unit_price <> p.price",
        ),
        mended_by: Player,
        debrief: "Order sold the product at three times inventory's price; rebuild_catalogue makes them equal.",
    },
    Drill {
        name: "reservations that are refused",
        place: "reserve_stock",
        cause: "product_discontinued",
        damage: Damage::Sql {
            damage: &["update inventory.product set status = 'DISCONTINUED' where sku = '{sku}'"],
            undo: &[
                "update inventory.product set status = 'ACTIVE' where sku = '{sku}'",
                // Order's view may have been rebuilt meanwhile.
                "update orders.product_view set status = 'ACTIVE' where sku = '{sku}'",
            ],
        },
        concerns: Late,
        mended_by: Administrator,
        debrief: "Inventory had discontinued the product, without an event: order went on selling it.",
    },
    Drill {
        name: "rows that were changed",
        place: "process_payment",
        cause: "row_changed",
        damage: Damage::Sql {
            damage: &["update payment.payment set amount = amount + 100 where order_id in (
                select order_id from orders.customer_order join orders.order_line using (order_id)
                where sku = '{sku}' and status = 'CONFIRMED' order by order_id desc limit 3)"],
            undo: &[
                "update payment.payment p set amount = o.total_amount from orders.customer_order o, orders.order_line l \
                where o.order_id = p.order_id and l.order_id = o.order_id and l.sku = '{sku}' and p.amount <> o.total_amount",
            ],
        },
        concerns: Found(
            "select order_id from payment.payment p join orders.customer_order o using (order_id)
            join orders.order_line l using (order_id) where l.sku = '{sku}' and p.amount <> o.total_amount",
        ),
        mended_by: Administrator,
        debrief: "The amounts of three payments were changed in the database: only the audit sees it.",
    },
];

/// The places that an answer may name, and the causes.
pub(super) fn vocabulary() -> (Vec<String>, Vec<&'static str>) {
    let steps = contracts::order_fulfillment::SAGA.steps.iter().filter(|step| step.service.is_some());
    let relays = contracts::SERVICES.map(|service| format!("relay_{service}"));
    let places = steps.map(|step| step.name.to_owned()).chain(relays).collect();
    let mut causes: Vec<_> = DRILLS.iter().map(|drill| drill.cause).collect();
    causes.sort_unstable();
    causes.dedup();
    (places, causes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_drill_has_a_name_and_an_answer_of_its_own() {
        let answers: BTreeSet<_> = DRILLS.iter().map(|drill| (drill.place, drill.cause)).collect();
        let names: BTreeSet<_> = DRILLS.iter().map(|drill| drill.name).collect();
        assert_eq!((answers.len(), names.len()), (DRILLS.len(), DRILLS.len()));
        let (places, _) = vocabulary();
        assert!(DRILLS.iter().all(|drill| places.iter().any(|place| place == drill.place)));
    }
}
