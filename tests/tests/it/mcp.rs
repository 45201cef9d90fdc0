//! The console's tools, driven by the SDK's own client on a suite at work.

use std::{collections::BTreeSet, process::Stdio};

use rmcp::{
    RoleClient, ServiceExt as _,
    model::CallToolRequestParams,
    service::RunningService,
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use suite_tests::Running;
use tempfile::TempDir;
use testkit::Process;

use crate::prelude::*;

const READING: [&str; 19] = [
    "attention",
    "audit",
    "explain_order",
    "find_orders",
    "inspect_dead_letter",
    "inspect_event",
    "inspect_relay",
    "inspect_run",
    "inspect_saga",
    "list_actions",
    "list_breakers",
    "list_consumers",
    "list_dead_letters",
    "list_faults",
    "list_outbox",
    "list_payments",
    "list_products",
    "metrics",
    "order_journey",
];
const UNDOABLE: [&str; 20] = [
    "cancel_order",
    "check_timeouts",
    "disarm_fault",
    "pause_consumer",
    "pause_relay",
    "place_order",
    "rebuild_catalogue",
    "rehearse_discard",
    "rehearse_housekeeping",
    "rehearse_replay",
    "rehearse_requeue",
    "replay_dead_letter",
    "replay_dead_letters",
    "requeue_outbox_entries",
    "requeue_outbox_entry",
    "reset_breaker",
    "resume_consumer",
    "resume_relay",
    "resume_saga",
    "run_housekeeping",
];
/// Scenarios and drills are for admins, which the tests of runs check.
const RUNNING: [&str; 3] = ["answer_run", "run", "stop_run"];
const ADMINS: [&str; 5] =
    ["arm_fault", "discard_dead_letter", "discard_dead_letters", "discard_outbox_entries", "discard_outbox_entry"];

/// A console that serves tools, and the suite that it serves.
pub(crate) struct World {
    pub(crate) suite: TestSuite,
    pub(crate) participants: Participants,
    pub(crate) client: Client,
    pub(crate) url: String,
    pub(crate) process: Process,
    /// Of the scenarios that it plays.
    _reports: TempDir,
}

/// The arguments of a console that name its services.
pub(crate) fn addresses(participants: &Participants) -> Vec<String> {
    participants.all().map(|replica| format!("--{}-url={}", replica.service, replica.url)).collect()
}

impl World {
    pub(crate) async fn new(tuning: Tuning) -> anyhow::Result<World> {
        Self::with(tuning, &[]).await
    }

    /// With further arguments of its console.
    pub(crate) async fn with(tuning: Tuning, arguments: &[&str]) -> anyhow::Result<World> {
        let (suite, participants) = TestSuite::faulty(tuning, 100, 1_000).await?;
        let listen = format!("127.0.0.1:{}", testkit::free_port());
        let mut command = Running::console(&suite, &["audit", "--watch", "--every", "100ms", "--listen", &listen])?;
        command.args(addresses(&participants)).args(arguments).env("ADMIN_TOKEN", "dev-admin-token");
        let reports = TempDir::new()?;
        command.env("DEMO_REPORTS", reports.path()).env("OPERATOR_TOKEN", "operates").env("VIEWER_TOKEN", "views");
        let process = Process::start(&mut command)?;
        let url = format!("http://{listen}");
        let client = Client::new(&url);
        eventually(async || client.get("/health/ready").await.is_ok_and(|answer| answer.status == 200)).await?;
        Ok(World { suite, participants, client, url, process, _reports: reports })
    }

    pub(crate) async fn agent(&self, token: &str) -> anyhow::Result<Agent> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", self.url)).auth_header(token);
        config.custom_headers.insert("x-actor".parse()?, "agent".parse()?);
        let client = ().serve(StreamableHttpClientTransport::from_config(config)).await?;
        Ok(Agent { client, called: BTreeSet::new() })
    }

    async fn recorded(&self) -> anyhow::Result<Vec<(String, String, Option<String>)>> {
        let query = sqlx::query_as("select actor, action, reason from saga.operator_action order by action_id");
        Ok(query.fetch_all(&self.suite.pool).await?)
    }
}

pub(crate) struct Agent {
    client: RunningService<RoleClient, ()>,
    called: BTreeSet<String>,
}

