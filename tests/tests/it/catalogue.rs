//! The catalogue: inventory owns the products, and order keeps a view of them.

use crate::prelude::*;

#[suite_tests::test]
async fn two_replicas_replenish_a_product_once() -> Test {
    let suite = TestSuite::new().await?;
    let participants = suite.participants().await?;
    let second = suite.start(INVENTORY).await?;
    participants.sell("PLENTY", 100, 150).await?;
    participants.sell("SCARCE", 100, 5).await?;
    participants.confirmed(&[("PLENTY", 120)]).await?;
    let (App::Inventory(one), App::Inventory(two)) = (&participants.inventory.app, &second.app) else {
        anyhow::bail!("inventory is not inventory")
    };
    // The replicas' own rounds may come first; each product is supplied once by the holder of the lease.
    tokio::try_join!(inventory::replenish_what_runs_low(one), inventory::replenish_what_runs_low(two))?;
    let client = &participants.inventory.client;
    client.until("/api/products/PLENTY", |p| p["supplied"] == 1150 && p["available"] == 1030).await?;
    ensure!(participants.product("SCARCE").await?["supplied"] == 5);
    suite
        .becomes("select count(*) from inventory.outbox_published where event_type = 'StockReplenished.v1'", 1)
        .await?;
    let more = client.post("/api/products/SCARCE/replenish", &json!({"quantity": 7})).await?.expect(200)?;
    ensure!(more["available"] == 12 && more["supplied"] == 12, "{more}");
    let by = async |replica: &Replica| {
        let scrape = Scrape::of(&replica.client).await?;
        scrape.sum("stock_replenished_units_total", &[]).context("replenished units are not counted")
    };
    ensure!(by(&participants.inventory).await? + by(&second).await? == 1007.0);
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_view_that_missed_an_event_is_rebuilt_from_inventory() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    participants.sell("B", 200, 10).await?;
    suite.execute("update orders.product_view set price = 1 where sku = 'A'").await?;
    suite.execute("delete from orders.product_view where sku = 'B'").await?;
    let ghost = "insert into orders.product_view (sku, name, price, currency, status, version, updated_at)
        values ('GHOST', 'ghost', 1, 'USD', 'ACTIVE', 9, now() - interval '1 hour')";
    suite.execute(ghost).await?;
    let rebuilt = participants.order.client.act("/api/admin/catalogue/rebuild").await?;
    ensure!(rebuilt["products"] == 2 && rebuilt["removed"] == 1, "{rebuilt}");
    for (sku, price) in [("A", 100), ("B", 200)] {
        let view = participants.order.client.get(&format!("/api/products/{sku}")).await?.expect(200)?;
        ensure!(view["price"]["amount"] == price, "{view}");
    }
    ensure!(participants.order.client.get("/api/products/GHOST").await?.status == 404);
    Ok(())
}

#[suite_tests::test]
async fn a_price_change_without_an_event_is_found() -> Test {
    let tuning = Tuning { catalogue_rebuild_every: Duration::from_millis(300), ..Default::default() };
    let (suite, _participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    suite.execute("update inventory.product set price = 250, version = version + 1").await?;
    suite.becomes("select count(*) from orders.product_view where price = 250", 1).await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn an_inventory_without_products_empties_no_catalogue() -> Test {
    let tuning = Tuning { catalogue_rebuild_every: Duration::from_millis(300), ..Default::default() };
    let (suite, _participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    suite.execute("delete from inventory.product").await?;
    // Each round renews the lease first, so the round of the first renewal has ended by the second.
    let renewed = "select coalesce(max((extract(epoch from expires_at) * 1000000)::bigint), 0)
        from orders.lease where name = 'catalogue'";
    let mut last = suite.number(renewed).await?;
    for _ in 0..2 {
        eventually(async || suite.number(renewed).await.is_ok_and(|at| at > last)).await?;
        last = suite.number(renewed).await?;
    }
    ensure!(suite.number("select count(*) from orders.product_view").await? == 1);
    Ok(())
}

#[suite_tests::test]
async fn a_reservation_shows_its_lines_and_their_status() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let order = participants.confirmed(&[("A", 2), ("A", 1)]).await?;
    let path = format!("/api/reservations/{}", order["order_id"].as_str().unwrap());
    let held = participants.inventory.client.get(&path).await?.expect(200)?;
    ensure!(held["status"] == "RESERVED" && held["lines"][0]["quantity"] == 3, "lines of one SKU are summed: {held}");
    participants.cancel(&order).await?;
    participants.saga_becomes(&order, "COMPENSATED").await?;
    let released = participants.inventory.client.get(&path).await?.expect(200)?;
    ensure!(released["status"] == "RELEASED" && released["lines"][0]["status"] == "RELEASED", "{released}");
    ensure!(participants.inventory.client.get(&format!("/api/reservations/{}", Uuid::now_v7())).await?.status == 404);
    suite.audit().await
}

#[suite_tests::test(unaudited = "sagas are made old by hand, and purged")]
async fn an_order_whose_saga_was_purged_cannot_be_cancelled() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let order = participants.confirmed(&[("A", 1)]).await?;
    let mut service = as_order(&suite).await?;
    ensure!(saga_store::query::purge(&mut service, DAY, 10).await? == 0, "it has only just ended");
    make_old(&suite).await?;
    ensure!(saga_store::query::purge(&mut service, DAY, 10).await? == 1);
    ensure!(participants.cancel(&order).await? == 409, "no saga is left that could undo it");
    let explained = format!("/api/orders/{}/explain", order["order_id"].as_str().unwrap());
    ensure!(participants.order.client.get(&explained).await?.status == 200);
    Ok(())
}

#[suite_tests::test(unaudited = "sagas are made old by hand, and purged")]
async fn a_purge_keeps_a_saga_that_is_being_cancelled() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    participants.confirmed(&[("A", 1)]).await?;
    make_old(&suite).await?;
    let mut cancelling = suite.pool.begin().await?;
    let cancel = "update saga.saga_instance
        set status = 'COMPENSATING', completed_at = null, failed_at_step = 'cancel_order_on_request'";
    sqlx::query(cancel).execute(&mut *cancelling).await?;
    let mut service = as_order(&suite).await?;
    let purge = tokio::spawn(async move { saga_store::query::purge(&mut service, DAY, 10).await });
    // The purge has run: it has finished, or it waits for the lock.
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%purge_terminal%'
        and datname = current_database()";
    eventually(async || purge.is_finished() || suite.number(waits).await.is_ok_and(|n| n == 1)).await?;
    cancelling.commit().await?;
    ensure!(purge.await?? == 0 && suite.number("select count(*) from saga.saga_instance").await? == 1);
    Ok(())
}

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn as_order(suite: &TestSuite) -> anyhow::Result<sqlx::PgConnection> {
    let role = suite.database.url_for("order_service:order_service");
    Ok(<sqlx::PgConnection as sqlx::Connection>::connect(&role).await?)
}

/// As if the saga had ended two days ago.
async fn make_old(suite: &TestSuite) -> Test {
    let old = "begin;
        alter table saga.saga_step drop constraint saga_step_saga;
        update saga.saga_instance set completed_at = now() - interval '2 days',
            saga_id = orders.uuid_v7_floor(now() - interval '2 days');
        update orders.customer_order set saga_id = (select saga_id from saga.saga_instance);
        commit;";
    suite.execute(old).await.map(drop)
}
