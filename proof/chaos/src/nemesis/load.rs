//! Bursts of orders, and clients that behave badly.

use std::sync::atomic::Ordering;

use tokio::time::sleep;

use super::Strike;

/// Multiplies the rate of orders.
pub(super) async fn multiply(strike: &mut Strike, factor: u32) -> anyhow::Result<()> {
    strike.hit();
    strike.run.pressure.factor.store(factor, Ordering::Relaxed);
    sleep(strike.length).await;
    strike.run.pressure.factor.store(1, Ordering::Relaxed);
    Ok(())
}

/// Most clients abort their requests or send them twice.
pub(super) async fn unruly(strike: &mut Strike) -> anyhow::Result<()> {
    strike.hit();
    strike.run.pressure.unruly.store(true, Ordering::Relaxed);
    sleep(strike.length).await;
    strike.run.pressure.unruly.store(false, Ordering::Relaxed);
    Ok(())
}
