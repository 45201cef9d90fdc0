//! Customers: who may order where they must be known, decided in the order's own transaction; and the summary of their orders.

use sqlx::{AssertSqlSafe, Postgres, Transaction};
use tokio::task::JoinHandle;

use crate::prelude::*;

/// A suite with the product A for sale, in which customers must be known, and these are.
async fn requiring(customers: &[&str]) -> anyhow::Result<(TestSuite, Participants)> {
    // Long, because a test makes statements wait for locks.
    let lock_timeout = Tuning::default().statement_timeout;
    let tuning = Tuning { customers_required: true, lock_timeout, ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 1000).await?;
    for customer in customers {
        let customer = json!({"customer_id": customer});
        participants.order.client.post("/api/customers", &customer).await?.expect(201)?;
    }
    Ok((suite, participants))
}

fn order_by(customer: &str) -> Value {
    let mut order = order_of(&[("A", 1)], "tok_visa");
    order["customer_id"] = json!(customer);
    order
}

async fn set_status(client: &Client, customer: &str, status: &str) -> anyhow::Result<Answer> {
    client.patch(&format!("/api/customers/{customer}"), &json!({"status": status})).await
}

/// Places an order while the test does other things.
fn placing(participants: &Participants, customer: &str) -> JoinHandle<anyhow::Result<Answer>> {
    let (client, order) = (participants.order.client.clone(), order_by(customer));
    tokio::spawn(async move { client.post("/api/orders", &order).await })
}

fn suspending(participants: &Participants, customer: &'static str) -> JoinHandle<anyhow::Result<Answer>> {
    let client = participants.order.client.clone();
    tokio::spawn(async move { set_status(&client, customer, "SUSPENDED").await })
}

/// Keeps orders from being written, once their customers are checked.
async fn holding_orders(suite: &TestSuite) -> anyhow::Result<Transaction<'static, Postgres>> {
    let mut holding = suite.pool.begin().await?;
    sqlx::query("lock table orders.customer_order in share row exclusive mode").execute(&mut *holding).await?;
    Ok(holding)
}

/// Waits until this many statements that begin so wait for a lock.
async fn waiting(suite: &TestSuite, begin: &str, count: i64) -> Test {
    let waiting = format!(
        "select count(*) from pg_stat_activity
        where wait_event_type = 'Lock' and datname = current_database() and ltrim(query) like '{begin}%'"
    );
    suite.becomes(waiting, count).await
}

fn refused(answer: Answer) -> Test {
    let problem = answer.expect(422)?;
    ensure!(problem["errors"][0]["pointer"] == "/customer_id", "{problem:#}");
    Ok(())
}

#[suite_tests::test]
async fn any_customer_may_order_by_default() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let client = &participants.order.client;
    client.post("/api/customers", &json!({"customer_id": "bob"})).await?.expect(201)?;
    set_status(client, "bob", "SUSPENDED").await?.expect(200)?;
    // An order that read the customers would fail.
    suite.execute("revoke all on orders.customer from order_service").await?;
    for customer in ["bob", "nobody"] {
        let placed = client.post("/api/orders", &order_by(customer)).await?.expect(201)?;
        participants.saga_becomes(&placed, "COMPLETED").await?;
    }
    suite.audit().await
}

