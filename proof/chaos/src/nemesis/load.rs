//! Clients who come all at once, or behave badly.

use std::sync::atomic::Ordering;

use tokio::time::sleep;

use super::Strike;

#[derive(Debug, Clone, Copy)]
pub(super) enum LoadDeed {
    /// Five times as many orders.
    Burst,
    /// Twenty-five times as many.
    Flood,
    /// Most clients hang up or send everything twice.
    Unruly,
}

pub(super) async fn strike(strike: &mut Strike, deed: LoadDeed) -> anyhow::Result<()> {
    strike.hit();
    let pressure = strike.pressure.clone();
    match deed {
        LoadDeed::Burst => pressure.factor.store(5, Ordering::Relaxed),
        LoadDeed::Flood => pressure.factor.store(25, Ordering::Relaxed),
        LoadDeed::Unruly => pressure.unruly.store(true, Ordering::Relaxed),
    }
    sleep(strike.length).await;
    pressure.factor.store(1, Ordering::Relaxed);
    pressure.unruly.store(false, Ordering::Relaxed);
    Ok(())
}
