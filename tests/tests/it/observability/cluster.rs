//! The board and the alerts of a cluster (`./scripts/up --cluster`). They are about servers that a test's suite does not have, so
//! their queries ask for what Prometheus once had of a healthy cluster: `cluster.prom`, from its `/federate`, without times.

use axum::{Router, routing::get};
use sqlx::PgPool;
use suite_tests::PrometheusApi;
use testkit::Monitor;
use tokio::net::TcpListener;

use super::{
    boards::{Language, boards},
    interpolation::{Chosen, Times},
    monitored::now,
    queries::{Sources, of_rule},
};
use crate::{prelude::*, sources::path};

const RECORDED: &str = include_str!("cluster.prom");

/// Whether a file of `grafana` has queries that only a cluster answers.
pub(super) fn is_of_a_cluster(file: &str) -> bool {
    file.ends_with("cluster.json") || file.ends_with("cluster.yml")
}

#[suite_tests::test]
async fn every_query_about_a_cluster_returns_data() -> Test {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: [\"{}\"]\n\
         scrape_configs: [{{job_name: recorded, honor_labels: true, static_configs: [{{targets: [\"{}\"]}}]}}]\n",
        path("grafana/alerts/cluster.yml").display(),
        listener.local_addr()?
    );
    let router = Router::new().route("/metrics", get(async || RECORDED));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let began = now();
    let monitor = Monitor::prometheus(&config).await?;
    let prometheus = PrometheusApi::new(&monitor.url());
    let sources = Sources { prometheus, auditor: PgPool::connect_lazy("postgres://nowhere")? };

    let mut queries = Vec::new();
    for board in boards()?.into_iter().filter(|board| is_of_a_cluster(&board.file)) {
        queries.extend(board.queries()?.into_iter().filter(|query| query.language == Language::PromQl));
    }
    ensure!(!queries.is_empty(), "the board of a cluster asks nothing");
    eventually(async || {
        let times = Times { from: began, to: now(), scrape: 1.0 };
        let rules = sources.prometheus.rules().await?.into_iter().map(of_rule).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(!rules.is_empty(), "there are no rules");
        for query in queries.iter().chain(&rules) {
            let unanswered = sources.unanswered(query, &Chosen::default(), times).await;
            ensure!(unanswered.is_none(), "{unanswered:?}");
        }
        let firing = sources.prometheus.instant("ALERTS").await?;
        ensure!(firing.is_empty(), "alerts of a healthy cluster: {firing:?}");
        anyhow::Ok(())
    })
    .await
}
