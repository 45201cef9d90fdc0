//! A card processor that is slow, fails, leaves its callers in the dark, or dies.

use console::suite::GatewayFaults;
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
        GatewayDeed::Slow => arm(strike, GatewayFaults { latency_ms: 3_000, ..Default::default() }).await,
        GatewayDeed::Errors => arm(strike, GatewayFaults { error_rate: 0.6, ..Default::default() }).await,
        GatewayDeed::DropsAnswers => arm(strike, GatewayFaults { drop_rate: 0.5, ..Default::default() }).await,
        GatewayDeed::Kill => {
            let stage = strike.stage.clone();
            stage.gateway.kill().await;
            strike.hit();
            sleep(strike.length).await;
            stage.gateway.start().await
        }
    }
}

async fn arm(strike: &mut Strike, faults: GatewayFaults) -> anyhow::Result<()> {
    strike.stage.suite().arm_gateway(&GatewayFaults { expires_in_seconds: 120, ..faults }).await?;
    strike.hit();
    sleep(strike.length).await;
    Ok(strike.stage.suite().disarm_gateway().await?)
}
