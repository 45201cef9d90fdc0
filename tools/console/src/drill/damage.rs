//! Doing a drill's damage, beside all routes, and undoing it. It is noted in the database before it is done, so that it can also be
//! undone when the drill was killed.

use std::{future::pending, str::FromStr as _, time::Duration};

use anyhow::Context as _;
use async_nats::jetstream::stream;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use uuid::Uuid;

use super::table::{DRILLS, Damage, Drill};
use crate::{audit, suite::Suite};

/// How sessions of drills are named at the server.
const SESSION: &str = "pas-de-trois-drill";
/// How long undoing is tried: a server may be about to start again.
const UNDOING: Duration = Duration::from_secs(60);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(30);
/// No message fits.
const FULL: i64 = 1;

/// Whoever may do damage: the owner of the database, the broker's administrator.
#[derive(Debug, Clone)]
pub(super) struct Saboteur {
    pub(super) owner_url: String,
    pub(super) broker: audit::Stores,
    pub(super) suite: Suite,
}

/// Damage as it is noted.
pub(super) struct Noted {
    /// Of one play: whoever ends undoes only its own.
    id: Uuid,
    pub(super) drill: &'static Drill,
    pub(super) sku: String,
    /// The size of the stream before, in bytes.
    stream_bytes: i64,
}

impl Saboteur {
    /// Does the damage. Dropped half done, it may still happen, until it is undone.
    ///
    /// Returns the sessions that have to be held until it is undone.
    pub(super) async fn damage(&self, id: Uuid, drill: &'static Drill, sku: &str) -> anyhow::Result<JoinSet<()>> {
        let (mut owner, mut held) = (self.owner().await?, JoinSet::new());
        let stream_bytes = match drill.damage {
            Damage::FullStream(service) => self.stream(service.stream()).await?.1.max_bytes,
            _ => 0,
        };
        // The schema and its note appear together: without a note nobody could tell whose it is.
        let mut transaction = owner.begin().await?;
        let schema = "create schema drill; create table drill.note (id uuid, name text, sku text, stream_bytes bigint)";
        let made = sqlx::raw_sql(schema).execute(&mut *transaction).await;
        made.context("another drill plays, or was left: --mend ends it")?;
        let note = sqlx::query("insert into drill.note values ($1, $2, $3, $4)");
        note.bind(id).bind(drill.name).bind(sku).bind(stream_bytes).execute(&mut *transaction).await?;
        transaction.commit().await?;
        match drill.damage {
            Damage::Sql { damage, .. } => {
                for sql in damage {
                    run(&mut owner, sql, sku).await?;
                }
            }
            Damage::Transaction(sql) => {
                run(&mut owner, "begin", sku).await?;
                run(&mut owner, sql, sku).await?;
                held.spawn(async move {
                    let _session = owner;
                    pending().await
                });
            }
            Damage::Endless { damage, .. } => {
                held.spawn(async move {
                    // It ends when the damage is undone.
                    let _ = sqlx::raw_sql(damage).execute(&mut owner).await;
                });
            }
            Damage::Gateway(faults) => self.suite.arm_gateway(&faults).await?,
            Damage::FullStream(service) => self.limit_stream(service.stream(), FULL).await?,
        }
        Ok(held)
    }

    /// Undoes what is noted, if anything is, and ends the sessions that do it: of one play, or of any. Returns what it was.
    pub(super) async fn undo(&self, of: Option<Uuid>) -> anyhow::Result<Option<Noted>> {
        let end = Instant::now() + UNDOING;
        loop {
            match timeout(ATTEMPT, self.try_undo(of)).await.unwrap_or_else(|elapsed| Err(elapsed.into())) {
                Err(error) if Instant::now() >= end => return Err(error),
                Err(_) => sleep(Duration::from_millis(500)).await,
                done => return done,
            }
        }
    }

    async fn try_undo(&self, of: Option<Uuid>) -> anyhow::Result<Option<Noted>> {
        let mut owner = self.owner().await?;
        let Some(noted) = noted(&mut owner).await?.filter(|noted| of.is_none_or(|id| id == noted.id)) else {
            return Ok(None);
        };
        // Of one that was killed, or interrupted, the server may still be about to do the damage.
        let others = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
            where application_name = $1 and usename = current_user and datname = current_database()
                and pid <> pg_backend_pid()";
        sqlx::query(others).bind(SESSION).execute(&mut owner).await?;
        match noted.drill.damage {
            Damage::Gateway(_) => self.suite.disarm_gateway().await?,
            Damage::FullStream(service) => self.limit_stream(service.stream(), noted.stream_bytes).await?,
            Damage::Sql { .. } | Damage::Transaction(_) | Damage::Endless { .. } => {}
        }
        let mut transaction = owner.begin().await?;
        // First the triggers, with whoever runs them now: then nothing is damaged behind the back of what follows.
        run(&mut transaction, "drop function if exists drill.act() cascade", &noted.sku).await?;
        if let Damage::Sql { undo, .. } | Damage::Endless { undo, .. } = noted.drill.damage {
            for sql in undo {
                run(&mut transaction, sql, &noted.sku).await?;
            }
        }
        run(&mut transaction, "drop schema drill cascade", &noted.sku).await?;
        transaction.commit().await?;
        owner.close().await?;
        Ok(Some(noted))
    }

    pub(super) async fn owner(&self) -> anyhow::Result<PgConnection> {
        let options = PgConnectOptions::from_str(&self.owner_url).context("OWNER_DATABASE_URL")?;
        let limits = [
            ("lock_timeout", "20000"),
            ("statement_timeout", "0"),
            ("idle_in_transaction_session_timeout", "0"),
            ("client_min_messages", "warning"),
        ];
        let connection = PgConnection::connect_with(&options.application_name(SESSION).options(limits)).await;
        connection.context("cannot connect as the database's owner")
    }

    async fn stream(&self, name: String) -> anyhow::Result<(async_nats::jetstream::Context, stream::Config)> {
        let broker = audit::connect_broker(&self.broker).await?;
        let config = broker.get_stream(name).await?.cached_info().config.clone();
        Ok((broker, config))
    }

    async fn limit_stream(&self, name: String, max_bytes: i64) -> anyhow::Result<()> {
        let (broker, config) = self.stream(name).await?;
        broker.update_stream(stream::Config { max_bytes, ..config }).await?;
        Ok(())
    }
}

async fn noted(owner: &mut PgConnection) -> anyhow::Result<Option<Noted>> {
    use sqlx::Row as _;
    let exists: bool =
        sqlx::query_scalar("select to_regclass('drill.note') is not null").fetch_one(&mut *owner).await?;
    if !exists {
        return Ok(None);
    }
    let note: Option<PgRow> =
        sqlx::query("select id, name, sku, stream_bytes from drill.note").fetch_optional(owner).await?;
    let Some(note) = note else { return Ok(None) };
    let name: String = note.try_get(1)?;
    let drill = DRILLS.iter().find(|drill| drill.name == name).with_context(|| format!("no drill is called {name}"))?;
    Ok(Some(Noted { id: note.try_get(0)?, drill, sku: note.try_get(2)?, stream_bytes: note.try_get(3)? }))
}

async fn run(owner: &mut PgConnection, sql: &str, sku: &str) -> anyhow::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(filled(sql, sku))).execute(owner).await?;
    Ok(())
}

/// The statement for this product, whose name is the drill's own.
pub(super) fn filled(sql: &str, sku: &str) -> String {
    sql.replace("{sku}", sku)
}
