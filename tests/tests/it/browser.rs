//! The desk in a real Chromium: ./scripts/check browser installs it, and runs these.

use std::path::Path;

use sqlx::{Connection as _, PgConnection};
use suite_tests::Browser;

use crate::{mcp::World, prelude::*, runs::scripts};

const TOKEN: &str = "dev-admin-token";

impl World {
    async fn open(&self, browser: &Browser, path: &str) -> anyhow::Result<()> {
        browser.go(&format!("{}{path}", self.url)).await
    }

    async fn log_in(&self, browser: &Browser) -> anyhow::Result<()> {
        self.open(browser, "/login").await?;
        browser.fill("input[name=name]", "ann").await?;
        browser.fill("input[name=token]", TOKEN).await?;
        browser.click("main button").await?;
        browser.shows("What needs attention").await
    }

    /// As if the saga had made no progress for a minute.
    async fn has_waited(&self) -> anyhow::Result<()> {
        self.suite
            .execute("update saga.saga_instance set last_progress_at = now() - interval '1 minute'")
            .await
            .map(drop)
    }

    async fn place(&self) -> anyhow::Result<Value> {
        self.participants.place(&[("A", 1)], "tok_visa").await
    }
}

/// What keeps an order from ending, and words that tell a reader so.
#[derive(Debug, Clone, Copy)]
enum Cause {
    PausedStep,
    PausedRelay,
    LostEvent,
    ParkedEvent,
    DeadLetter,
    OpenBreaker,
    SlowProcessor,
    HeldTransaction,
    BrokerAway,
    PausedCompensation,
}

impl Cause {
    const ALL: [Cause; 10] = [
        Cause::PausedStep,
        Cause::PausedRelay,
        Cause::LostEvent,
        Cause::ParkedEvent,
        Cause::DeadLetter,
        Cause::OpenBreaker,
        Cause::SlowProcessor,
        Cause::HeldTransaction,
        Cause::BrokerAway,
        Cause::PausedCompensation,
    ];

    fn words(self) -> &'static str {
        match self {
            Cause::PausedStep => "has paused process_payment of payment",
            Cause::PausedRelay => "relay of inventory",
            Cause::LostEvent => "neither in the outbox of inventory nor among the events",
            Cause::ParkedEvent => "OrderCreated is parked",
            Cause::DeadLetter => "is a dead letter of process_payment",
            Cause::OpenBreaker => "circuit breaker of process_payment of payment is open",
            Cause::SlowProcessor => "to charge payment",
            Cause::HeldTransaction => "reserve_stock of inventory has not finished",
            Cause::BrokerAway => "broker cannot be reached",
            Cause::PausedCompensation => "has paused release_stock of inventory",
        }
    }

    /// Plants it in a fresh suite, and places an order that it stops.
    async fn plant(self) -> anyhow::Result<(World, Value, Option<PgConnection>)> {
        let resilience = match self {
            Cause::DeadLetter => "process_payment.attempts=1",
            Cause::OpenBreaker => {
                "process_payment.open_for=1h,process_payment.attempts=100,process_payment.initial=10ms"
            }
            _ => "",
        };
        let tuning = Tuning { resilience, relay_lease: Duration::from_secs(1), ..Tuning::default() };
        let world = World::new(tuning).await?;
        let (suite, participants) = (&world.suite, &world.participants);
        let mut held = None;
        match self {
            Cause::PausedStep => suite.pause(&participants.payment, "process_payment").await?,
            Cause::PausedRelay | Cause::LostEvent => {
                participants.inventory.client.act("/api/admin/relay/pause").await?;
            }
            Cause::ParkedEvent => suite.message_size("ORDER", 64).await?,
            Cause::DeadLetter => suite.forbid("payment.payment", "amount <> 100").await?,
            Cause::OpenBreaker => suite.break_gateway(&json!({"error_rate": 1.0})).await?,
            Cause::SlowProcessor => suite.break_gateway(&json!({"latency_ms": 20_000})).await?,
            Cause::HeldTransaction => {
                let mut other = PgConnection::connect(&suite.database.admin_url()).await?;
                sqlx::raw_sql("begin; lock table inventory.product in exclusive mode").execute(&mut other).await?;
                held = Some(other);
            }
            Cause::BrokerAway => suite.nats.lock().await.stop().await?,
            Cause::PausedCompensation => suite.pause(&participants.inventory, "release_stock").await?,
        }
        let mut placed = world.place().await?;
        match self {
            Cause::LostEvent => {
                let waits = "select count(*) from inventory.outbox where event_type = 'StockReserved.v1'";
                world.suite.becomes(waits, 1).await?;
                world.suite.execute("delete from inventory.outbox").await?;
            }
            Cause::OpenBreaker => placed = world.participants.place_many(8, "tok_visa").await?.remove(7),
            Cause::PausedCompensation => {
                world.participants.saga_becomes(&placed, "COMPLETED").await?;
                ensure!(world.participants.cancel(&placed).await? == 202);
            }
            _ => {}
        }
        Ok((world, placed, held))
    }
}

