//! Provocations by what the card processor answers.

use crate::scene::{DECLINED, PLENTY, Scene};

/// Fifteen cards in a row are declined, as they may be on a bad day; then some good ones come.
pub async fn decline_everything(scene: &mut Scene) -> anyhow::Result<()> {
    for _ in 0..3 {
        scene.order(5, PLENTY, DECLINED).await?;
    }
    scene.wait_for_all_ends().await?;
    scene.order_what_can_be_had(3).await?;
    Ok(())
}
