//! Whatever a test does to a suite, an audit says at its end whether the books are right; or the test says why not.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, ensure};

/// The stages of a test; each says whether it was audited.
type Stages = Arc<Mutex<Vec<Arc<AtomicBool>>>>;

tokio::task_local! {
    static STAGES: Stages;
}

/// Runs a test, as `#[suite_tests::test]` does. Fails when it leaves a stage without an audit, and when the reason that it
/// gives for that is not needed.
pub async fn audited<T>(unaudited: Option<&str>, test: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let stages = Stages::default();
    let passed = STAGES.scope(Arc::clone(&stages), Box::pin(test)).await?;
    let stages = stages.lock().unwrap_or_else(PoisonError::into_inner);
    let silent = stages.iter().filter(|audited| !audited.load(Ordering::Relaxed)).count();
    let how = "end with `stage.audit().await`, or say why not: `#[suite_tests::test(unaudited = \"...\")]`";
    ensure!(silent == 0 || unaudited.is_some(), "{silent} of {} stages were not audited: {how}", stages.len());
    let excuse = unaudited.unwrap_or_default();
    ensure!(stages.is_empty() || silent > 0 || unaudited.is_none(), "it audits, although it says: {excuse}");
    Ok(passed)
}

/// Whether one stage was audited; its test knows of it.
#[derive(Clone)]
pub(crate) struct Audited(Arc<AtomicBool>);

impl Audited {
    /// # Errors
    /// Outside [`audited`].
    pub(crate) fn not_yet() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        STAGES
            .try_with(|stages| stages.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&flag)))
            .context("a stage belongs to a #[suite_tests::test]")?;
        Ok(Audited(flag))
    }

    pub(crate) fn done(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(unaudited: Option<&str>, audits: &[bool]) -> Option<String> {
        let test = async {
            for audits in audits {
                let stage = Audited::not_yet()?;
                if *audits {
                    stage.done();
                }
            }
            Ok(())
        };
        audited(unaudited, test).await.err().map(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_stage_without_an_audit_needs_a_reason() {
        assert_eq!(told(None, &[]).await, None);
        assert_eq!(told(None, &[true, true]).await, None);
        assert!(told(None, &[true, false]).await.is_some_and(|told| told.contains("1 of 2 stages")));
        assert_eq!(told(Some("why"), &[true, false]).await, None);
        assert!(told(Some("why"), &[true]).await.is_some_and(|told| told.contains("why")));
        assert!(Audited::not_yet().is_err(), "nobody would look at it");
    }
}