#[suite_tests::test(unaudited = "its orders are stuck on purpose")]
#[ignore = "needs Chromium: ./scripts/check browser"]
async fn the_cause_of_each_stuck_saga_is_one_click_away() -> Test {
    let browser = Browser::open(1280, false).await?;
    for cause in Cause::ALL {
        let (world, placed, _held) = cause.plant().await?;
        let order_id = placed["order_id"].as_str().context("no order id")?;
        world.open(&browser, "/").await?;
        let listed = eventually(async || {
            world.has_waited().await?;
            let text = browser.text().await?;
            ensure!(text.contains(order_id), "{cause:?}: {text}");
            anyhow::Ok(())
        });
        listed.await?;
        browser.follow(order_id).await?;
        browser.shows(cause.words()).await.with_context(|| format!("{cause:?}"))?;
        let complaints = browser.complaints().await?;
        ensure!(complaints.is_empty(), "{cause:?}: {complaints:#?}");
        // An open page would complain that its console is gone.
        browser.go("about:blank").await?;
    }
    Ok(())
}

#[suite_tests::test]
#[ignore = "needs Chromium: ./scripts/check browser"]
async fn a_dead_letter_is_inspected_tried_dry_and_replayed() -> Test {
    let world = World::new(Tuning { resilience: "confirm_order.attempts=1", ..Tuning::default() }).await?;
    world.suite.forbid("orders.customer_order", "status <> 'CONFIRMED'").await?;
    let placed = world.place().await?;
    world.participants.order.client.until_items("/api/admin/dlq?step=confirm_order", 1).await?;
    let browser = Browser::open(1280, false).await?;
    world.log_in(&browser).await?;
    let journey = format!("/orders/{}", placed["order_id"].as_str().context("no order id")?);
    world.open(&browser, &journey).await?;
    browser.click("a[href^='/dead-letters/order/']").await?;
    browser.shows("forbidden").await?;
    world.suite.allow("orders.customer_order").await?;
    world.open(&browser, &journey).await?;
    browser.follow("Try dry").await?;
    browser.fill("input[name=reason]", "mended").await?;
    browser.click("main button").await?;
    browser.shows("Done, and recorded.").await?;
    browser.click("summary").await?;
    browser.shows("would_apply").await?;
    ensure!(world.participants.saga(&placed).await?["status"] == "IN_PROGRESS", "a dry run changes nothing");
    world.open(&browser, &journey).await?;
    browser.follow("Replay").await?;
    browser.fill("input[name=reason]", "mended").await?;
    browser.click("main button").await?;
    browser.shows("Done, and recorded.").await?;
    world.participants.saga_becomes(&placed, "COMPLETED").await?;
    world.open(&browser, "/actions").await?;
    browser.shows("mended").await?;
    ensure!(browser.complaints().await?.is_empty());
    world.suite.audit().await
}