impl Agent {
    async fn tools(&self) -> anyhow::Result<Vec<String>> {
        let tools = self.client.list_all_tools().await?;
        let mut names: Vec<_> = tools.into_iter().map(|tool| tool.name.into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// What the tool answers, and whether it was refused.
    pub(crate) async fn call(&mut self, tool: &'static str, arguments: Value) -> anyhow::Result<(bool, Value)> {
        self.called.insert(tool.to_owned());
        let arguments = arguments.as_object().cloned().context("no object")?;
        let result = self.client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?;
        Ok((result.is_error == Some(true), result.structured_content.context("nothing structured")?))
    }

    pub(crate) async fn done(&mut self, tool: &'static str, arguments: Value) -> anyhow::Result<Value> {
        let (refused, answer) = self.call(tool, arguments).await?;
        ensure!(!refused, "{tool}: {answer:#}");
        Ok(answer)
    }

    /// The same of a tool that wants its first answer confirmed.
    pub(crate) async fn confirmed(
        &mut self,
        tool: &'static str,
        mut arguments: Value,
    ) -> anyhow::Result<(bool, Value)> {
        let shown = self.done(tool, arguments.clone()).await?;
        ensure!(shown["done"] == false, "{tool} was not to be confirmed: {shown:#}");
        arguments["confirm"] = shown["confirm"].clone();
        self.call(tool, arguments).await
    }
}

fn sorted(names: &[&[&str]]) -> Vec<String> {
    let mut all: Vec<_> = names.concat().into_iter().map(str::to_owned).collect();
    all.sort();
    all
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn each_role_has_exactly_its_tools() -> Test {
    let world = World::new(Tuning::default()).await?;
    let of = [
        ("views", sorted(&[&READING])),
        ("operates", sorted(&[&READING, &UNDOABLE, &RUNNING])),
        ("dev-admin-token", sorted(&[&READING, &UNDOABLE, &RUNNING, &ADMINS])),
    ];
    for (token, allowed) in of {
        let mut agent = world.agent(token).await?;
        let tools = agent.tools().await?;
        ensure!(tools == allowed, "{token}: {tools:#?}");
        for tool in sorted(&[&UNDOABLE, &RUNNING, &ADMINS]).into_iter().filter(|tool| !allowed.contains(tool)) {
            let tool: &'static str =
                UNDOABLE.iter().chain(&RUNNING).chain(&ADMINS).find(|name| **name == tool).context("known")?;
            let all = json!({"service": "order", "id": Uuid::nil(), "event_id": Uuid::nil(), "step": "confirm_order",
                "point": "in_step", "kind": "error", "customer_id": "c", "sku": "A", "quantity": 1,
                "payment_method": "tok_visa", "idempotency_key": "k", "kind": "audit", "text": "t",
                "frozen_set": Uuid::nil(), "reason": "r"});
            let wanted = world.agent("dev-admin-token").await?.client.list_all_tools().await?;
            let schema = wanted.into_iter().find(|of| of.name == tool).context("no such tool")?.input_schema;
            let given = schema["required"].as_array().context("required")?.iter().filter_map(Value::as_str);
            let given = given.map(|name| (name.to_owned(), all[name].clone())).collect::<serde_json::Map<_, _>>();
            let (refused, answer) = agent.call(tool, Value::Object(given)).await?;
            ensure!(refused && answer["refused"].as_str().is_some_and(|why| why.contains("role")), "{tool}: {answer}");
        }
    }
    ensure!(world.recorded().await?.is_empty(), "what is refused reaches no service");
    for token in ["", "guess", "operates2"] {
        ensure!(world.agent(token).await.is_err(), "{token}");
    }
    let request = world.client.request(Method::POST, "/mcp").bearer_auth("views").header("origin", "http://a.example");
    ensure!(world.client.send(request.json(&json!({}))).await?.status == 403);
    Ok(())
}

/// Every tool is called, and each call that acts leaves one record.
#[suite_tests::test]
async fn an_agent_drives_every_tool() -> Test {
    let tuning = Tuning { resilience: "confirm_order.attempts=1", ..Tuning::default() };
    let world = World::new(tuning).await?;
    let mut agent = world.agent("dev-admin-token").await?;
    let order = json!({"customer_id": "agent", "sku": "A", "quantity": 2, "payment_method": "tok_visa",
        "reason": "a test", "idempotency_key": "agent-1"});
    let placed = agent.done("place_order", order.clone()).await?;
    ensure!(
        agent.done("place_order", order).await?["order_id"] == placed["order_id"],
        "the same key is the same order"
    );
    let order_id = placed["order_id"].clone();
    world.participants.saga_becomes(&placed, "COMPLETED").await?;
    let found = agent.done("find_orders", json!({"q": "agent"})).await?;
    ensure!(found["orders"].as_array().is_some_and(|orders| orders.len() == 1), "{found:#}");
    let correlation_id = world.participants.saga(&placed).await?["correlation_id"].clone();
    let same = agent.done("find_orders", json!({"q": correlation_id})).await?;
    ensure!(same == found, "{same:#}");
    let journey = agent.done("order_journey", json!({"order_id": order_id})).await?;
    ensure!(journey["entries"].as_array().is_some_and(|entries| entries.len() == 4), "{journey:#}");
    world.suite.publish_all_again(ORDER).await?;
    eventually(async || {
        let journey = agent.done("order_journey", json!({"order_id": order_id})).await?;
        ensure!(journey["entries"][0]["readers"][0]["duplicates"].as_u64() >= Some(1), "{journey:#}");
        anyhow::Ok(())
    })
    .await?;
    let page = world.client.get(&format!("/orders/{}", order_id.as_str().context("no id")?)).await?;
    ensure!(page.body.as_str().is_some_and(|page| page.contains("a duplicate dropped")), "{}", page.body);
    ensure!(agent.done("explain_order", json!({"id": order_id})).await?["summary"].is_string());
    ensure!(agent.done("inspect_saga", json!({"id": placed["saga_id"]})).await?["status"] == "COMPLETED");
    let payments = agent.done("list_payments", json!({"order_id": order_id})).await?;
    ensure!(payments["items"].as_array().is_some_and(|items| items.len() == 1), "{payments:#}");
    let products = agent.done("list_products", json!({"service": "inventory", "limit": 1})).await?;
    ensure!(products["items"][0]["sku"] == "A", "{products:#}");
    let events = agent.done("list_outbox", json!({"service": "order", "state": "PUBLISHED"})).await?;
    let created = events["items"].as_array().and_then(|items| items.last()).context("no event")?["event_id"].clone();
    let event = agent.done("inspect_event", json!({"service": "order", "event_id": created})).await?;
    ensure!(event["payload"]["payment_method"] == "withheld", "the card's token: {event:#}");
    let metrics = agent.done("metrics", json!({"service": "order", "prefix": "saga_"})).await?;
    ensure!(metrics.as_object().is_some_and(|series| !series.is_empty()), "{metrics:#}");
    for tool in ["inspect_relay", "list_consumers", "list_breakers", "list_faults"] {
        agent.done(tool, json!({"service": "order"})).await?;
    }

    // A dead letter, with a fault for one order only.
    let because = |more: Value| {
        let mut arguments = json!({"service": "order", "reason": "a test"});
        arguments.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        arguments
    };
    agent.done("pause_consumer", because(json!({"step": "confirm_order"}))).await?;
    let stuck = world.participants.place(&[("A", 1)], "tok_visa").await?;
    let fault =
        because(json!({"point": "in_step", "kind": "error", "step": "confirm_order", "order_id": stuck["order_id"]}));
    let fault = agent.done("arm_fault", fault).await?;
    let paused = agent.done("attention", json!({})).await?["abnormal"][0].clone();
    ensure!(paused["kind"] == "consumer" && paused["why"] == "paused by an operator", "{paused:#}");
    ensure!(paused["service"] == "order" && paused["step"] == "confirm_order", "{paused:#}");
    agent.done("resume_consumer", because(json!({"step": "confirm_order"}))).await?;
    let letters = world.participants.order.client.until_items("/api/admin/dlq?step=confirm_order", 1).await?;
    let listed = agent.done("list_dead_letters", json!({"service": "order", "status": "PENDING"})).await?;
    let id = listed["items"][0]["id"].clone();
    ensure!(id == letters[0]["id"], "{listed:#}");
    // Long enough to be shown; after half of the deadline the event would be published again, and applied.
    let waited = "update saga.saga_instance set last_progress_at = last_progress_at - interval '15 seconds'";
    world.suite.execute(waited).await?;
    let attention = agent.done("attention", json!({})).await?;
    ensure!(attention["waiting"] == json!([{"service": "order", "dead_letters": 1, "parked": 0}]), "{attention:#}");
    let [saga] = &attention["stuck"].as_array().context("no list")?[..] else { anyhow::bail!("{attention:#}") };
    let is_named = saga["cause"].as_str().is_some_and(|why| why.contains("dead letter"));
    ensure!(saga["order_id"] == stuck["order_id"] && is_named, "{attention:#}");
    let inspected = agent.done("inspect_dead_letter", json!({"service": "order", "id": id})).await?;
    ensure!(inspected["saga_id"] == stuck["saga_id"], "{inspected:#}");
    let journey = agent.done("order_journey", json!({"order_id": stuck["order_id"]})).await?;
    ensure!(journey["dead_letters"].as_array().is_some_and(|letters| letters.len() == 1), "{journey:#}");
    agent.done("disarm_fault", because(json!({"id": fault["id"].to_string()}))).await?;
    let rehearsed = agent.done("rehearse_replay", because(json!({"saga_id": stuck["saga_id"]}))).await?;
    ensure!(rehearsed["items"][0]["outcome"] == "would_apply", "{rehearsed:#}");
    agent.done("replay_dead_letter", because(json!({"id": id}))).await?;
    world.participants.saga_becomes(&stuck, "COMPLETED").await?;

    agent.done("pause_relay", because(json!({}))).await?;
    let attention = agent.done("attention", json!({})).await?;
    ensure!(
        attention["abnormal"][0]["kind"] == "relay" && attention["abnormal"][0]["state"] == "paused",
        "{attention:#}"
    );
    ensure!(attention["stuck"] == json!([]) && attention["failure"].is_null(), "{attention:#}");
    // Events that are parked, and requeued together.
    let held = world.participants.place(&[("A", 1)], "tok_visa").await?;
    world.suite.execute("update orders.outbox set state = 'PARKED', attempts = 1").await?;
    let found =
        agent.done("rehearse_requeue", because(json!({"event_type": "OrderCreated", "min_attempts": 1}))).await?;
    ensure!(found["matched"] == 1 && found["requeued"] == 0, "{found:#}");
    let frozen = because(json!({"frozen_set": found["frozen_set"]}));
    ensure!(agent.done("requeue_outbox_entries", frozen.clone()).await?["requeued"] == 1);
    let (refused, discarded) = agent.confirmed("discard_outbox_entries", frozen).await?;
    ensure!(!refused && discarded["matched"] == 1 && discarded["discarded"] == 0, "{discarded:#}");
    agent.done("resume_relay", because(json!({}))).await?;
    world.participants.saga_becomes(&held, "COMPLETED").await?;
    agent.done("reset_breaker", because(json!({"step": "confirm_order"}))).await?;
    agent.done("rebuild_catalogue", json!({"reason": "a test"})).await?;
    let checked = agent.done("check_timeouts", because(json!({}))).await?;
    ensure!(checked["timed_out"] == 0, "{checked:#}");
    let rehearsed = agent.done("rehearse_housekeeping", because(json!({}))).await?;
    ensure!(rehearsed["dry_run"] == true && rehearsed["partitions_dropped"] == 0, "{rehearsed:#}");
    let (refused, round) = agent.confirmed("run_housekeeping", because(json!({}))).await?;
    ensure!(!refused && round["dry_run"] == false && round["rows_deleted"] == 0, "{round:#}");

    // What cannot be undone is confirmed, and exactly that.
    let cancel = json!({"id": order_id, "reason": "a test"});
    let shown = agent.done("cancel_order", cancel.clone()).await?;
    let other = json!({"id": stuck["order_id"], "reason": "a test", "confirm": shown["confirm"]});
    ensure!(agent.done("cancel_order", other).await?["done"] == false, "another order was confirmed");
    ensure!(world.participants.order(&placed).await?["status"] == "CONFIRMED");
    let (refused, answer) = agent.confirmed("cancel_order", cancel).await?;
    ensure!(!refused && answer["status"] == "CANCELLED", "{answer:#}");
    world.participants.saga_becomes(&placed, "COMPENSATED").await?;

    let (refused, batch) =
        agent.confirmed("replay_dead_letters", because(json!({"saga_id": placed["saga_id"]}))).await?;
    ensure!(!refused && batch["selected"] == 0, "{batch:#}");

    let found = agent.done("rehearse_discard", because(json!({"saga_id": placed["saga_id"]}))).await?;
    let frozen = because(json!({"frozen_set": found["frozen_set"]}));
    let (refused, discarded) = agent.confirmed("discard_dead_letters", frozen).await?;
    ensure!(!refused && discarded["discarded"] == 0, "{discarded:#}");

    let id = agent.done("run", json!({"kind": "audit", "reason": "a test"})).await?["id"].clone();
    // An audit may have ended already.
    agent.call("stop_run", json!({"id": id, "reason": "a test"})).await?;
    eventually(async || anyhow::Ok(agent.done("inspect_run", json!({})).await?["run"]["state"] != "running")).await?;
    ensure!(agent.call("answer_run", json!({"id": id, "text": "late", "reason": "a test"})).await?.0);

    // Of these there is nothing in a sound suite: the services refuse them.
    let nothing = Uuid::nil();
    ensure!(agent.confirmed("discard_dead_letter", because(json!({"id": nothing}))).await?.0);
    ensure!(agent.confirmed("discard_outbox_entry", because(json!({"event_id": nothing}))).await?.0);
    ensure!(agent.call("requeue_outbox_entry", because(json!({"event_id": nothing}))).await?.0);
    ensure!(agent.call("resume_saga", json!({"id": nothing, "reason": "a test"})).await?.0);

    let audit = eventually(async || {
        let audit = world.agent("views").await?.done("audit", json!({})).await?;
        anyhow::Ok((audit["violated"] == json!([]) && audit["invariants"].as_u64() > Some(20)).then_some(audit))
    });
    ensure!(audit.await?["failure"].is_null());
    let actions = agent.done("list_actions", json!({})).await?;
    let recorded = world.recorded().await?;
    ensure!(actions["actions"].as_array().is_some_and(|actions| actions.len() == recorded.len()), "{actions:#}");
    ensure!(
        recorded.iter().all(|(actor, _, why)| actor == "agent" && why.as_deref() == Some("a test")),
        "{recorded:#?}"
    );
    ensure!(recorded.len() == 26, "{recorded:#?}");
    agent.called.insert("audit".to_owned());
    let all = sorted(&[&READING, &UNDOABLE, &RUNNING, &ADMINS]);
    ensure!(agent.called.iter().eq(&all), "{:#?} of {all:#?}", agent.called);
    world.suite.audit().await
}

#[suite_tests::test(unaudited = "orders are left unpaid")]
async fn what_is_not_in_order_is_told_an_agent_and_shown() -> Test {
    let tuning = Tuning { resilience: "process_payment.open_for=60s", ..Tuning::default() };
    let world = World::new(tuning).await?;
    world.suite.break_gateway(&json!({"error_rate": 1.0})).await?;
    world.participants.place_many(20, "tok_visa").await?;
    world.participants.payment.breaker_until("process_payment", |breaker| breaker["state"] == "open").await?;
    world.suite.execute("update inventory.relay_lease set last_failure = 'full', last_failure_at = now()").await?;
    let attention = world.agent("views").await?.done("attention", json!({})).await?;
    let [relay, breaker] = &attention["abnormal"].as_array().context("no list")?[..] else {
        anyhow::bail!("{attention:#}");
    };
    let (inventory, payment) = (&world.participants.inventory, &world.participants.payment);
    let failed = json!({"service": "inventory", "kind": "relay", "step": null, "state": "cannot publish", "why": "full",
        "replica": inventory.app.participant().holder});
    ensure!(*relay == failed, "{attention:#}");
    ensure!(breaker["kind"] == "breaker" && breaker["step"] == "process_payment", "{attention:#}");
    ensure!(
        breaker["state"] == "open" && breaker["replica"] == json!(payment.app.participant().holder),
        "{attention:#}"
    );
    let page = world.client.get("/").await?.body.as_str().unwrap_or_default().to_owned();
    for shown in [
        "inventory: relay</a> cannot publish in inventory-",
        "payment: breaker of process_payment</a> open in payment-",
    ] {
        ensure!(page.contains(shown), "{shown}: {page}");
    }
    Ok(())
}

#[suite_tests::test(unaudited = "no order is placed")]
async fn the_same_tools_are_served_over_stdin_and_stdout() -> Test {
    let (suite, participants) = TestSuite::selling(100, 10).await?;
    let mut command = Running::console(&suite, &["mcp", "--role", "operator", "--actor", "agent"])?;
    command.args(addresses(&participants)).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
    let pipes = (process.stdout.take().context("no stdout")?, process.stdin.take().context("no stdin")?);
    let mut agent = Agent { client: ().serve(pipes).await?, called: BTreeSet::new() };
    let tools = agent.tools().await?;
    ensure!(tools == sorted(&[&READING, &UNDOABLE, &RUNNING]), "{tools:#?}");
    agent.done("pause_relay", json!({"service": "payment", "reason": "a test"})).await?;
    ensure!(agent.done("inspect_relay", json!({"service": "payment"})).await?["paused"] == true);
    let actor =
        sqlx::query_scalar::<_, String>("select actor from saga.operator_action").fetch_one(&suite.pool).await?;
    ensure!(actor == "agent", "{actor}");
    eventually(async || anyhow::Ok(agent.done("audit", json!({})).await?["invariants"].as_u64() > Some(20))).await?;
    agent.client.cancel().await?;
    let ended = tokio::time::timeout(Duration::from_secs(10), process.wait()).await??;
    ensure!(ended.success(), "{ended}");
    Ok(())
}
