//! The events of an order and of a product, with their bodies, as long as they are kept.

use crate::prelude::*;

async fn events_of(participants: &Participants, order: &Value) -> anyhow::Result<Vec<Value>> {
    let path = format!("/api/orders/{}/events", order["order_id"].as_str().context("no id")?);
    let events = participants.order.client.get(&path).await?.expect(200)?;
    Ok(events["items"].as_array().cloned().unwrap_or_default())
}

fn types(events: &[Value]) -> Vec<(&str, &str)> {
    events.iter().map(|e| (e["service"].as_str().unwrap(), e["event_type"].as_str().unwrap())).collect()
}

#[suite_tests::test]
async fn an_orders_events_are_kept_with_their_bodies_and_without_the_card() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let order = participants.confirmed(&[("A", 2)]).await?;
    let events = eventually(async || {
        let events = events_of(&participants, &order).await?;
        ensure!(events.iter().all(|event| event["published_at"].is_string()), "{events:#?}");
        anyhow::Ok(Some(events))
    });
    let events = events.await?;
    let expected = [
        ("order", "OrderCreated.v1"),
        ("inventory", "StockReserved.v1"),
        ("payment", "PaymentProcessed.v1"),
        ("order", "OrderConfirmed.v1"),
    ];
    ensure!(types(&events) == expected, "{events:#?}");
    ensure!(events[0]["payload"]["customer_id"] == "alice" && events[0]["step"] == "create_order", "{events:#?}");
    ensure!(!json!(events).to_string().contains("tok_visa"), "the token of the card: {events:#?}");

    suite.audit().await?;
    // As housekeeping does, days later: the day is set aside.
    for schema in ["orders", "inventory", "payment"] {
        let day = format!("select right(max(tableoid::regclass::text), 8) from {schema}.outbox_published");
        let day: String = sqlx::query_scalar(sqlx::AssertSqlSafe(day)).fetch_one(&suite.pool).await?;
        let archive = format!(
            "alter table {schema}.outbox_published detach partition {schema}.outbox_published_{day};
            alter table {schema}.outbox_published_{day} rename to _event_archive_{day}"
        );
        suite.execute(archive).await?;
    }
    ensure!(events_of(&participants, &order).await? == events, "the archive answers the same");
    for schema in ["orders", "inventory", "payment"] {
        suite
            .execute(format!(
                "do $$ declare archive regclass; begin
                for archive in select oid from pg_class where relnamespace = '{schema}'::regnamespace
                    and relkind = 'r' and relname ~ '^_event_archive_' loop
                    execute format('drop table %s', archive);
                end loop;
            end $$"
            ))
            .await?;
    }
    let forgotten = events_of(&participants, &order).await?;
    ensure!(types(&forgotten) == expected && forgotten[0]["payload"].is_null(), "{forgotten:#?}");
    let unknown = participants.order.client.get(&format!("/api/orders/{}/events", Uuid::nil())).await?;
    ensure!(unknown.status == 404);
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_products_events_are_listed_latest_first() -> Test {
    let (_suite, inventory) = TestSuite::alone(INVENTORY).await?;
    for sku in ["A", "B"] {
        inventory.client.create_product(sku, 100, 10).await?.expect(201)?;
    }
    inventory.client.patch("/api/products/A", &json!({"name": "Another"})).await?.expect(200)?;
    inventory.client.post("/api/products/A/replenish", &json!({"quantity": 5})).await?.expect(200)?;
    // Whether or not they are published already.
    let page = async |query: &str| inventory.client.get(&format!("/api/products/A/events{query}")).await?.expect(200);
    let all = page("").await?;
    let names: Vec<_> =
        all["items"].as_array().into_iter().flatten().map(|event| event["event_type"].clone()).collect();
    ensure!(names == ["StockReplenished.v1", "ProductDetailsChanged.v1", "ProductCreated.v1"], "{all:#}");
    let first = page("?limit=2").await?;
    let second = page(&format!("?limit=2&cursor={}", first["next_cursor"].as_str().context("no cursor")?)).await?;
    ensure!(second["items"][0] == all["items"][2] && second["next_cursor"].is_null(), "{second:#}");
    ensure!(inventory.client.get("/api/products/C/events").await?.status == 404);
    Ok(())
}