#[suite_tests::test]
#[ignore = "needs Chromium: ./scripts/check browser"]
async fn a_fault_is_armed_and_seen_and_a_saga_resumed_by_who_is_logged_in() -> Test {
    let world = World::new(Tuning::default()).await?;
    let browser = Browser::open(1280, true).await?;
    world.open(&browser, "/operations/arm_fault").await?;
    browser.shows("Log in").await?;
    browser.fill("input[name=name]", "ann").await?;
    browser.fill("input[name=token]", "guess").await?;
    browser.click("main button").await?;
    browser.shows("not one that the console was started with").await?;
    // The refusal is a 403, which Chromium reports.
    let complaints = browser.complaints().await?;
    ensure!(complaints.iter().all(|of| of.contains("/login") && of.contains("403")), "{complaints:#?}");
    world.log_in(&browser).await?;
    world.open(&browser, "/manage/faults").await?;
    browser.follow("Arm a fault").await?;
    browser.script("document.querySelector('select[name=service]').value = 'inventory'").await?;
    // At a step: a round of replenishment commits, too, and would use up its one hit.
    let fault = [("point", "before_commit"), ("kind", "error"), ("first", "1"), ("step", "reserve_stock")];
    for (field, value) in fault.into_iter().chain([("reason", "a test")]) {
        browser.fill(&format!("input[name={field}]"), value).await?;
    }
    browser.click("main button").await?;
    browser.shows("Done, and recorded.").await?;
    let placed = world.participants.confirmed(&[("A", 1)]).await?;
    let journey = format!("/orders/{}", placed["order_id"].as_str().context("no order id")?);
    world.open(&browser, &journey).await?;
    browser.shows("Faults that hit it").await?;

    // The slider shows the order as it was, and the page follows what happens.
    let at = "const slider = document.querySelector('.travel input'); slider.value = 1;
        slider.dispatchEvent(new Event('input'));
        return [document.querySelector('.travel output').innerText, document.querySelectorAll('li.later').length]";
    let was = browser.script(at).await?;
    ensure!(was[0].as_str().is_some_and(|text| text.contains("PENDING")) && was[1] == 3, "{was}");
    // What somebody uses is not replaced, until it is left.
    browser.script("document.querySelector('.travel input').focus()").await?;
    world.suite.pause(&world.participants.inventory, "release_stock").await?;
    ensure!(world.participants.cancel(&placed).await? == 202);
    let behind = "return document.querySelector('main').classList.contains('behind')";
    eventually(async || browser.script(behind).await.map(|behind| behind == true)).await?;
    ensure!(!browser.text().await?.contains("COMPENSATING"), "it was replaced under somebody's hands");
    browser.script("document.activeElement.blur()").await?;
    browser.shows("COMPENSATING").await?;
    browser.follow("Resume the saga").await?;
    browser.fill("input[name=reason]", "mended").await?;
    browser.click("main button").await?;
    browser.shows("Done, and recorded.").await?;
    world.suite.resume(&world.participants.inventory, "release_stock").await?;
    world.participants.saga_becomes(&placed, "COMPENSATED").await?;
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "{complaints:#?}");
    world.suite.audit().await
}

#[suite_tests::test(unaudited = "no order is placed")]
#[ignore = "needs Chromium: ./scripts/check browser"]
async fn a_drill_is_begun_watched_answered_and_stopped() -> Test {
    let scripts = scripts()?;
    let folder = scripts.path().to_str().context("no UTF-8")?;
    let world = World::with(Tuning::default(), &["--scripts", folder]).await?;
    let browser = Browser::open(1280, false).await?;
    world.log_in(&browser).await?;
    let begin = async || {
        world.open(&browser, "/runs").await?;
        browser.fill("form:has([value=drill]) [name=argument]", "7").await?;
        browser.fill("form:has([value=drill]) [name=reason]", "to learn").await?;
        browser.click("form:has([value=drill]) button").await?;
        browser.shows("which service?").await
    };
    begin().await?;
    browser.fill("[name=text]", "payment").await?;
    browser.fill("form[action$=answer] [name=reason]", "it is paused").await?;
    // What was typed is not replaced, though nothing has the focus.
    browser.script("document.activeElement.blur()").await?;
    let hint = json!({"id": 1, "text": "hint", "reason": "a test"});
    world.agent(TOKEN).await?.done("answer_run", hint).await?;
    let behind = "return document.querySelector('main').classList.contains('behind')";
    eventually(async || browser.script(behind).await.map(|behind| behind == true)).await?;
    browser.click("form[action$=answer] button").await?;
    browser.shows("it was payment").await?;
    browser.shows("ended, exit code 0").await?;
    begin().await?;
    browser.click("summary").await?;
    browser.fill("form[action$=stop] [name=reason]", "enough").await?;
    browser.click("form[action$=stop] button").await?;
    browser.shows("stopped, exit code 3").await?;
    browser.shows("enough").await?;
    browser.follow("All runs").await?;
    browser.shows("Drill with seed 7").await?;
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "{complaints:#?}");
    Ok(())
}

/// Text of less contrast than 4.5 to 1 with what is behind it, as WCAG 2 counts it.
const FAINT: &str = r"
    const parts = (color) => color.match(/[\d.]+/g).map(Number);
    const light = (color) => {
        const [r, g, b] = parts(color).slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const color = getComputedStyle(at).backgroundColor;
            if ((parts(color)[3] ?? 1) > 0) return color;
        }
        return 'rgb(255, 255, 255)';
    };
    const texts = [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() &&
        !e.closest('.later') && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()));
    return texts.filter((e) => {
        const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05) < 4.5;
    }).map((e) => e.outerHTML.slice(0, 120));";

