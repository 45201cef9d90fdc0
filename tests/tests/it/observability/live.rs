//! The suite under load, then with failures: every query of every dashboard and rule returns data, and alerts arrive. Queries
//! that are empty in normal operation are listed in grafana/empty_until.json; they must be empty until a failure, and return data
//! then.

use console::audit::Options;
use futures_util::future::try_join_all;
use sqlx::postgres::PgPoolOptions;
use testkit::eventually;

use super::{
    boards::{Query, boards},
    cluster::is_of_a_cluster,
    empty_until::EmptyUntil,
    interpolation::{Chosen, Times},
    monitored::{Monitored, now},
    orders::Orders,
    queries::{Sources, of_rule},
};
use crate::prelude::*;

const LIMIT: Duration = Duration::from_secs(60);
/// How often Prometheus scrapes here, in seconds.
const SCRAPE: f64 = 1.0;

/// Only a broker with a full disk stays connected without answering (`./scripts/prove.d/full-disk`).
const FULL_DISK: &str = "JetStreamSilent";

/// Causes that are active at the same time: lines of causes, one after the other.
const CAUSES: [&[&[&str]]; 3] = [
    &[&["a_scenario_is_played", "requests_fail"]],
    &[
        &["a_compensation_fails_for_one_customer"],
        &["a_step_fails_for_one_customer"],
        &["the_webhook_is_refused"],
        &[
            "the_card_processor_fails",
            "an_event_is_too_large",
            "a_stream_has_little_room",
            "stock_vanishes",
            "payment_pauses_and_the_broker_is_wiped",
        ],
    ],
    &[
        &["no_relay_publishes", "a_service_hangs", "two_relays_publish", "repair"],
        &["nothing_is_audited"],
        &["a_transaction_stays_open"],
    ],
];

/// A query with the values of its board's variables.
type BoundQuery = (Query, Chosen);

#[suite_tests::test]
async fn every_query_returns_data_and_every_failure_alerts() -> Test {
    let monitored = Monitored::start().await?;
    let orders = Orders::begin(&monitored).await?;
    monitored.every_ending_was_seen().await?;
    let auditor = PgPoolOptions::new().max_connections(2).connect_lazy(&monitored.suite.database.url_for("auditor"))?;
    let sources = Sources { prometheus: monitored.api.clone(), auditor };
    let list = EmptyUntil::read()?;
    let all = monitored.queries(&sources).await?;
    list.check(all.iter().map(|(query, _)| query), &CAUSES.concat().concat())?;
    let (wrong, well): (Vec<_>, Vec<_>) = all.into_iter().partition(|(query, _)| list.cause(query).is_some());

    monitored.all_answer(&sources, well.iter().collect()).await?;
    let answered = monitored.answered(&sources, &wrong).await;
    ensure!(answered.is_empty(), "listed as empty in normal operation, but not empty: {answered:#?}");
    let alerts = monitored.alerts().await?;
    ensure!(alerts.is_empty(), "alerts in normal operation: {alerts:?}");
    monitored.exemplars_are_kept(&sources, &well).await?;

    for lines in CAUSES {
        try_join_all(lines.iter().map(async |line| {
            for cause in *line {
                monitored.cause(cause).await.with_context(|| format!("cause {cause}"))?;
                let listed = wrong.iter().filter(|(query, _)| list.cause(query) == Some(cause)).collect();
                monitored.all_answer(&sources, listed).await.with_context(|| format!("after {cause}"))?;
            }
            anyhow::Ok(())
        }))
        .await?;
    }
    monitored.every_alert_was_seen().await?;
    monitored.nothing_unmendable_happened().await?;
    drop(orders);
    monitored.suite.audit_with(Options { settle: LIMIT, ..Options::default() }).await
}

impl Monitored {
    fn times(&self) -> Times {
        Times { from: self.began, to: now(), scrape: SCRAPE }
    }

    /// Confirmed, refused for lack of stock and by the card, cancelled, and timed out; and audited since.
    async fn every_ending_was_seen(&self) -> Test {
        const KINDS: &str = "select count(distinct (s.status, s.failed_at_step)) from saga.saga_instance s
            where s.status in ('COMPLETED', 'COMPENSATED')";
        eventually(LIMIT, async || {
            let kinds = self.suite.number(KINDS).await?;
            ensure!(kinds >= 5, "orders have ended in {kinds} ways only");
            let audits = self.api.instant("audit_runs_total").await?;
            ensure!(audits.iter().any(|series| series.values[0] >= 2.0), "nothing was audited: {audits:?}");
            anyhow::Ok(())
        })
        .await
    }

