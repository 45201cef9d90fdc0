//! A card processor that is slow, fails, leaves its callers in the dark, or dies.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::Strike;

#[derive(Debug, Clone, Copy)]
pub(super) enum GatewayDeed {
    Slow,
    Errors,
    /// Half of the dropped answers belong to charges that went through.
    DropsAnswers,
    Kill,
}

pub(super) async fn strike(strike: &mut Strike, deed: GatewayDeed) -> anyhow::Result<()> {
    match deed {
        GatewayDeed::Slow => arm(strike, json!({"latency_ms": 3_000, "expires_in_seconds": 120})).await,
        GatewayDeed::Errors => arm(strike, json!({"error_rate": 0.6, "expires_in_seconds": 120})).await,
        GatewayDeed::DropsAnswers => arm(strike, json!({"drop_rate": 0.5, "expires_in_seconds": 120})).await,
        GatewayDeed::Kill => {
            let stage = strike.stage.clone();
            stage.gateway.kill().await;
            strike.hit();
            sleep(strike.length).await;
            stage.gateway.start().await
        }
    }
}

async fn arm(strike: &mut Strike, faults: Value) -> anyhow::Result<()> {
    let url = format!("{}/v1/faults", strike.stage.gateway_url);
    let answer = strike.stage.rest.post(&url, &faults).await?;
    anyhow::ensure!(answer.status < 300, "the gateway refuses its faults: {} {}", answer.status, answer.body);
    strike.hit();
    sleep(strike.length).await;
    strike.stage.rest.delete(&url).await?;
    Ok(())
}
