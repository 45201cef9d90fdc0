//! Many are discarded together: exactly those that a dry run has selected.

use super::{STEP, UNAUDITED, id, letter, letters, suite_with_dead_letters};
use crate::prelude::*;

#[suite_tests::test(unaudited = UNAUDITED)]
async fn exactly_the_dead_letters_of_a_dry_run_are_discarded() -> Test {
    let (suite, order, made) = suite_with_dead_letters(4).await?;
    let discard = async |body: Value| {
        let request = order.client.request(Method::POST, "/api/admin/dlq/discard").header("x-actor", "ann").json(&body);
        order.client.send(request).await
    };
    let all = json!(made.iter().map(id).collect::<Vec<_>>());
    for (filter, matched) in
        [(json!({"step": STEP}), 4), (json!({"step": "reserve_stock"}), 0), (json!({"saga_id": Uuid::nil()}), 0)]
    {
        let dry = discard(json!({"filter": filter, "reason": "r"})).await?.expect(200)?;
        ensure!(dry["matched"] == matched && dry["discarded"] == 0, "{filter}: {dry:#}");
    }
    let dry = discard(json!({"filter": {}, "limit": 3, "reason": "seen"})).await?.expect(200)?;
    ensure!(dry["ids"] == json!(all.as_array().context("a list")?[..3]) && dry["matched"] == 4, "{dry:#}");
    let at_once = discard(json!({"filter": {}, "dry_run": false, "reason": "all"})).await?.expect(422)?;
    ensure!(at_once["errors"][0]["pointer"] == "/frozen_set", "{at_once:#}");
    ensure!(letters(&order, "status=PENDING").await?.len() == 4, "a dry run did it");

    // Meanwhile one is decided otherwise.
    let one = format!("/api/admin/dlq/{}/replay", id(&made[0]));
    order.client.post(&one, &json!({"reason": "the view takes it"})).await?.expect(200)?;
    let act = json!({"frozen_set": dry["frozen_set"], "dry_run": false, "reason": "a test left them"});
    let done = discard(act.clone()).await?.expect(200)?;
    ensure!(done["matched"] == 3 && done["discarded"] == 2 && done["ids"] == dry["ids"], "{done:#}");
    for (made, status) in made.iter().zip(["RESOLVED", "DISCARDED", "DISCARDED", "PENDING"]) {
        ensure!(letter(&order, made).await?["status"] == status, "{status}: {made:#}");
    }
    let now = letter(&order, &made[1]).await?;
    let action = &now["actions"][0];
    ensure!(now["notes"] == "a test left them" && action["actor"] == "ann" && action["action"] == "discard", "{now:#}");
    ensure!(discard(act).await?.expect(200)?["discarded"] == 0, "it was done twice");
    // A set of parked events names no dead letters.
    let parked = json!({"filter": {}, "reason": "r"});
    let parked = order.client.post("/api/admin/outbox/discard", &parked).await?.expect(200)?;
    let other = json!({"frozen_set": parked["frozen_set"], "dry_run": false, "reason": "r"});
    discard(other).await?.expect(422)?;
    ensure!(suite.number("select count(*) from orders.frozen_set").await? == 5);
    suite
        .execute("update orders.frozen_set set selected_at = now() - interval '8 days' where selected_of = 'OUTBOX'")
        .await?;
    let participant = order.app.participant();
    let mut conn = participant.pools.work.acquire().await?;
    run_housekeeping(&mut conn, &participant.settings.messaging).await?;
    ensure!(suite.number("select count(*) from orders.frozen_set").await? == 4, "kept as long as dead letters");
    Ok(())
}
