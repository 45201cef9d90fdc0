//! Failures on purpose, and the alerts that each must raise. Each cause lasts until its alerts have arrived at Alertmanager and
//! at the console; causes that need an operator are repaired at the end.

use std::collections::BTreeSet;

use anyhow::bail;
use futures_util::future::try_join_all;
use testkit::eventually;
use tokio::time::interval;

use super::{
    monitored::{Monitored, SETTINGS},
    orders::order,
};
use crate::{prelude::*, webhook::requeue};

const LIMIT: Duration = Duration::from_secs(60);

impl Monitored {
    /// Brings about a failure.
    pub(super) async fn cause(&self, name: &str) -> Test {
        match name {
            "a_scenario_is_played" => self.a_scenario_is_played().await,
            "requests_fail" => self.requests_fail().await,
            "a_step_fails_for_one_customer" => self.a_step_fails_for_one_customer().await,
            "a_compensation_fails_for_one_customer" => self.a_compensation_fails_for_one_customer().await,
            "the_card_processor_fails" => self.the_card_processor_fails().await,
            "an_event_is_too_large" => self.an_event_is_too_large().await,
            "the_webhook_is_refused" => self.the_webhook_is_refused().await,
            "a_stream_has_little_room" => self.a_stream_has_little_room().await,
            "stock_vanishes" => self.stock_vanishes().await,
            "payment_pauses_and_the_broker_is_wiped" => self.payment_pauses_and_the_broker_is_wiped().await,
            "no_relay_publishes" => self.no_relay_publishes().await,
            "a_service_hangs" => self.a_service_hangs().await,
            "two_relays_publish" => self.two_relays_publish().await,
            "nothing_is_audited" => self.nothing_is_audited().await,
            "a_transaction_stays_open" => self.a_transaction_stays_open().await,
            "repair" => self.repair().await,
            other => bail!("there is no cause {other}"),
        }
    }

    /// Waits until all of these alerts are at Alertmanager at the same time, and the console has received them. An alert that
    /// ends before its group is sent is never delivered.
    async fn fire(&self, alerts: &[&str]) -> Test {
        eventually(LIMIT, async || {
            for (place, arrived) in [("Alertmanager", self.alerts().await?), ("the console", self.received().await?)] {
                let missing: Vec<_> = alerts.iter().filter(|alert| !arrived.contains(**alert)).collect();
                ensure!(missing.is_empty(), "{missing:?} have not arrived at {place}, but {arrived:?}");
            }
            anyhow::Ok(())
        })
        .await?;
        self.fired.borrow_mut().extend(alerts.iter().map(|alert| (*alert).to_owned()));
        Ok(())
    }

    /// The console reports the beginning and the end of a scenario to order.
    async fn a_scenario_is_played(&self) -> Test {
        let began = self.order.post("/api/admin/annotations", &json!({"title": "slow gateway"})).await?.expect(201)?;
        let id = began["annotation_id"].as_str().context("it has no id")?;
        let ended = self.order.post(&format!("/api/admin/annotations/{id}/end"), &json!({})).await?;
        ensure!(ended.status < 300, "{}: {}", ended.status, ended.body);
        Ok(())
    }

    /// A step that fails for one customer's orders uses up its attempts.
    async fn a_step_fails_for_one_customer(&self) -> Test {
        arm(&self.inventory, "in_step", "error", json!({"customer_id": "poison", "step": "reserve_stock"})).await?;
        for _ in 0..3 {
            self.order.post("/api/orders", &order("poison", "PLENTY", "tok_visa")).await?.expect(201)?;
        }
        self.fire(&["DeadLettersPending", "RetriesExhausted"]).await?;
        self.suite
            .execute("update inventory.dead_letter set created_at = created_at - interval '6 days 1 hour'")
            .await?;
        let fired = self.fire(&["DeadLetterExpiring"]).await;
        self.suite
            .execute("update inventory.dead_letter set created_at = created_at + interval '6 days 1 hour'")
            .await?;
        fired
    }

    /// So does a compensation, until the saga is FAILED. Its stock is due for half a minute.
    async fn a_compensation_fails_for_one_customer(&self) -> Test {
        arm(&self.inventory, "in_step", "error", json!({"customer_id": "stuck", "step": "release_stock"})).await?;
        let stuck = self.order.post("/api/orders", &order("stuck", "PLENTY", "tok_declined")).await?.expect(201)?;
        self.has_run_for_long(stuck["saga_id"].as_str().context("it has no saga")?).await?;
        self.fire(&["SagaStuckCompensating"]).await?;
        self.fire(&["CompensationFailed", "SagaFailed", "CompensationDebtOld"]).await
    }

    /// As soon as the saga is compensating, its start is set back by minutes.
    async fn has_run_for_long(&self, saga_id: &str) -> Test {
        let began = format!(
            "update saga.saga_instance set started_at = started_at - interval '5 minutes'
            where saga_id = '{saga_id}' and status = 'COMPENSATING'"
        );
        eventually(LIMIT, async || self.suite.execute(&began).await.is_ok_and(|changed| changed == 1)).await
    }

