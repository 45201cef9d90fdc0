//! Every test that starts a suite must end with an audit, or give the reason why not.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, ensure};

/// The suites of a test, each with whether it was audited.
type Suites = Arc<Mutex<Vec<Arc<AtomicBool>>>>;

tokio::task_local! {
    static SUITES: Suites;
}

/// Runs a test, as `#[suite_tests::test]` does. Fails when it leaves a suite without an audit, or gives a reason for that
/// without need.
pub fn audited<T>(
    unaudited: Option<&str>,
    test: impl Future<Output = anyhow::Result<T>>,
) -> impl Future<Output = anyhow::Result<T>> {
    // Boxed here, and not where it is awaited, where each future around it would have its size.
    let test = Box::pin(test);
    async move {
        let suites = Suites::default();
        let passed = SUITES.scope(Arc::clone(&suites), test).await?;
        let suites = suites.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = suites.iter().filter(|audited| !audited.load(Ordering::Relaxed)).count();
        let how = "end with `suite.audit().await`, or give the reason: `#[suite_tests::test(unaudited = \"...\")]`";
        ensure!(silent == 0 || unaudited.is_some(), "{silent} of {} suites were not audited: {how}", suites.len());
        let excuse = unaudited.unwrap_or_default();
        ensure!(
            suites.is_empty() || silent > 0 || unaudited.is_none(),
            "it audits, so this reason is not needed: {excuse}"
        );
        Ok(passed)
    }
}

/// Whether one suite was audited; its test reads it.
#[derive(Clone)]
pub(crate) struct Audited(Arc<AtomicBool>);

impl Audited {
    /// # Errors
    /// Outside [`audited`].
    pub(crate) fn not_yet() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        SUITES
            .try_with(|suites| suites.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&flag)))
            .context("a suite belongs to a #[suite_tests::test]")?;
        Ok(Audited(flag))
    }

    pub(crate) fn done(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn failure(unaudited: Option<&str>, audits: &[bool]) -> Option<String> {
        let test = async {
            for audits in audits {
                let suite = Audited::not_yet()?;
                if *audits {
                    suite.done();
                }
            }
            Ok(())
        };
        audited(unaudited, test).await.err().map(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_suite_without_an_audit_needs_a_reason() {
        assert_eq!(failure(None, &[]).await, None);
        assert_eq!(failure(None, &[true, true]).await, None);
        assert!(failure(None, &[true, false]).await.is_some_and(|failure| failure.contains("1 of 2 suites")));
        assert_eq!(failure(Some("why"), &[true, false]).await, None);
        assert!(failure(Some("why"), &[true]).await.is_some_and(|failure| failure.contains("why")));
        assert!(Audited::not_yet().is_err(), "outside a test no audit is checked");
    }
}
