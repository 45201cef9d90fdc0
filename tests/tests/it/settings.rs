//! Contradictory settings stop a service at its start, with an error that names them.

use crate::prelude::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn refusal(suite: &TestSuite) -> String {
    suite.start(INVENTORY).await.err().map(|error| format!("{error:#}")).unwrap_or_default()
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_relay_poll_longer_than_its_lease_is_refused() -> Test {
    let lease = Duration::from_secs(2);
    let mut suite = TestSuite::with(Tuning { relay_lease: lease, relay_poll: lease, ..Tuning::default() }).await?;
    let refused = refusal(&suite).await;
    ensure!(refused.contains("RELAY_POLL") && refused.contains("RELAY_LEASE"), "{refused:?}");
    suite.tuning.relay_poll = lease - Duration::from_millis(1);
    suite.start(INVENTORY).await?;
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn an_inbox_shorter_than_the_stream_is_refused() -> Test {
    let suite = TestSuite::new().await?;
    for (max_age, accepted) in [(4 * DAY, false), (Duration::ZERO, false), (3 * DAY, true)] {
        suite.change_stream("INVENTORY", |config| config.max_age = max_age).await?;
        let refused = refusal(&suite).await;
        let named = refused.contains("INBOX_RETENTION") && refused.contains("STREAM_MAX_AGE");
        ensure!(named != accepted, "{max_age:?}: {refused:?}");
    }
    Ok(())
}