    async fn the_card_processor_fails(&self) -> Test {
        let gateway = self.suite.gateway_client();
        gateway.post("/v1/faults", &json!({"error_rate": 1.0})).await?.expect(200)?;
        let fired = self.fire(&["CircuitBreakerOpen"]).await;
        gateway.delete("/v1/faults", &Value::Null).await?;
        fired
    }

    async fn requests_fail(&self) -> Test {
        arm(&self.order, "http_in", "error", json!({})).await?;
        let fail = async |_| self.order.get("/api/products/PLENTY").await;
        try_join_all((0..100).map(fail)).await?;
        let fired = self.fire(&["ErrorRateHigh"]).await;
        self.disarm(&self.order).await?;
        fired
    }

    /// The broker refuses one event for its size.
    async fn an_event_is_too_large(&self) -> Test {
        let longest = self.longest_message("INVENTORY").await?;
        self.suite.message_size("INVENTORY", i32::try_from(longest)? + 50).await?;
        let name = json!({"name": "🕺".repeat(200)});
        self.inventory.patch("/api/products/NONE-LEFT", &name).await?.expect(200)?;
        self.suite.becomes("select count(*) from inventory.outbox where state = 'PARKED'", 1).await?;
        let fired = self.fire(&["OutboxParked"]).await;
        self.suite.message_size("INVENTORY", -1).await?;
        fired
    }

    /// The webhook's endpoint refuses one event, which grows old.
    async fn the_webhook_is_refused(&self) -> Test {
        self.receiver.answer(|event| if event["subject"] == "HOOK" { 422 } else { 204 });
        self.sell("HOOK", 1).await?;
        let fired = self.fire(&["WebhookParked", "WebhookBehind"]).await;
        self.receiver.answer(|_| 204);
        let parked = self.inventory.until_items("/api/admin/webhook/events?state=PARKED", 1).await?.remove(0);
        requeue(&self.inventory, &parked).await?;
        fired
    }

    /// The reconciler, which removes consumed events, is stopped.
    async fn a_stream_has_little_room(&self) -> Test {
        self.suite.stop_reconciler();
        let held = self.suite.jetstream().await?.get_stream("PAYMENT").await?.cached_info().state.bytes;
        // More than 80 %, and less than 90 %, from where on order accepts no orders.
        let room = i64::try_from(held * 100 / 85)?;
        self.suite.change_stream("PAYMENT", |config| config.max_bytes = room).await?;
        let fired = self.fire(&["StreamNearFull"]).await;
        self.suite.change_stream("PAYMENT", |config| config.max_bytes = 1 << 30).await?;
        self.suite.start_reconciler().await?;
        fired
    }

    /// Payment neither consumes nor publishes, and the broker loses everything.
    async fn payment_pauses_and_the_broker_is_wiped(&self) -> Test {
        let payment = &self.payment;
        payment.act("/api/admin/consumers/process_payment/pause").await?;
        payment.act("/api/admin/relay/pause").await?;
        let reserved = "select count(*) from saga.saga_instance where status = 'IN_PROGRESS'";
        eventually(LIMIT, async || self.suite.number(reserved).await.is_ok_and(|sagas| sagas > 5)).await?;
        self.suite.nats.lock().await.wipe().await?;
        let fired = self.fire(&["BrokerDataLost", "SagaTimeoutRateHigh", "SagaSuccessRateLow"]).await;
        let stalled = self.fire(&["ConsumerStalled", "OutboxStale"]).await;
        payment.act("/api/admin/relay/resume").await?;
        payment.act("/api/admin/consumers/process_payment/resume").await?;
        fired.and(stalled)
    }

    /// Changes the books directly in the database.
    async fn stock_vanishes(&self) -> Test {
        const LINE: &str =
            "where order_id = (select min(order_id::text)::uuid from inventory.reservation where status = 'RESERVED')";
        self.book_line("RELEASED", LINE).await?;
        let fired = self.fire(&["InvariantViolated"]).await;
        self.book_line("RESERVED", LINE).await?;
        fired
    }

    async fn book_line(&self, status: &str, line: &str) -> Test {
        let change = format!(
            "begin; set local session_replication_role = replica;
             update inventory.reservation_line set status = '{status}' {line}; commit"
        );
        self.suite.execute(change).await.map(drop)
    }

    /// Holds the relay's lease without publishing.
    async fn no_relay_publishes(&self) -> Test {
        let fired = tokio::select! {
            fired = self.events_wait() => fired,
            held = self.hold_the_lease() => held,
        };
        self.suite.execute("update orders.relay_lease set expires_at = now()").await?;
        fired
    }

    async fn events_wait(&self) -> Test {
        self.fire(&["RelayMissing"]).await?;
        self.suite.execute("update orders.outbox set created_at = created_at - interval '31 seconds'").await?;
        self.fire(&["OrdersShed"]).await
    }

