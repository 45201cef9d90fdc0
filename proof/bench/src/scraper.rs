//! A Prometheus that scrapes the suite every five seconds, as in production. Its data is discarded.

use anyhow::Context;
use testkit::Monitor;

use crate::suite::{MeasuredSuite, services};

pub(crate) async fn start(suite: &MeasuredSuite) -> anyhow::Result<Monitor> {
    let settings = suite.settings()?;
    let mut jobs = String::new();
    for name in services().iter().chain(&["gateway"]).map(|name| name.to_uppercase()) {
        let port = settings.get(&format!("{name}_PORT")).with_context(|| format!("{name} has no port"))?;
        jobs += &format!("  - job_name: {name}\n    static_configs: [{{ targets: ['127.0.0.1:{port}'] }}]\n");
    }
    Monitor::prometheus(&format!("global: {{ scrape_interval: 5s }}\nscrape_configs:\n{jobs}")).await
}
