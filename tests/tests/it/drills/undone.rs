//! However a drill ends, its damage is undone.

use super::{Drill, command, nothing_is_left};
use crate::{mcp::World, prelude::*};

const DAMAGED: &str = "select count(*) from inventory.relay_lease where paused";

async fn playing(name: &str) -> anyhow::Result<(World, Drill)> {
    let world = World::new(Tuning::default()).await?;
    let mut drill = Drill::begin(&world, name)?;
    drill.says("is wrong in the shop").await?;
    Ok((world, drill))
}

async fn mended(world: &World) -> Test {
    let command = command(world, &["--mend"])?;
    let ended = tokio::process::Command::from(command).output().await?;
    ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    Ok(())
}

#[suite_tests::test]
async fn one_that_is_stopped_undoes_its_damage() -> Test {
    let (world, mut drill) = playing("a paused relay").await?;
    world.suite.becomes(DAMAGED, 1).await?;
    drill.signal("TERM")?;
    ensure!(!drill.ends().await?, "it was not solved");
    nothing_is_left(&world).await
}

#[suite_tests::test]
async fn one_whose_input_ends_undoes_its_damage() -> Test {
    let (world, mut drill) = playing("a full stream").await?;
    drill.input = None;
    ensure!(!drill.ends().await?, "it was not solved");
    nothing_is_left(&world).await
}

/// Its caller is gone: nobody reads what it says.
#[suite_tests::test]
async fn one_that_nobody_listens_to_undoes_its_damage() -> Test {
    let (world, drill) = playing("a missing permission").await?;
    let Drill { mut child, input, output, .. } = drill;
    drop((input, output));
    child.wait().await?;
    nothing_is_left(&world).await
}

#[suite_tests::test]
async fn what_one_that_was_killed_has_left_can_be_undone() -> Test {
    let (world, mut drill) = playing("a paused relay").await?;
    world.suite.becomes(DAMAGED, 1).await?;
    drill.signal("KILL")?;
    ensure!(!drill.ends().await?, "it was not solved");
    ensure!(world.suite.number(DAMAGED).await? == 1, "its damage is still there");
    // Nothing is broken that the second one would see before it begins; and it leaves the first one's damage alone.
    world.suite.execute("update inventory.relay_lease set paused = false").await?;
    let mut second = Drill::begin(&world, "a wrong price")?;
    ensure!(!second.ends().await?, "a second one beside it");
    ensure!(!second.said.join("\n").contains("It was"), "it tells what it has not done: {:?}", second.said);
    ensure!(world.suite.number("select count(*) from drill.note").await? == 1, "{:?}", second.said);
    mended(&world).await?;
    nothing_is_left(&world).await
}

/// Dead letters, too, and the orders whose events nobody can read.
#[suite_tests::test]
async fn what_the_damage_of_one_that_was_killed_has_caused_is_ended() -> Test {
    let (world, mut drill) = playing("poisoned events").await?;
    world.suite.becomes("select count(*) from payment.dead_letter where status = 'PENDING'", 3).await?;
    drill.signal("KILL")?;
    ensure!(!drill.ends().await?, "it was not solved");
    mended(&world).await?;
    nothing_is_left(&world).await
}

/// The damage waits for a lock when the drill ends: the server would do it later.
async fn while_it_damages(signal: &str) -> Test {
    let world = World::new(Tuning::default()).await?;
    let mut lock = world.suite.pool.begin().await?;
    let mut drill = Drill::begin(&world, "a stuck compensation")?;
    sqlx::query("lock table inventory.reservation in row exclusive mode").execute(&mut *lock).await?;
    let waiting = "select count(*) from pg_stat_activity
        where application_name = 'pas-de-trois-drill' and wait_event_type = 'Lock' and datname = current_database()";
    world.suite.becomes(waiting, 1).await?;
    drill.signal(signal)?;
    let undone = async {
        ensure!(!drill.ends().await?, "it was not solved");
        if signal == "KILL" { mended(&world).await } else { Ok(()) }
    };
    let (undone, rolled_back) = tokio::join!(undone, lock.rollback());
    rolled_back?;
    undone?;
    nothing_is_left(&world).await
}

cases! {
    fn one_that_is_stopped_while_it_damages_leaves_nothing() = while_it_damages("TERM");
    fn what_the_server_still_does_for_one_that_was_killed_is_undone() = while_it_damages("KILL");
}
