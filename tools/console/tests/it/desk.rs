//! The desk's pages over HTTP, on the sound suite; order does not run there.

use crate::{
    watch::{ADMIN_TOKEN, Watch},
    whole_audit::World,
};

/// The id of an order of sound_suite.sql.
fn order(n: u8) -> String {
    format!("0000000a-0000-7000-8000-00000000000{n}")
}

#[tokio::test]
async fn orders_are_found_by_order_saga_name_and_state() {
    let world = World::new().await;
    let watch = Watch::start(&world);
    watch.until_ok("/").await;
    let found = async |query: &str| {
        let (status, page) = watch.get(&format!("/orders?{query}")).await.expect("a page");
        assert_eq!(status, 200, "{page}");
        let shown = (1..=7).filter(|n| page.contains(&format!("/orders/{}", order(*n))));
        shown.collect::<Vec<u8>>()
    };
    assert_eq!(found("").await, [1, 2, 3, 4, 5, 7], "the one without a saga is found by its customer");
    assert_eq!(found("q=alice&saga_status=&step=&older_than=").await, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(found(&format!("q={}", order(3))).await, [3]);
    assert_eq!(found(&format!("q={}", order(3).replace("0000000a", "0000000b"))).await, [3], "by its saga");
    assert_eq!(found("q=c").await, [1, 2, 3, 4, 5, 7], "by the correlation id of their requests");
    assert_eq!(found("saga_status=COMPLETED").await, [1]);
    assert_eq!(found("saga_status=IN_PROGRESS").await, [5]);
    assert_eq!(found("saga_status=COMPENSATED").await, [2, 3, 4, 7]);
    assert_eq!(found("older_than=3600").await, [] as [u8; 0]);
    assert_eq!(found("q=nobody").await, [] as [u8; 0]);
    let (_, page) = watch.get("/orders?saga_status=IN_PROGRESS").await.expect("a page");
    assert!(!page.contains("Older ones"), "all open ones were read: {page}");
    assert_eq!(watch.get("/orders?q=%00").await.expect("an answer").0, 422, "no text of the database");
}

#[tokio::test]
async fn a_customers_orders_are_paged_though_their_sagas_are_purged() {
    let world = World::new().await;
    world
        .change(
            "insert into orders.customer_order
                (order_id, customer_id, status, total_amount, currency, payment_method, saga_id)
            select format('0000000c-0000-7000-8000-%s', lpad(n::text, 12, '0'))::uuid, 'a&b+c', 'CONFIRMED', 100, 'USD',
                'tok_visa', format('0000000d-0000-7000-8000-%s', lpad(n::text, 12, '0'))::uuid
            from generate_series(1, 120) n",
        )
        .await;
    let watch = Watch::start(&world);
    watch.until_ok("/").await;
    let (mut next, mut found) = (Some("/orders?q=a%26b%2Bc".to_owned()), Vec::new());
    while let Some(path) = next {
        let (_, page) = watch.get(&path).await.expect("a page");
        found.push(page.matches("/orders/0000000c").count());
        let link = page.split_once("rel=\"next\" href=\"").and_then(|(_, behind)| behind.split_once('"'));
        next = link.map(|(path, _)| path.replace("&amp;", "&"));
    }
    assert_eq!(found, [50, 50, 20]);
}

#[tokio::test]
async fn a_journey_has_each_step_and_what_is_left() {
    let world = World::new().await;
    let watch = Watch::start(&world);
    watch.until_ok("/").await;
    let (status, page) = watch.get(&format!("/orders/{}", order(5))).await.expect("a page");
    assert_eq!(status, 200, "{page}");
    for shown in
        ["create_order", "reserve_stock", "process_payment", "confirm_order", "LAMP", "30.00 USD", "IN_PROGRESS"]
    {
        assert!(page.contains(shown), "{shown} is not shown: {page}");
    }
    assert!(page.contains("order does not answer"), "{page}");
    assert_eq!(watch.get(&format!("/orders/{}", order(6))).await.expect("a page").0, 200, "its saga is purged");
    assert_eq!(watch.get("/orders/00000000-0000-7000-8000-000000000000").await.expect("an answer").0, 404);
}

#[tokio::test]
async fn services_that_do_not_answer_need_attention() {
    let world = World::new().await;
    let watch = Watch::start(&world);
    watch.until_ok("/").await;
    let (_, page) = watch.get("/").await.expect("a page");
    for service in contracts::SERVICES {
        assert!(page.contains(&format!("<li class=\"bad\">{service} does not answer: ")), "{page}");
    }
}

#[tokio::test]
async fn pages_load_nothing_but_the_consoles_script() {
    let world = World::new().await;
    let watch = Watch::start(&world);
    watch.until_ok("/").await;
    for path in ["/", "/orders", "/runbook", &format!("/orders/{}", order(1))] {
        let answer = watch.http.get(format!("{}{path}", watch.url)).send().await.expect("an answer");
        let policy = answer.headers()["content-security-policy"].to_str().expect("text").to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{path}: {policy}");
        let page = answer.text().await.expect("a page");
        assert_eq!(page.matches("<script src=\"/live.js\"></script>").count(), 1, "{path}: {page}");
        let page = page.replace("<script src=\"/live.js\"></script>", "");
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("<link"), "{path}: {page}");
    }
}