#[suite_tests::test]
async fn only_active_customers_may_order_where_it_is_required() -> Test {
    let (suite, participants) = requiring(&["alice"]).await?;
    let client = &participants.order.client;
    refused(client.post("/api/orders", &order_by("nobody")).await?)?;
    let placed = client.place("k", &order_by("alice")).await?.expect(201)?;
    let suspended = set_status(client, "alice", "SUSPENDED").await?.expect(200)?;
    ensure!(suspended["status"] == "SUSPENDED" && suspended["updated_at"] != suspended["created_at"], "{suspended:#}");
    ensure!(set_status(client, "alice", "SUSPENDED").await?.expect(200)? == suspended, "a repeat changed it");
    refused(client.place("another", &order_by("alice")).await?)?;
    let mut wrong = order_by("alice");
    wrong["lines"][0]["sku"] = json!("NOPE");
    let problem = client.post("/api/orders", &wrong).await?.expect(422)?;
    ensure!(problem["errors"].as_array().map(Vec::len) == Some(2), "not all objections at once: {problem:#}");
    let again = client.place("k", &order_by("alice")).await?.expect(200)?;
    ensure!(again["order_id"] == placed["order_id"], "an order that was placed is not found by its key");
    participants.saga_becomes(&placed, "COMPLETED").await?;
    set_status(client, "alice", "ACTIVE").await?.expect(200)?;
    client.place("another", &order_by("alice")).await?.expect(201)?;
    ensure!(suite.number("select count(*) from orders.customer_order").await? == 2);
    suite.audit().await
}

/// Orders wait while both transactions that may place them are held, and share the next one.
#[suite_tests::test]
async fn a_suspension_before_a_group_commit_refuses_that_customer_only() -> Test {
    let (suite, participants) = requiring(&["alice", "bob", "carol"]).await?;
    let holding = holding_orders(&suite).await?;
    let lanes = [placing(&participants, "alice"), placing(&participants, "alice")];
    waiting(&suite, "with lines", 2).await?;
    let bobs_first = placing(&participants, "bob");
    let carols: Vec<_> = (0..5).map(|_| placing(&participants, "carol")).collect();
    set_status(&participants.order.client, "bob", "SUSPENDED").await?.expect(200)?;
    let bobs_second = placing(&participants, "bob");
    holding.rollback().await?;
    for bobs in [bobs_first, bobs_second] {
        refused(bobs.await??)?;
    }
    for accepted in lanes.into_iter().chain(carols) {
        accepted.await??.expect(201)?;
    }
    suite.all_confirmed(7).await?;
    suite.audit().await
}

#[suite_tests::test]
async fn a_suspension_waits_for_an_order_being_placed() -> Test {
    let (suite, participants) = requiring(&["bob"]).await?;
    let holding = holding_orders(&suite).await?;
    let order = placing(&participants, "bob");
    waiting(&suite, "with lines", 1).await?;
    let suspension = suspending(&participants, "bob");
    waiting(&suite, "update customer", 1).await?;
    holding.rollback().await?;
    order.await??.expect(201)?;
    suspension.await??.expect(200)?;
    refused(participants.order.client.post("/api/orders", &order_by("bob")).await?)?;
    suite.all_confirmed(1).await?;
    suite.audit().await
}

