//! Clients who come all at once, or behave badly.

use std::sync::atomic::Ordering;

use tokio::time::sleep;

use super::Strike;

/// So many times as many orders.
pub(super) async fn multiply(strike: &mut Strike, factor: u32) -> anyhow::Result<()> {
    strike.hit();
    strike.pressure.factor.store(factor, Ordering::Relaxed);
    sleep(strike.length).await;
    strike.pressure.factor.store(1, Ordering::Relaxed);
    Ok(())
}

/// Most clients hang up or send everything twice.
pub(super) async fn unruly(strike: &mut Strike) -> anyhow::Result<()> {
    strike.hit();
    strike.pressure.unruly.store(true, Ordering::Relaxed);
    sleep(strike.length).await;
    strike.pressure.unruly.store(false, Ordering::Relaxed);
    Ok(())
}
