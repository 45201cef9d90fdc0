//! Roles, schemas, tables and permissions: created once, repeatable, and minimal for each role.

use std::{str::FromStr, time::Duration};

use contracts::{PARTICIPANTS, Participant, SERVICES};
use provision::database::{Error, Passwords, Settings, prepare, provision};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use testkit::{Database, Postgres, free_port};

fn roles() -> impl Iterator<Item = (String, &'static str)> {
    PARTICIPANTS.iter().map(|participant| (participant.role(), participant.schema))
}

#[tokio::test]
async fn running_it_again_changes_nothing() {
    let database = Database::empty().await.unwrap();
    prepare(database.admin_url()).await.unwrap();
    let before = tables(&database).await;
    prepare(database.admin_url()).await.unwrap();
    assert_eq!(tables(&database).await, before);

    for (_, schema) in roles() {
        for table in ["_migration", "_messaging_migration", "outbox", "outbox_published", "inbox", "dead_letter"] {
            assert!(before.contains(&format!("{schema}.{table}")), "{schema}.{table}");
        }
        // Today and the seven days after, of two partitioned tables.
        let partitions = before.iter().filter(|table| table.starts_with(&format!("{schema}.inbox_2"))).count();
        assert_eq!(partitions, 8);
    }
    assert!(before.contains(&"saga._migration".to_owned()) && before.contains(&"saga.saga_instance".to_owned()));
    assert!(!before.iter().any(|table| table.starts_with("public.")), "{before:?}");
}