#[suite_tests::test]
async fn an_order_waits_for_a_suspension_and_obeys_it() -> Test {
    let (suite, participants) = requiring(&["bob"]).await?;
    for (suspends, status) in [(false, 201), (true, 422)] {
        let mut suspension = suite.pool.begin().await?;
        sqlx::query("update orders.customer set status = 'SUSPENDED'").execute(&mut *suspension).await?;
        let order = placing(&participants, "bob");
        waiting(&suite, "select customer_id, status", 1).await?;
        match suspends {
            true => suspension.commit().await?,
            false => suspension.rollback().await?,
        }
        order.await??.expect(status)?;
    }
    suite.all_confirmed(1).await?;
    suite.audit().await
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn customers_are_registered_once_and_listed_by_id() -> Test {
    let ids = ["alice", "a/b c", "zoé"];
    let (_suite, participants) = requiring(&ids).await?;
    let client = &participants.order.client;
    ensure!(client.post("/api/customers", &json!({"customer_id": "alice"})).await?.status == 409);
    for wrong in
        [json!({"customer_id": ""}), json!({"customer_id": "a\n"}), json!({}), json!({"customer_id": "a", "x": 1})]
    {
        ensure!(client.post("/api/customers", &wrong).await?.status == 422, "{wrong}");
    }
    let new = client.post("/api/customers", &json!({"customer_id": "é/?"})).await?;
    let location = new.header("location").context("no location")?.to_owned();
    ensure!(client.get(&location).await?.expect(200)? == new.body, "{location}");
    let first = client.get("/api/customers?limit=3").await?.expect(200)?;
    let rest = format!("/api/customers?limit=3&cursor={}", first["next_cursor"].as_str().context("one page")?);
    let (first, rest) = (first["items"].as_array().cloned().unwrap_or_default(), client.items(&rest).await?);
    let mut listed: Vec<_> = first.iter().chain(&rest).filter_map(|c| c["customer_id"].as_str()).collect();
    ensure!((first.len(), rest.len()) == (3, 1), "{listed:?}");
    listed.sort_unstable();
    ensure!(listed == ["a/b c", "alice", "zoé", "é/?"], "{listed:?}");
    for path in ["/api/customers/nobody", "/api/customers/nobody/summary"] {
        ensure!(client.get(path).await?.status == 404, "{path}");
    }
    ensure!(set_status(client, "nobody", "ACTIVE").await?.status == 404);
    ensure!(set_status(client, "alice", "DELETED").await?.status == 422);
    Ok(())
}

#[suite_tests::test]
async fn a_summary_counts_orders_by_their_ends() -> Test {
    let every = Duration::from_millis(300);
    let tuning = Tuning { customer_summary_every: every, metrics_every: every, ..Tuning::default() };
    let (suite, participants) = TestSuite::selling_with(tuning, 100, 10).await?;
    let client = &participants.order.client;
    client.post("/api/customers", &json!({"customer_id": "bob"})).await?.expect(201)?;
    let confirmed = participants.confirmed(&[("A", 2)]).await?;
    let declined = participants.place(&[("A", 1)], "tok_declined").await?;
    participants.saga_becomes(&declined, "COMPENSATED").await?;
    let path = "/api/customers/alice/summary";
    let summary = client.until(path, |s| s["confirmed"] == 1 && s["cancelled"] == 1).await?;
    let amounts = json!([{"amount": 200, "currency": "USD"}]);
    ensure!(summary["orders"] == 2 && summary["confirmed_amounts"] == amounts, "{summary:#}");
    ensure!(summary["last_order_at"] == declined["created_at"], "{summary:#}");
    participants.cancel(&confirmed).await?;
    let summary = client.until(path, |s| s["cancelled"] == 2).await?;
    ensure!(summary["confirmed"] == 0 && summary["confirmed_amounts"] == json!([]), "{summary:#}");
    participants.saga_becomes(&confirmed, "COMPENSATED").await?;
    let unused = client.get("/api/customers/bob/summary").await?.expect(200)?;
    ensure!(unused["orders"] == 0 && unused["last_order_at"].is_null(), "{unused:#}");

    suite.execute("update orders.view_refresh set refreshed_at = now() - interval '1 hour'").await?;
    // Another replica holds the lease; one that ends later than in twice its time counts as free.
    let age = async || Scrape::of(client).await?.sum("customer_summary_age_seconds", &[]).context("no age");
    eventually(async || {
        suite
            .execute(
                "insert into orders.lease values ('customer_summary', 'another', now() + interval '500 milliseconds')
                on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at;
                update orders.view_refresh set refreshed_at = now() - interval '1 hour'",
            )
            .await?;
        ensure!(age().await? > 3599.0, "the age is not shown");
        anyhow::Ok(())
    })
    .await?;
    eventually(async || age().await.is_ok_and(|age| age < 3599.0)).await?;
    suite.audit().await
}

/// The view against what it sums up, computed in another way.
const DISAGREEING: &str = "
    with recomputed as (
        select distinct customer_id, currency,
            (select count(*) from orders.customer_order i
                where (i.customer_id, i.currency) = (o.customer_id, o.currency)) as orders,
            (select count(*) from orders.customer_order i
                where (i.customer_id, i.currency, i.status) = (o.customer_id, o.currency, 'CONFIRMED')) as confirmed,
            (select count(*) from orders.customer_order i
                where (i.customer_id, i.currency, i.status) = (o.customer_id, o.currency, 'CANCELLED')) as cancelled,
            (select least(coalesce(sum(total_amount), 0), 9223372036854775807)::bigint from orders.customer_order i
                where (i.customer_id, i.currency, i.status) = (o.customer_id, o.currency, 'CONFIRMED')) as confirmed_amount,
            (select created_at from orders.customer_order i
                where (i.customer_id, i.currency) = (o.customer_id, o.currency)
                order by created_at desc limit 1) as last_order_at
        from orders.customer_order o
    ), view as (
        select customer_id, currency, orders, confirmed, cancelled, confirmed_amount, last_order_at
        from orders.customer_summary
    )
    select count(*) from ((table recomputed except table view) union all (table view except table recomputed)) t";

#[suite_tests::test(unaudited = "orders are made up")]
async fn a_refreshed_summary_agrees_with_the_orders() -> Test {
    let (suite, _order) = TestSuite::alone_with(Tuning { by_hand: true, ..Tuning::default() }, ORDER).await?;
    for round in 0..5 {
        let change = format!(
            "select setseed(0.{round}1);
            insert into orders.customer_order (order_id, customer_id, status, total_amount, currency, payment_method, saga_id,
                cancel_reason, created_at)
            select gen_random_uuid(), 'customer-' || (random() * 12)::integer, status, amount,
                (array['USD', 'EUR', 'JPY'])[1 + floor(random() * 3)::integer], 't', gen_random_uuid(),
                case status when 'CANCELLED' then 'r' end, now() - random() * interval '9 days'
            from (
                select (array['PENDING', 'CONFIRMED', 'CANCELLED'])[1 + floor(random() * 3)::integer] as status,
                    case when n % 20 = 0 then 9223372036854775807 else floor(random() * 100000)::bigint end as amount
                from generate_series(1, 120) n
            ) t;
            update orders.customer_order set status = 'CONFIRMED' where status = 'PENDING' and random() < 0.5;
            update orders.customer_order set status = 'CANCELLED', cancel_reason = 'r'
            where status = 'CONFIRMED' and random() < 0.3;
            delete from orders.customer_order where customer_id = 'customer-' || {round}"
        );
        suite.execute(change).await?;
        ensure!(suite.number(DISAGREEING).await? > 0, "round {round}: the view changed before its refresh");
        let mut service = as_order(&suite).await?;
        sqlx::query("select orders.refresh_customer_summary()").execute(&mut service).await?;
        ensure!(suite.number(DISAGREEING).await? == 0, "round {round}: the refreshed view differs");
    }
    let largest = "select count(*) from orders.customer_summary where confirmed_amount = 9223372036854775807";
    ensure!(suite.number(largest).await? > 0, "no total was too large");
    Ok(())
}

#[suite_tests::test(unaudited = "nothing is ordered")]
async fn a_summary_is_read_while_it_is_refreshed() -> Test {
    let (suite, order) = TestSuite::alone_with(Tuning { by_hand: true, ..Tuning::default() }, ORDER).await?;
    order.client.post("/api/customers", &json!({"customer_id": "bob"})).await?.expect(201)?;
    let before = order.client.get("/api/customers/bob/summary").await?.expect(200)?;
    let mut refresh = suite.pool.begin().await?;
    sqlx::query(AssertSqlSafe("select orders.refresh_customer_summary()")).execute(&mut *refresh).await?;
    let meanwhile = order.client.get("/api/customers/bob/summary").await?.expect(200)?;
    ensure!(meanwhile == before, "{meanwhile:#}");
    refresh.commit().await?;
    let after = order.client.get("/api/customers/bob/summary").await?.expect(200)?;
    ensure!(after["refreshed_at"] != before["refreshed_at"], "{after:#}");
    Ok(())
}

async fn as_order(suite: &TestSuite) -> anyhow::Result<sqlx::PgConnection> {
    let role = suite.database.url_for("order_service:order_service");
    Ok(<sqlx::PgConnection as sqlx::Connection>::connect(&role).await?)
}