    async fn every_alert_was_seen(&self) -> Test {
        let alerts = self.api.rules().await?.into_iter().filter(|rule| rule.kind == "alerting").map(|rule| rule.name);
        let fired = self.fired.borrow();
        let never: Vec<_> = alerts.filter(|alert| !fired.contains(alert) && *alert != FULL_DISK).collect();
        ensure!(never.is_empty(), "nothing that was caused makes these alerts fire: {never:?}");
        Ok(())
    }

    /// Despite all failures and repairs: these were never violated.
    async fn nothing_unmendable_happened(&self) -> Test {
        const NEVER: &str = "money_conserved|one_charge_per_order|gateway_charges|gateway_totals|order_total|order_terminal\
            |no_orphans|journal_legal|steps_taken_once|inbox_unique|aggregate_order|stream_only_committed|published_in_stream";
        let range = (now() - self.began).ceil();
        let query = format!("max_over_time(invariant_violations{{invariant=~\"{NEVER}\"}}[{range}s])");
        let looked = self.api.instant(&query).await?;
        ensure!(looked.len() == NEVER.split('|').count(), "not all were audited: {looked:#?}");
        let violated: Vec<_> = looked.iter().filter(|series| series.values != [0.0]).collect();
        ensure!(violated.is_empty(), "{violated:#?}");
        Ok(())
    }

    /// Every query of every board and rule.
    async fn queries(&self, sources: &Sources) -> anyhow::Result<Vec<BoundQuery>> {
        let mut bound = Vec::new();
        for board in boards()?.into_iter().filter(|board| !is_of_a_cluster(&board.file)) {
            let chosen = eventually(LIMIT, async || sources.choices(&board, self.times()).await.map(Some)).await?;
            bound.extend(board.queries()?.into_iter().map(|query| (query, chosen.clone())));
        }
        let rules = self.api.rules().await?.into_iter().map(of_rule).collect::<anyhow::Result<Vec<_>>>()?;
        bound.extend(rules.into_iter().map(|query| (query, Chosen::default())));
        Ok(bound)
    }

    /// Waits until each of them has returned data once.
    async fn all_answer(&self, sources: &Sources, mut bound: Vec<&BoundQuery>) -> Test {
        let began = tokio::time::Instant::now();
        loop {
            let mut failures = Vec::new();
            let mut left = Vec::new();
            for bound in bound {
                let (query, chosen) = bound;
                if let Some(failure) = sources.unanswered(query, chosen, self.times()).await {
                    failures.push(failure);
                    left.push(bound);
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            ensure!(began.elapsed() < LIMIT, "{} queries are not answered:\n{}", left.len(), failures.join("\n"));
            bound = left;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Those that return data now.
    async fn answered<'a>(&self, sources: &Sources, bound: &'a [BoundQuery]) -> Vec<&'a Query> {
        let mut answered = Vec::new();
        for (query, chosen) in bound {
            if sources.unanswered(query, chosen, self.times()).await.is_none() {
                answered.push(query);
            }
        }
        answered
    }

    /// Every query with exemplars has some, each with its trace.
    async fn exemplars_are_kept(&self, sources: &Sources, bound: &[BoundQuery]) -> Test {
        let bound: Vec<_> = bound.iter().filter(|(query, _)| query.exemplar).collect();
        ensure!(!bound.is_empty(), "no panel asks for exemplars");
        let has_trace = |exemplar: &Value| exemplar["labels"]["trace_id"].as_str().is_some_and(|id| id.len() == 32);
        eventually(LIMIT, async || {
            let mut without = Vec::new();
            for (query, chosen) in &bound {
                if !sources.exemplars(query, chosen, self.times()).await?.iter().any(has_trace) {
                    without.push(format!("{} {:?}: {}", query.board, query.asker, query.text));
                }
            }
            ensure!(without.is_empty(), "without an example that has a trace:\n{}", without.join("\n"));
            anyhow::Ok(())
        })
        .await
    }
}