#[tokio::test]
async fn an_open_page_is_sent_again_when_it_has_changed() {
    let world = World::new().await;
    let watch = Watch::start(&world);
    watch.until_ok("/").await;
    let request = watch.http.get(format!("{}/orders/{}", watch.url, order(5))).header("accept", "text/event-stream");
    let mut page = request.send().await.expect("an answer");
    assert_eq!(page.headers()["content-type"], "text/event-stream");
    let mut until = async |text: &str| {
        let mut seen = String::new();
        while !seen.contains(text) {
            let chunk = page.chunk().await.expect("a stream").expect("it goes on");
            seen.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    until("IN_PROGRESS").await;
    world.change("update saga.saga_instance set status = 'COMPENSATING' where saga_id::text like '%5'").await;
    until("COMPENSATING").await;
}

#[tokio::test]
async fn pages_are_refused_under_a_name_of_another_site() {
    let world = World::new().await;
    let watch = Watch::start(&world);
    watch.until_ok("/").await;
    for path in ["/", "/orders", "/manage/faults", "/actions", "/login", "/alerts", "/live.js"] {
        let request = watch.http.get(format!("{}{path}", watch.url)).header("host", "evil.example:8085");
        assert_eq!(request.send().await.expect("an answer").status().as_u16(), 421, "{path}");
    }
}

impl Watch {
    /// Sends a form, with the headers that a browser would send; returns status, cookie and page.
    async fn send(&self, path: &str, cookie: &str, form: &[(&str, &str)]) -> (u16, String, String) {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
        let request = client.post(format!("{}{path}", self.url)).header("cookie", cookie).header("origin", &self.url);
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let body = form.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect::<Vec<_>>().join("&");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let answer = request.body(body).send().await.expect("an answer");
        let set = answer.headers().get("set-cookie").map(|set| set.to_str().expect("text").to_owned());
        (answer.status().as_u16(), set.unwrap_or_default(), answer.text().await.expect("a page"))
    }

    async fn page_of(&self, path: &str, cookie: &str) -> String {
        let request = self.http.get(format!("{}{path}", self.url)).header("cookie", cookie);
        request.send().await.expect("an answer").text().await.expect("a page")
    }
}

/// The value of the hidden field.
fn csrf(page: &str) -> String {
    let (_, behind) = page.split_once("name=\"csrf\" value=\"").expect("a form with a token");
    behind.split('"').next().expect("a value").to_owned()
}

#[tokio::test]
async fn only_who_is_logged_in_acts_and_only_by_the_sessions_forms() {
    let world = World::new().await;
    let watch = Watch::start(&world);
    watch.until_ok("/").await;
    let letter = format!("/orders/{}", order(5));
    world.change("update saga.saga_instance set status = 'COMPENSATING' where saga_id::text like '%5'").await;
    for path in ["/", "/manage/relays", "/manage/faults", "/actions", &letter] {
        let page = watch.page_of(path, "").await;
        assert!(page.contains("Log in") && !page.contains("/operations/"), "{path}: {page}");
    }
    let pause = [("service", "order"), ("reason", "a test")];
    assert_eq!(watch.send("/operations/pause_relay", "", &pause).await.0, 401);
    let refused = watch.send("/login", "", &[("name", "ann"), ("token", "guess")]).await;
    assert!(refused.0 == 403 && refused.1.is_empty() && refused.2.contains("not one that"), "{refused:?}");
    let (status, set, _) = watch.send("/login", "", &[("name", "ann"), ("token", ADMIN_TOKEN)]).await;
    assert_eq!(status, 303);
    assert!(set.contains("; HttpOnly") && set.contains("; SameSite=Strict"), "{set}");
    let cookie = set.split(';').next().expect("a cookie").to_owned();
    assert_eq!(watch.send("/operations/pause_relay", &cookie, &pause).await.0, 403, "without the form's token");
    let form = watch.page_of("/operations/pause_relay?service=order", &cookie).await;
    let token = csrf(&form);
    assert!(form.contains("ann") && form.contains("Why"), "{form}");
    let sent = watch.send("/operations/pause_relay", &cookie, &[&pause[..], &[("csrf", &token)]].concat()).await;
    assert_eq!(sent.0, 502, "order does not run: {}", sent.2);
    let without_reason =
        watch.send("/operations/pause_relay", &cookie, &[("service", "order"), ("csrf", &token)]).await;
    assert!(without_reason.0 == 422 && without_reason.2.contains("needs reason"), "{}", without_reason.2);
    assert_eq!(watch.send("/logout", &cookie, &[("csrf", &token)]).await.0, 303);
    assert_eq!(watch.send("/operations/pause_relay", &cookie, &[("csrf", &token)]).await.0, 401);
}

#[tokio::test]
async fn what_cannot_be_undone_is_confirmed_first() {
    let world = World::new().await;
    let watch = Watch::start(&world);
    watch.until_ok("/").await;
    let (_, set, _) = watch.send("/login", "", &[("name", "ann"), ("token", ADMIN_TOKEN)]).await;
    let cookie = set.split(';').next().expect("a cookie").to_owned();
    let path = "/operations/discard_dead_letter";
    let token = csrf(&watch.page_of(path, &cookie).await);
    let discard = [("csrf", token.as_str()), ("service", "order"), ("id", "7"), ("reason", "of no use")];
    let (status, _, page) = watch.send(path, &cookie, &discard).await;
    assert!(status == 200 && page.contains("It cannot be undone"), "{page}");
    let (_, behind) = page.split_once("name=\"confirm\" value=\"").expect("a confirmation");
    let confirm = ("confirm", behind.split('"').next().expect("a value"));
    let another = [("csrf", token.as_str()), ("service", "order"), ("id", "8"), ("reason", "of no use"), confirm];
    let (status, _, page) = watch.send(path, &cookie, &another).await;
    assert!(status == 200 && page.contains("It cannot be undone"), "another one was not shown: {page}");
    let (status, _, page) = watch.send(path, &cookie, &[&discard[..], &[confirm]].concat()).await;
    assert_eq!(status, 200, "it is spent");
    let (_, behind) = page.split_once("name=\"confirm\" value=\"").expect("a confirmation");
    let confirm = ("confirm", behind.split('"').next().expect("a value"));
    let (status, _, page) = watch.send(path, &cookie, &[&discard[..], &[confirm]].concat()).await;
    assert_eq!(status, 502, "confirmed, so order is asked, which does not run: {page}");
}
