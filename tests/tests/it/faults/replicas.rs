//! A fault armed over REST is in effect in every replica of the service, and all replicas share its counter.

use std::collections::BTreeSet;

use faults::Faults;
use saga::Service;
use testkit::Postgres;

use super::UNAUDITED;
use crate::prelude::*;

async fn two(suite: &TestSuite, service: Service) -> anyhow::Result<[Replica; 2]> {
    let start = async || suite.start_with(service, Faults::armable(), "http://127.0.0.1:1").await;
    Ok([start().await?, start().await?])
}

fn holder(replica: &Replica) -> &str {
    &replica.app.participant().holder
}

fn names<'a>(replicas: impl IntoIterator<Item = &'a Replica>) -> BTreeSet<&'a str> {
    replicas.into_iter().map(holder).collect()
}

fn listed<'a>(answer: &'a Value, list: &str) -> BTreeSet<&'a str> {
    answer[list].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

async fn arm(replica: &Replica, fault: &Value) -> anyhow::Result<Value> {
    replica.client.post("/api/admin/faults", fault).await?.expect(201)
}

async fn armed(replica: &Replica) -> anyhow::Result<Vec<Value>> {
    replica.client.items("/api/admin/faults").await
}

async fn disarm(replica: &Replica) -> anyhow::Result<Value> {
    replica.client.delete("/api/admin/faults", &json!({})).await?.expect(200)
}