#[suite_tests::test]
#[ignore = "needs Chromium: ./scripts/check browser"]
async fn every_page_fits_any_screen_in_both_themes() -> Test {
    let scripts = scripts()?;
    let folder = scripts.path().to_str().context("no UTF-8")?;
    let tuning = Tuning { resilience: "confirm_order.attempts=1", ..Tuning::default() };
    let world = World::with(tuning, &["--scripts", folder]).await?;
    let confirmed = world.participants.confirmed(&[("A", 1)]).await?;
    let unpaid = world.participants.place(&[("A", 2)], "tok_declined").await?;
    world.participants.saga_becomes(&unpaid, "COMPENSATED").await?;
    world.suite.forbid("orders.customer_order", "status <> 'CONFIRMED'").await?;
    let stuck = world.place().await?;
    let letters = world.participants.order.client.until_items("/api/admin/dlq?step=confirm_order", 1).await?;
    world.participants.payment.arm(&json!({"point": "in_step", "kind": "latency", "latency_ms": 1})).await?;
    world.has_waited().await?;
    let drill = json!({"kind": "drill", "argument": 7, "reason": "to learn"});
    world.agent(TOKEN).await?.done("run", drill).await?;
    let id = |of: &Value| of["order_id"].as_str().map(str::to_owned).context("no order id");
    let letter = letters[0]["id"].as_str().context("no id")?;
    let mut pages: Vec<(&str, String)> = vec![
        ("overview", "/".to_owned()),
        ("orders", "/orders".to_owned()),
        ("confirmed", format!("/orders/{}", id(&confirmed)?)),
        ("declined", format!("/orders/{}", id(&unpaid)?)),
        ("stuck", format!("/orders/{}", id(&stuck)?)),
        ("dead-letter", format!("/dead-letters/order/{letter}")),
        ("discard", format!("/operations/discard_dead_letter?service=order&id={letter}")),
        ("arm", "/operations/arm_fault".to_owned()),
        ("actions", "/actions".to_owned()),
        ("runs", "/runs".to_owned()),
        ("run", "/runs/1".to_owned()),
        ("runbook", "/runbook".to_owned()),
        ("login", "/login".to_owned()),
    ];
    for kind in ["dead-letters", "outboxes", "consumers", "relays", "breakers", "faults"] {
        pages.push((kind, format!("/manage/{kind}")));
    }
    let pictures = std::env::var("PICTURES").ok();
    let mut problems = Vec::new();
    for (width, dark) in [(1280, false), (1280, true), (400, false), (400, true)] {
        let browser = Browser::open(width, dark).await?;
        world.log_in(&browser).await?;
        for (name, path) in &pages {
            world.open(&browser, path).await?;
            let sizes = browser.script("return [document.documentElement.scrollWidth, innerWidth]").await?;
            ensure!(sizes[1] == width, "{name}: {sizes}");
            if let Some(folder) = &pictures {
                let theme = if dark { "dark" } else { "light" };
                browser.picture(&Path::new(folder).join(format!("{name}-{width}-{theme}.png"))).await?;
            }
            let mut found = |what: String| problems.push(format!("{name} at {width}, dark {dark}: {what}"));
            if sizes[0].as_u64() > sizes[1].as_u64() {
                found(format!("wider than its window: {sizes}"));
            }
            let faint = browser.script(FAINT).await?;
            if faint != json!([]) {
                found(format!("faint: {faint:#}"));
            }
            let unnamed = browser.script(
                "return [...document.querySelectorAll('main input:not([type=hidden]), main select')]
                    .filter((e) => !e.labels.length).map((e) => e.name)",
            );
            let unnamed = unnamed.await?;
            if unnamed != json!([]) {
                found(format!("fields without a label: {unnamed}"));
            }
            for complaint in browser.complaints().await? {
                found(complaint);
            }
        }
    }
    ensure!(problems.is_empty(), "{problems:#?}");
    world.suite.allow("orders.customer_order").await?;
    world.participants.payment.client.delete("/api/admin/faults", &json!({})).await?.expect(200)?;
    let replay = json!({"reason": "the test ends"});
    world.participants.order.client.post(&format!("/api/admin/dlq/{letter}/replay"), &replay).await?.expect(200)?;
    world.participants.saga_becomes(&stuck, "COMPLETED").await?;
    world.suite.audit().await
}