    /// Renewed again and again, for at most twice a lease's time (1 s): a longer lease would count as free.
    async fn hold_the_lease(&self) -> Test {
        let mut ticks = interval(Duration::from_millis(250));
        loop {
            ticks.tick().await;
            self.suite.execute(
                "update orders.relay_lease set holder = 'an idle machine', expires_at = now() + interval '2 seconds',
                    epoch = epoch + (holder <> 'an idle machine')::int",
            )
            .await?;
        }
    }

    /// A frozen process answers no request.
    async fn a_service_hangs(&self) -> Test {
        self.inventory_process.borrow_mut().pause()?;
        let fired = self.fire(&["ServiceDown"]).await;
        self.inventory_process.borrow_mut().resume()?;
        fired
    }

    /// The relay of payment hangs while it publishes, and misses that another one has taken over.
    async fn two_relays_publish(&self) -> Test {
        let second = Running::start(&self.suite, PAYMENT, SETTINGS).await?;
        self.scrape_too(PAYMENT.0, second.client.base())?;
        let both = "count(relay_active{job=\"payment\"}) == 2";
        eventually(LIMIT, async || self.api.instant(both).await.is_ok_and(|series| !series.is_empty())).await?;
        let hang = json!({"point": "bus_publish", "kind": "hang", "first": 1, "expires_in_seconds": 300});
        self.payment.post("/api/admin/faults", &hang).await?.expect(201)?;
        let fired = self.fire(&["RelayTwice"]).await;
        self.disarm(&self.payment).await?;
        self.scrape_no_other()?;
        fired
    }

    async fn nothing_is_audited(&self) -> Test {
        self.suite.execute("revoke usage on schema saga from auditor").await?;
        let fired = self.fire(&["AuditStale"]).await;
        self.suite.execute("grant usage on schema saga to auditor").await?;
        fired
    }

    /// Opens a transaction, reads, and leaves it open.
    async fn a_transaction_stays_open(&self) -> Test {
        let mut forgotten = self.suite.pool.begin_with("begin isolation level repeatable read").await?;
        sqlx::query("select count(*) from saga.annotation").execute(&mut *forgotten).await?;
        let fired = self.fire(&["OldestTransactionHeld"]).await;
        forgotten.rollback().await?;
        fired
    }

    /// Repairs every failure by an operator's means; then the suite is sound.
    async fn repair(&self) -> Test {
        self.disarm(&self.inventory).await?;
        for event in self.inventory.items("/api/admin/outbox?state=PARKED").await? {
            let path = format!("/api/admin/outbox/{}/requeue", event["event_id"].as_str().unwrap_or_default());
            self.inventory.post(&path, &json!({"reason": "repaired"})).await?.expect(200)?;
        }
        for client in [&self.inventory, &self.payment, &self.order] {
            client.post("/api/admin/dlq/replay", &json!({"filter": {}})).await?.expect(202)?;
        }
        eventually(LIMIT, async || {
            for saga in self.failed_sagas().await? {
                self.order.post(&format!("/api/admin/sagas/{saga}/resume"), &json!({})).await?;
            }
            let left = self.failed_sagas().await?;
            ensure!(left.is_empty(), "{left:?} are still FAILED");
            anyhow::Ok(())
        })
        .await
    }

    async fn failed_sagas(&self) -> anyhow::Result<BTreeSet<String>> {
        let failed = self.order.items("/api/sagas?status=FAILED&limit=200").await?;
        Ok(failed.iter().filter_map(|saga| saga["saga_id"].as_str()).map(str::to_owned).collect())
    }

    async fn disarm(&self, client: &Client) -> Test {
        client.delete("/api/admin/faults", &Value::Null).await?.expect(200).map(drop)
    }

    async fn longest_message(&self, stream: &str) -> anyhow::Result<usize> {
        let stream = self.suite.jetstream().await?.get_stream(stream).await?;
        let state = &stream.cached_info().state;
        let mut longest = 0;
        for sequence in state.last_sequence.saturating_sub(100).max(state.first_sequence)..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await?;
            longest = longest.max(message.payload.len() + header_length(&message.headers));
        }
        ensure!(longest > 0, "the stream is empty");
        Ok(longest)
    }
}

/// Armed for long enough to outlast the test.
async fn arm(client: &Client, point: &str, kind: &str, scope: Value) -> Test {
    let fault = json!({"point": point, "kind": kind, "scope": scope, "expires_in_seconds": 300});
    client.post("/api/admin/faults", &fault).await?.expect(201).context("the fault is not armed")?;
    Ok(())
}

/// How long the headers are on the wire.
fn header_length(headers: &async_nats::HeaderMap) -> usize {
    let line = |(name, values): (&async_nats::HeaderName, &Vec<async_nats::HeaderValue>)| {
        values.iter().map(|value| name.to_string().len() + value.as_str().len() + 4).sum::<usize>()
    };
    headers.iter().map(line).sum::<usize>() + 14
}