/// Requests to both replicas in turn; `x` for each that fails.
async fn in_turn(replicas: &[Replica; 2], requests: usize) -> anyhow::Result<String> {
    let mut seen = String::new();
    for replica in replicas.iter().cycle().take(requests) {
        seen.push(if replica.client.get("/api/products").await?.status == 500 { 'x' } else { '-' });
    }
    Ok(seen)
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_fault_is_armed_in_every_replica_and_the_answer_names_them() -> Test {
    let suite = TestSuite::new().await?;
    let both = two(&suite, INVENTORY).await?;
    let fault = arm(&both[0], &json!({"point": "in_step", "kind": "error", "scope": {"sku": "A"}})).await?;
    ensure!(listed(&fault, "replicas") == names(&both) && fault["missing"] == json!([]), "{fault:#}");
    for replica in &both {
        let holds = replica.faults.armed().iter().any(|armed| json!(armed.id) == fault["id"]);
        ensure!(holds, "{} lacks it", holder(replica));
        let items = armed(replica).await?;
        ensure!(items.len() == 1 && items[0]["id"] == fault["id"], "{items:#?}");
        ensure!(listed(&items[0], "replicas") == names(&both) && items[0]["missing"] == json!([]), "{items:#?}");
    }
    let disarmed = disarm(&both[1]).await?;
    ensure!(disarmed == json!({"disarmed": 1, "missing": []}), "{disarmed}");
    ensure!(both.iter().all(|replica| replica.faults.armed().is_empty()), "one of them still holds it");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn replicas_share_the_counter_of_passes() -> Test {
    let suite = TestSuite::new().await?;
    let both = two(&suite, ORDER).await?;
    for (trigger, expected) in [
        (json!({"first": 2}), "xx------"),
        (json!({"first": 2, "skip": 3}), "---xx---"),
        (json!({"every": 3}), "--x--x--"),
    ] {
        let mut fault = json!({"point": "http_in", "kind": "error"});
        fault.as_object_mut().context("an object")?.extend(trigger.as_object().cloned().unwrap_or_default());
        let id = arm(&both[1], &fault).await?["id"].clone();
        let seen = in_turn(&both, 8).await?;
        ensure!(seen == expected, "{trigger}: {seen} instead of {expected}");
        for replica in &both {
            let left = armed(replica).await?;
            match trigger["first"].is_null() {
                true => ensure!(left.len() == 1 && left[0]["passes"] == 8 && left[0]["hits"] == 2, "{left:#?}"),
                false => ensure!(left.is_empty(), "it has hit all it should: {left:#?}"),
            }
        }
        disarm(&both[0]).await?;
        let hits = suite.number(format!("select count(*) from saga.fault_hit where fault_id = {id}")).await?;
        ensure!(hits == 2, "{hits} hits are written down");
    }
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_later_replica_takes_over_the_fault_and_its_counter() -> Test {
    let suite = TestSuite::new().await?;
    let first = suite.start_with(ORDER, Faults::armable(), "http://127.0.0.1:1").await?;
    let fault =
        arm(&first, &json!({"point": "http_in", "kind": "error", "first": 3, "expires_in_seconds": 600})).await?;
    ensure!(first.client.get("/api/products").await?.status == 500);
    let second = suite.start_with(ORDER, Faults::armable(), "http://127.0.0.1:1").await?;
    let held = &second.faults.armed();
    ensure!(held.len() == 1 && json!(held[0].id) == fault["id"], "it is ready and holds {held:#?}");
    first.stop().await;
    for status in [500, 500, 200] {
        ensure!(second.client.get("/api/products").await?.status == status);
    }
    // Expired and disarmed faults do not concern a new replica.
    arm(&second, &json!({"point": "http_in", "kind": "error"})).await?;
    disarm(&second).await?;
    let third = suite.start_with(ORDER, Faults::armable(), "http://127.0.0.1:1").await?;
    ensure!(third.faults.armed().is_empty(), "{:#?}", third.faults.armed());
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_replica_that_does_not_answer_is_named() -> Test {
    let suite = TestSuite::new().await?;
    let both = two(&suite, INVENTORY).await?;
    let ghost = "insert into inventory.lease values ('replica ghost', 'ghost', now() + interval '1 hour')";
    suite.execute(ghost).await?;
    let fault = arm(&both[0], &json!({"point": "in_step", "kind": "error"})).await?;
    ensure!(listed(&fault, "replicas") == names(&both) && listed(&fault, "missing") == ["ghost"].into(), "{fault:#}");
    let items = armed(&both[1]).await?;
    ensure!(listed(&items[0], "missing") == ["ghost"].into(), "{items:#?}");
    let breakers = both[0].client.get("/api/admin/breakers").await?.expect(200)?;
    ensure!(listed(&breakers, "missing") == ["ghost"].into(), "{breakers:#}");

    // A replica with faults disabled arms nothing.
    let safe = suite.start(INVENTORY).await?;
    let fault = arm(&both[0], &json!({"point": "in_step", "kind": "error"})).await?;
    ensure!(listed(&fault, "missing") == ["ghost", holder(&safe)].into(), "{fault:#}");
    safe.stop().await;
    let fault = arm(&both[0], &json!({"point": "in_step", "kind": "error"})).await?;
    ensure!(listed(&fault, "missing") == ["ghost"].into(), "one that has stopped is not missed: {fault:#}");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn without_the_broker_replicas_read_faults_from_the_database() -> Test {
    let suite = TestSuite::new().await?;
    let both = two(&suite, ORDER).await?;
    suite.nats.lock().await.stop().await?;
    eventually(async || both.iter().all(|replica| !replica.app.participant().bus.is_connected())).await?;
    let fault = arm(&both[0], &json!({"point": "http_in", "kind": "error", "first": 3})).await?;
    ensure!(listed(&fault, "replicas") == names(&both[..1]), "{fault:#}");
    ensure!(listed(&fault, "missing") == names(&both[1..]), "{fault:#}");
    eventually(async || both[1].faults.is_armed()).await?;
    ensure!(in_turn(&both, 6).await? == "xxx---");

    arm(&both[1], &json!({"point": "http_in", "kind": "error"})).await?;
    eventually(async || both[0].faults.is_armed()).await?;
    let disarmed = disarm(&both[1]).await?;
    ensure!(disarmed["disarmed"] == 1 && listed(&disarmed, "missing") == names(&both[..1]), "{disarmed:#}");
    eventually(async || !both[0].faults.is_armed()).await?;
    suite.nats.lock().await.start_again().await
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_hang_ends_when_another_replica_disarms_it() -> Test {
    let suite = TestSuite::new().await?;
    let both = two(&suite, ORDER).await?;
    arm(&both[0], &json!({"point": "http_in", "kind": "hang", "first": 1})).await?;
    let client = both[1].client.clone();
    let held = tokio::spawn(async move { client.get("/api/products").await });
    suite.becomes("select count(*) from saga.fault_hit", 1).await?;
    let items = armed(&both[0]).await?;
    ensure!(items.len() == 1 && listed(&items[0], "replicas") == names(&both[1..]), "{items:#?}");
    ensure!(items[0]["missing"] == json!([]) && items[0]["hits"] == 1 && !held.is_finished(), "{items:#?}");
    ensure!(both[0].client.get("/api/products").await?.status == 200, "the first pass was the only one");
    ensure!(disarm(&both[0]).await?["disarmed"] == 1);
    ensure!(held.await??.status == 200);
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn breakers_of_all_replicas_are_listed_and_reset_at_any_of_them() -> Test {
    let suite = TestSuite::new().await?;
    let both = two(&suite, PAYMENT).await?;
    let breaker = |replica: &Replica| replica.app.participant().breakers.named("process_payment");
    for replica in &both {
        let breaker = breaker(replica).context("no breaker")?;
        eventually(async || match breaker.admit() {
            Ok(permit) => {
                permit.failure("on purpose");
                false
            }
            Err(_) => true,
        })
        .await?;
    }
    let states = |answer: &Value| -> Vec<(String, String)> {
        let items = answer["items"].as_array().cloned().unwrap_or_default();
        let of_step = items.into_iter().filter(|breaker| breaker["step"] == "process_payment");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        of_step.map(|breaker| (text(&breaker["replica"]), text(&breaker["state"]))).collect()
    };
    let expected = |replicas: [&Replica; 2], state: &str| replicas.map(|r| (holder(r).to_owned(), state.to_owned()));
    for replicas in [[&both[0], &both[1]], [&both[1], &both[0]]] {
        let breakers = replicas[0].client.get("/api/admin/breakers").await?.expect(200)?;
        ensure!(states(&breakers) == expected(replicas, "open") && breakers["missing"] == json!([]), "{breakers:#}");
    }
    let reset = both[1].client.act("/api/admin/breakers/process_payment/reset").await?;
    ensure!(states(&reset) == expected([&both[1], &both[0]], "closed") && reset["missing"] == json!([]), "{reset:#}");
    ensure!(both.iter().filter_map(breaker).all(|breaker| breaker.admit().is_ok()), "one of them is still open");
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn a_fault_is_one_band_on_the_boards_and_so_is_a_scenario() -> Test {
    /// Kind, title, service, and whether it is still in effect.
    type Band = (String, String, Option<String>, bool);
    let suite = TestSuite::new().await?;
    let both = two(&suite, INVENTORY).await?;
    let bands = async || -> anyhow::Result<Vec<Band>> {
        let bands =
            "select kind, title, service, coalesce(ended_at > now(), true) from saga.annotation order by began_at";
        Ok(sqlx::query_as(bands).fetch_all(&suite.pool).await?)
    };
    let scope = json!({"step": "reserve_stock"});
    arm(&both[0], &json!({"point": "in_step", "kind": "error", "scope": scope, "expires_in_seconds": 600})).await?;
    let fault = |lasts| {
        let title = "reserve_stock: error at in_step".to_owned();
        ("fault".to_owned(), title, Some("inventory".to_owned()), lasts)
    };
    let found = bands().await?;
    ensure!(found == [fault(true)], "{found:?}");
    disarm(&both[1]).await?;
    ensure!(bands().await? == [fault(false)]);

    let client = &both[0].client;
    let begun = client.post("/api/admin/annotations", &json!({"title": "18 zombie relay"})).await?.expect(201)?;
    let scenario = |lasts| ("scenario".to_owned(), "18 zombie relay".to_owned(), None, lasts);
    ensure!(bands().await? == [fault(false), scenario(true)]);
    let end = format!("/api/admin/annotations/{}/end", begun["annotation_id"].as_str().context("no id")?);
    let ended = client.act(&end).await?;
    ensure!(bands().await? == [fault(false), scenario(false)]);
    ensure!(both[1].client.act(&end).await? == ended, "it ends once");
    for title in ["", "\0", &"x".repeat(201)] {
        ensure!(client.post("/api/admin/annotations", &json!({"title": title})).await?.status == 422);
    }
    let unknown = "/api/admin/annotations/00000000-0000-7000-8000-000000000000/end";
    ensure!(client.post(unknown, &json!({})).await?.status == 404);

    // A fault that has used up its hits has ended.
    arm(&both[0], &json!({"point": "http_in", "kind": "error", "first": 1})).await?;
    ensure!(both[1].client.get("/api/products").await?.status == 500);
    let over = "select count(*) from saga.annotation where title = 'error at http_in' and ended_at <= now()";
    ensure!(suite.number(over).await? == 1, "{:?}", bands().await?);
    Ok(())
}

#[suite_tests::test(unaudited = UNAUDITED)]
async fn without_the_database_a_fault_is_armed_and_recorded_later() -> Test {
    let mut server = Postgres::start().await?;
    let suite = TestSuite::with_server(&server, Tuning::default()).await?;
    let both = two(&suite, INVENTORY).await?;
    server.stop_immediate().await?;
    let spec = json!({"point": "http_in", "kind": "error", "expires_in_seconds": 600});
    let fault = arm(&both[0], &spec).await?;
    ensure!(listed(&fault, "replicas") == names(&both), "{fault:#}");
    ensure!(in_turn(&both, 4).await? == "xxxx", "the fault does not hit");
    let disarmed = disarm(&both[1]).await?;
    ensure!(disarmed["disarmed"] == 1 && both.iter().all(|replica| !replica.faults.is_armed()), "{disarmed:#}");
    let again = arm(&both[0], &spec).await?;
    server.start_again().await?;
    suite.becomes("select count(*) from saga.annotation", 1).await?;
    let late = suite.start_with(INVENTORY, Faults::armable(), "").await?;
    let held: Vec<Value> = late.faults.armed().iter().map(|armed| json!(armed.id)).collect();
    ensure!(held == [again["id"].clone()], "{held:?}");
    Ok(())
}
