//! A card processor that is slow, fails, drops answers, or crashes.

use console::suite::GatewayFaults;
use tokio::time::sleep;

use super::Strike;

pub(super) async fn kill(strike: &mut Strike) -> anyhow::Result<()> {
    let testbed = strike.run.testbed.clone();
    testbed.gateway.kill().await;
    strike.hit();
    sleep(strike.length).await;
    testbed.gateway.start().await
}

/// Half of the dropped answers belong to charges that went through.
pub(super) async fn arm(strike: &mut Strike, faults: GatewayFaults) -> anyhow::Result<()> {
    strike.run.testbed.suite().arm_gateway(&GatewayFaults { expires_in_seconds: 120, ..faults }).await?;
    strike.hit();
    sleep(strike.length).await;
    Ok(strike.run.testbed.suite().disarm_gateway().await?)
}