#[tokio::test]
async fn concurrent_runs_on_one_database_and_one_server_succeed() {
    let databases =
        [Database::empty().await.unwrap(), Database::empty().await.unwrap(), Database::empty().await.unwrap()];
    let (one, same, second, third) = tokio::join!(
        tokio::spawn(prepare(databases[0].admin_url())),
        tokio::spawn(prepare(databases[0].admin_url())),
        tokio::spawn(prepare(databases[1].admin_url())),
        tokio::spawn(prepare(databases[2].admin_url())),
    );
    for done in [one, same, second, third] {
        done.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_owner_with_createrole_need_not_be_a_superuser() {
    let postgres = Postgres::start().await.unwrap();
    let mut admin = connect(&postgres.server().url("postgres")).await;
    run(&mut admin, "create role owner with login createrole".to_owned()).await.unwrap();
    run(&mut admin, "create database suite owner owner".to_owned()).await.unwrap();
    for _ in 0..2 {
        prepare(postgres.server().url_for("owner", "suite")).await.unwrap();
    }
}

#[tokio::test]
async fn a_service_reaches_its_own_schema_and_no_other() {
    let database = template().await;
    for (role, own) in roles() {
        let mut connection = connect(&database.url_for(&role)).await;
        run(&mut connection, format!("select from {own}.outbox")).await.unwrap();
        run(&mut connection, "select from saga.saga_instance".to_owned()).await.unwrap();
        for (_, other) in roles().filter(|(_, schema)| *schema != own) {
            refused(&mut connection, &role, format!("select from {other}.outbox")).await;
        }
    }
}

#[tokio::test]
async fn no_role_creates_or_changes_tables() {
    let database = template().await;
    for (role, schema) in roles() {
        let mut connection = connect(&database.url_for(&role)).await;
        for statement in [
            format!("create table {schema}.mine (a int)"),
            "create table saga.mine (a int)".to_owned(),
            "create table public.mine (a int)".to_owned(),
            "create schema mine".to_owned(),
            format!("alter table {schema}.outbox add column a int"),
            format!("drop table {schema}.outbox"),
            format!("truncate {schema}.outbox"),
            format!("update {schema}._migration set checksum = ''"),
            "delete from saga.saga_step".to_owned(),
            "delete from saga.saga_instance".to_owned(),
        ] {
            refused(&mut connection, &role, statement).await;
        }
        run(&mut connection, format!("select {schema}.ensure_partitions(9)")).await.unwrap();
    }
}

#[tokio::test]
async fn the_auditor_reads_every_table_and_writes_nothing() {
    let database = template().await;
    let mut connection = connect(&database.url_for("auditor")).await;
    for table in tables(&database).await {
        // Partitions are read through the tables that they are parts of.
        let partition = table.contains("_2") || table.ends_with("_default");
        if !partition {
            run(&mut connection, format!("select from {table}")).await.unwrap();
        }
        refused(&mut connection, "auditor", format!("delete from {table}")).await;
    }
}

#[tokio::test]
async fn a_temporary_table_cannot_shadow_a_table_in_owner_functions() {
    let database = template().await;
    for (role, schema) in roles() {
        let mut connection = connect(&database.url_for(&role)).await;
        for decoy in ["inbox", "inbox_default", "outbox_published", "outbox_published_default"] {
            run(&mut connection, format!("create temporary table {decoy} (a int)")).await.unwrap();
        }
        run(&mut connection, format!("select {schema}.ensure_partitions(20)")).await.unwrap();
        let statement = "select from pg_class where relpersistence = 't' and relnamespace = pg_my_temp_schema()";
        assert_eq!(sqlx::query(statement).fetch_all(&mut connection).await.unwrap().len(), 4);
    }
    let partitions = tables(&database).await.into_iter().filter(|table| table.contains(".inbox_2")).count();
    assert_eq!(partitions, PARTICIPANTS.len() * 21);
}

#[tokio::test]
async fn only_order_may_query_obstacles_and_events_of_every_schema() {
    let database = template().await;
    for (role, _) in roles().chain([("auditor".to_owned(), "")]) {
        let mut connection = connect(&database.url_for(&role)).await;
        // A temporary table of the caller must not shadow the real table.
        run(&mut connection, "create temporary table relay_lease (a int)".to_owned()).await.unwrap();
        let obstacles =
            roles().map(|(_, schema)| format!("select kind from {schema}.obstacles(gen_random_uuid(), '{{}}')"));
        let payment = "select intent from payment.at_gateway(gen_random_uuid())".to_owned();
        let events = roles().map(|(_, schema)| format!("select event_id from {schema}.events('{{}}')"));
        for statement in obstacles.chain(events).chain([payment]) {
            if role == "order_service" {
                run(&mut connection, statement).await.unwrap();
            } else {
                refused(&mut connection, &role, statement).await;
            }
        }
    }
}

/// Ids contain the day of their service's clock.
#[tokio::test]
async fn a_day_is_dropped_when_it_is_old_by_the_databases_clock() {
    let database = template().await;
    let mut admin = connect(&database.admin_url()).await;
    let mut service = connect(&database.url_for("inventory_service")).await;
    old_days(&mut admin).await;
    for sql in [
        "insert into inventory.inbox (event_id, consumer)
        values (inventory.uuid_v7_floor('2024-01-01'), 'c'), (inventory.uuid_v7_floor('2023-01-01'), 'c')",
        "insert into inventory.outbox_published
            (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload,
            created_at, stream, stream_sequence, stream_epoch, relay)
        select inventory.uuid_v7_floor(day), 1, 'a', 'a', 1, 'e', 's', '{}', '{}', now(), 'S', 1, 1, 'r'
        from unnest('{2024-01-01, 2023-01-01}'::timestamptz[]) day",
    ] {
        run(&mut admin, sql.to_owned()).await.unwrap();
    }
    assert_eq!(dropped(&mut service).await, 0);
    for (table, since) in [("inbox", "processed_at"), ("outbox_published", "published_at")] {
        assert_eq!(run(&mut admin, format!("select from inventory.{table}")).await.unwrap().len(), 2, "{table}");
        let old = format!("update inventory.{table} set {since} = now() - interval '11 days'");
        run(&mut admin, old).await.unwrap();
        assert_eq!(dropped(&mut service).await, 2, "{table}");
        assert_eq!(run(&mut admin, format!("select from inventory.{table}")).await.unwrap().len(), 0, "{table}");
    }
}

#[tokio::test]
async fn a_day_of_published_events_is_archived_before_it_is_dropped() {
    let database = template().await;
    let mut admin = connect(&database.admin_url()).await;
    let mut service = connect(&database.url_for("inventory_service")).await;
    let day = "select to_char(now() at time zone 'utc' - interval '5 days', 'YYYYMMDD')";
    let day: String = sqlx::query_scalar(day).fetch_one(&mut admin).await.unwrap();
    for sql in [
        format!("create table inventory.outbox_published_{day} partition of inventory.outbox_published
            for values from (inventory.uuid_v7_floor('{day}')) to (inventory.uuid_v7_floor('{day}'::timestamptz + interval '1 day'))"),
        format!("insert into inventory.outbox_published
            (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload,
            created_at, published_at, stream, stream_sequence, stream_epoch, relay)
            values (inventory.uuid_v7_floor('{day}'), 1, 'product', 'A', 1, 'e', 's', '{{}}', '{{\"a\": 1}}', now(),
            '{day}', 'S', 1, 1, 'r')"),
    ] {
        run(&mut admin, sql).await.unwrap();
    }
    let drop = |days: u32| format!("select inventory.archive_events('1 day', '{days} days')");
    assert_eq!(sqlx::query_scalar::<_, i32>(sqlx::AssertSqlSafe(drop(30))).fetch_one(&mut service).await.unwrap(), 1);
    assert_eq!(run(&mut admin, "select from inventory.outbox_published".to_owned()).await.unwrap().len(), 0);
    // Its service has no other access to it.
    let events = "select event_id from inventory.aggregate_events('product', 'A', 9, 9)";
    assert_eq!(run(&mut service, events.to_owned()).await.unwrap().len(), 1);
    refused(&mut service, "inventory_service", format!("select from inventory._event_archive_{day}")).await;
    run(&mut service, drop(4)).await.unwrap();
    assert_eq!(run(&mut service, events.to_owned()).await.unwrap().len(), 0);
}

/// One that was parked, or held up by an outage, for so long that its day was set aside before.
#[tokio::test]
async fn an_event_published_late_follows_its_day_into_the_archive() {
    let database = template().await;
    let mut admin = connect(&database.admin_url()).await;
    let mut service = connect(&database.url_for("inventory_service")).await;
    // By its sequence: how many days ago it was created, and how many days ago published.
    let published = "insert into inventory.outbox_published
            (event_id, position, aggregate_type, aggregate_id, aggregate_sequence, event_type, subject, headers, payload,
            created_at, published_at, stream, stream_sequence, stream_epoch, relay)
        select inventory.uuid_v7_floor(now() - created * interval '1 day'), 1, 'product', 'A', sequence, 'e', 's', '{}', '{}',
            now(), now() - published * interval '1 day', 'S', 1, 1, 'r'
        from (values (1, 5, 4), (2, 5.001, 3), (3, 9, 2), (4, 9.001, 0.5), (5, 40, 2)) as event (sequence, created, published)";
    run(&mut admin, published.to_owned()).await.unwrap();
    run(&mut admin, "create table inventory.copy as table inventory.outbox_published".to_owned()).await.unwrap();
    let archive = "select inventory.archive_late_events('1 day', '30 days')";
    assert_eq!((number(&mut service, archive).await, number(&mut service, archive).await), (3, 0));
    let left = "select array_agg(aggregate_sequence order by aggregate_sequence) from inventory.outbox_published";
    let left: Vec<i64> = sqlx::query_scalar(left).fetch_one(&mut admin).await.unwrap();
    assert_eq!(left, [4, 5], "one is not old yet, and the day of the other would be dropped at once");

    // A day that is in the archive already takes another event, and not the same one twice, if it was published again.
    for later in [
        "update inventory.outbox_published set published_at = now() - interval '2 days' where aggregate_sequence = 4",
        "insert into inventory.outbox_published select * from inventory.copy where aggregate_sequence = 1",
    ] {
        run(&mut admin, later.to_owned()).await.unwrap();
    }
    assert_eq!(number(&mut service, archive).await, 1);
    for found in [
        "select from inventory.aggregate_events('product', 'A', 9, 9)",
        "select from inventory.published_after(0, 9)",
        "select from inventory.events((select array_agg(event_id) from inventory.copy))",
    ] {
        assert_eq!(run(&mut admin, found.to_owned()).await.unwrap().len(), 5, "{found}");
    }
}

#[tokio::test]
async fn a_day_in_use_is_dropped_later_and_blocks_no_other() {
    let database = template().await;
    let mut admin = connect(&database.admin_url()).await;
    let mut service = connect(&database.url_for("inventory_service")).await;
    run(&mut service, "set lock_timeout = '5s'".to_owned()).await.unwrap();
    old_days(&mut admin).await;
    let mut reading = admin.begin().await.unwrap();
    for day in ["inbox_20240102", "outbox_published_20240101"] {
        run(&mut reading, format!("select from inventory.{day}")).await.unwrap();
    }
    let began = std::time::Instant::now();
    assert_eq!(dropped(&mut service).await, 1, "one day is older than the one that is used");
    run(&mut reading, "select from inventory.inbox_default".to_owned()).await.unwrap();
    let created = "select inventory.ensure_partitions(8)";
    assert_eq!(number(&mut service, created).await, 1, "the default partition of one table is used");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    reading.rollback().await.unwrap();
    assert_eq!((dropped(&mut service).await, number(&mut service, created).await), (3, 1));
}

/// Two days of each table in inventory's schema.
async fn old_days(admin: &mut PgConnection) {
    for table in ["inbox", "outbox_published"] {
        for day in [1, 2] {
            let create = format!(
                "create table inventory.{table}_2024010{day} partition of inventory.{table}
                for values from (inventory.uuid_v7_floor('2024-01-0{day}')) to (inventory.uuid_v7_floor('2024-01-0{}'))",
                day + 1
            );
            run(admin, create).await.unwrap();
        }
    }
}

async fn dropped(service: &mut PgConnection) -> i32 {
    number(service, "select inventory.drop_partitions('10 days', '1 day')").await
}

async fn number(service: &mut PgConnection, select: &'static str) -> i32 {
    sqlx::query_scalar(select).fetch_one(service).await.unwrap()
}

#[tokio::test]
async fn passwords_are_updated_and_connections_can_be_limited() {
    let postgres = Postgres::start().await.unwrap();
    let url = postgres.server().url("postgres");
    let odd = r#"it's \ "quoted" $1 %s; drop role auditor"#;
    let passwords = Passwords::same_as_roles().with("order_service", odd);
    let settings = Settings { passwords, connection_limit: Some(2), wait: Duration::from_secs(5) };
    prepare(url.clone()).await.unwrap();
    let mut admin = connect(&url).await;
    let before = verifiers(&mut admin).await;
    provision(&PgConnectOptions::from_str(&url).unwrap(), &settings).await.unwrap();
    let after = verifiers(&mut admin).await;
    assert_eq!(after.len(), PARTICIPANTS.len() + 1);
    assert!(before.iter().zip(&after).all(|(before, after)| before != after));

    let role = postgres.server().url_for("order_service", "postgres");
    let _one = connect(&role).await;
    let _two = connect(&role).await;
    let third = PgConnectOptions::from_str(&role).unwrap().connect().await.unwrap_err();
    assert_eq!(code(&third), "53300");
    let whole = Settings { connection_limit: None, ..settings };
    provision(&PgConnectOptions::from_str(&url).unwrap(), &whole).await.unwrap();
    connect(&role).await;
}

#[tokio::test]
async fn a_changed_migration_is_a_named_error_and_holds_no_lock() {
    let database = template().await;
    let mut admin = connect(&database.admin_url()).await;
    run(&mut admin, "create table before as table inventory._migration".to_owned()).await.unwrap();
    run(&mut admin, "update inventory._migration set checksum = '' where version = 2".to_owned()).await.unwrap();
    for _ in 0..2 {
        let error = prepare(database.admin_url()).await.unwrap_err();
        assert!(
            matches!(&error, Error::Migration { schema: "inventory", ledger, .. } if ledger == "inventory._migration")
        );
        assert!(format!("{:#}", anyhow::Error::new(error)).contains("migration 2"));
    }
    let repair = "update inventory._migration m set checksum = b.checksum from before b where b.version = m.version";
    run(&mut admin, repair.to_owned()).await.unwrap();
    prepare(database.admin_url()).await.unwrap();
}

#[tokio::test]
async fn a_missing_server_is_awaited_and_a_refusing_one_is_not() {
    let missing = PgConnectOptions::new().host("127.0.0.1").port(free_port()).username("postgres");
    let limit = Duration::from_millis(1500);
    let settings = Settings { passwords: Passwords::same_as_roles(), connection_limit: None, wait: limit };
    let error = provision(&missing, &settings).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { waited, .. } if waited >= limit), "{error}");

    let database = Database::empty().await.unwrap();
    let elsewhere = PgConnectOptions::from_str(&database.admin_url()).unwrap().database("no_such_database");
    let settings = Settings { wait: Duration::from_secs(3600), ..settings };
    let error = provision(&elsewhere, &settings).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_starts_late_is_provisioned() {
    let mut postgres = Postgres::start().await.unwrap();
    let url = postgres.server().url("postgres");
    postgres.stop_fast().await.unwrap();
    let waiting = tokio::spawn(prepare(url));
    tokio::time::sleep(Duration::from_millis(300)).await;
    postgres.start_again().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_auditor_reads_one_view_per_table_of_all_participants() {
    let database = template().await;
    let mut admin = connect(&database.admin_url()).await;
    for Participant { service, schema, .. } in PARTICIPANTS {
        let claimed =
            format!("insert into {schema}.inbox (event_id, consumer) values (gen_random_uuid(), '{service}-step')");
        run(&mut admin, claimed).await.unwrap();
    }
    let mut auditor = connect(&database.url_for("auditor")).await;
    let claimed = "select service from audit.inbox where consumer = service || '-step' order by service";
    let claimed: Vec<String> = sqlx::query_scalar(claimed).fetch_all(&mut auditor).await.unwrap();
    let mut services = SERVICES.map(|service| service.0);
    services.sort_unstable();
    assert_eq!(claimed, services);
    let private = run(&mut auditor, "select payload from audit.outbox".to_owned()).await.unwrap_err();
    assert_eq!(code(&private), "42703");
    assert!(run(&mut admin, "select from audit.payment".to_owned()).await.is_err(), "only payment has it");
}

#[tokio::test]
async fn a_view_is_recreated_only_when_a_column_was_added() {
    let database = template().await;
    let mut admin = connect(&database.admin_url()).await;
    let made = "select 'audit.inbox'::regclass::oid::bigint::integer";
    let before = number(&mut admin, made).await;
    prepare(database.admin_url()).await.unwrap();
    assert_eq!(number(&mut admin, made).await, before);
    for Participant { schema, .. } in PARTICIPANTS {
        run(&mut admin, format!("alter table {schema}.inbox add column note text")).await.unwrap();
    }
    prepare(database.admin_url()).await.unwrap();
    let mut auditor = connect(&database.url_for("auditor")).await;
    run(&mut auditor, "select note from audit.inbox".to_owned()).await.unwrap();
}

async fn template() -> Database {
    Database::from_template("provision", async |url| Ok(prepare(url).await?)).await.unwrap()
}

async fn connect(url: &str) -> PgConnection {
    PgConnectOptions::from_str(url).unwrap().connect().await.unwrap()
}

async fn run(connection: &mut PgConnection, statement: String) -> sqlx::Result<Vec<PgRow>> {
    sqlx::query(AssertSqlSafe(statement)).fetch_all(connection).await
}

/// Asserts that the role, whose connection this is, lacks the privilege.
async fn refused(connection: &mut PgConnection, role: &str, statement: String) {
    let error = run(connection, statement.clone()).await.unwrap_err();
    assert_eq!(code(&error), "42501", "{role}: {statement}");
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|answer| answer.code()).unwrap_or_default().into_owned()
}

/// Every table of the database, as `schema.table`.
async fn tables(database: &Database) -> Vec<String> {
    let mut connection = connect(&database.admin_url()).await;
    let tables = sqlx::query_scalar(
        "select schemaname || '.' || tablename
        from pg_tables
        where schemaname not in ('pg_catalog', 'information_schema')
        order by 1",
    );
    let tables = tables.fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    tables
}

async fn verifiers(admin: &mut PgConnection) -> Vec<String> {
    let query =
        "select rolpassword from pg_authid where rolname like '%\\_service' or rolname = 'auditor' order by rolname";
    sqlx::query_scalar(query).fetch_all(admin).await.unwrap()
}
