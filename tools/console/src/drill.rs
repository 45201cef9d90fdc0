//! Drills: a hidden fault, under load. The player finds it with what operators have, names its place, its cause and some of the
//! orders concerned, and mends it; the answer is scored. However a drill ends, its damage is undone.

mod damage;
mod load;
mod score;
mod table;

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use bootstrap::CancellationToken;
use rand::{SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use sqlx::PgConnection;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    task::JoinSet,
    time::{sleep, timeout},
};
use uuid::Uuid;

use self::{
    damage::{Saboteur, filled},
    load::Load,
    score::{Answer, Score},
    table::{Concerns, DRILLS, Drill, MendedBy, vocabulary},
};
use crate::{
    audit::{self, Stores},
    demo, interrupted, say,
    suite::{Addresses, NewProduct, SERVICES, Suite},
};

/// Orders before the damage, all of which must end.
const ORDERS_BEFORE: usize = 8;
/// How long the shop may take from the answer until everything has ended and the audit is clean.
const RECOVERY: Duration = Duration::from_secs(180);
/// How long an answer is waited for: less than any damage lasts by itself.
const PATIENCE: Duration = Duration::from_secs(45 * 60);
/// How long the orders that a drill has left may take to end by themselves.
const CLEANING: Duration = Duration::from_secs(10);
const UNITS: i64 = 1_000_000;

/// `console drill`.
#[derive(Debug, clap::Args)]
pub struct DrillArgs {
    /// The same seed hides the same fault
    #[arg(long)]
    seed: Option<u64>,
    /// Orders a second
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=50))]
    rate: u32,
    /// Only undo what a drill that was killed has left
    #[arg(long)]
    mend: bool,
    /// The suite's database, as its owner
    #[arg(long, env = "OWNER_DATABASE_URL", hide_env_values = true)]
    owner_url: String,
    /// The broker's administrator; empty for a broker without users
    #[arg(long, env = "PROVISION_NATS_USER", default_value = "provision")]
    broker_user: String,
    #[arg(long, env = "PROVISION_NATS_PASSWORD", default_value = "", hide_env_values = true)]
    broker_password: String,
    #[command(flatten)]
    stores: Stores,
    #[command(flatten)]
    addresses: Addresses,
}

/// Plays one drill; `Ok(false)` unless its cause was named and the shop has recovered.
pub async fn command(args: &DrillArgs) -> anyhow::Result<bool> {
    let suite = Suite::new(args.addresses.clone()).context("no HTTP client")?;
    let (nats_user, nats_password) = (args.broker_user.clone(), args.broker_password.clone());
    let saboteur = Saboteur {
        owner_url: args.owner_url.clone(),
        broker: Stores { nats_user, nats_password, ..args.stores.clone() },
        suite: suite.clone(),
    };
    if args.mend {
        let Some(undone) = saboteur.undo(None).await? else {
            say("There was nothing to undo.");
            return Ok(true);
        };
        say(format!("Undone: {}.", undone.drill.name));
        tidy_up(&suite, &args.stores, &undone.sku).await?;
        return Ok(true);
    }
    // The last bits of a UUIDv7 are random.
    let seed = args.seed.unwrap_or_else(|| Uuid::now_v7().as_u64_pair().1 >> 32);
    let drill = of_seed(seed).context("there is no drill")?;
    let mut play = Play::prepare(args, suite, saboteur, drill).await?;
    let played = tokio::select! {
        played = play.begin_and_judge(seed, args.rate) => played,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    if play.clean_up().await? {
        say(format!("It was {}. {}", drill.name, drill.debrief));
    }
    let (score, solved) = played?;
    say(format!("Score: {score}"));
    Ok(solved)
}

fn of_seed(seed: u64) -> Option<&'static Drill> {
    DRILLS.choose(&mut StdRng::seed_from_u64(seed))
}

/// The names of all drills, each with a seed that chooses it.
pub fn seeds() -> Vec<(&'static str, u64)> {
    let seed = |name| (0..).find(|seed| of_seed(*seed).is_some_and(|drill| drill.name == name));
    DRILLS.iter().filter_map(|drill| Some((drill.name, seed(drill.name)?))).collect()
}

struct Play {
    id: Uuid,
    suite: Suite,
    saboteur: Saboteur,
    drill: &'static Drill,
    sku: String,
    load: Load,
    loading: JoinSet<()>,
    load_stop: CancellationToken,
    stores: Stores,
    input: UnboundedReceiver<String>,
    /// Sessions that hold the damage.
    held: JoinSet<()>,
    briefed: bool,
}

impl Play {
    async fn prepare(
        args: &DrillArgs,
        suite: Suite,
        saboteur: Saboteur,
        drill: &'static Drill,
    ) -> anyhow::Result<Play> {
        suite.become_ready().await.context("the suite is not ready")?;
        let broken = demo::broken(&suite).await?;
        ensure!(broken.is_empty(), "something is broken already:\n  {}", broken.join("\n  "));
        // Not from the seed: what a player can see says nothing about the drill.
        let id = Uuid::now_v7().simple().to_string().to_uppercase();
        let sku = format!("SHOP-{}", id.get(24..).unwrap_or(&id));
        let price = 500 + i64::from(Uuid::now_v7().as_bytes()[15]) * 10;
        suite.sell(&NewProduct::of(&sku, "Something to sell", price, UNITS), Duration::from_secs(20)).await?;
        Ok(Play {
            id: Uuid::now_v7(),
            load: Load::new(&suite, &sku),
            loading: JoinSet::new(),
            load_stop: CancellationToken::new(),
            stores: args.stores.clone(),
            input: demo::lines_of_input(),
            held: JoinSet::new(),
            briefed: false,
            suite,
            saboteur,
            drill,
            sku,
        })
    }

    /// Everything from the first order to the score; whether it is solved.
    async fn begin_and_judge(&mut self, seed: u64, rate: u32) -> anyhow::Result<(Score, bool)> {
        self.load.place_some(ORDERS_BEFORE).await;
        let mut database = audit::connect_database(&self.stores.database_url).await?;
        let open = self.load.wait_for_all(&mut database, Duration::from_secs(30)).await?;
        ensure!(
            open.is_empty(),
            "orders do not end before the drill has begun: one that was killed may be left (--mend)"
        );
        self.loading.spawn(self.load.clone().run(rate, self.load_stop.clone()));
        self.held = self.saboteur.damage(self.id, self.drill, &self.sku).await?;
        let damaged = Instant::now();
        brief(seed, &self.sku);
        self.briefed = true;
        let answer = self.answer().await?;
        say(format!("Answered after {} s.", damaged.elapsed().as_secs()));
        self.load_stop.cancel();
        let mut concerned = self.concerned(&mut database).await?;
        let right = answer.is_right(self.drill);
        if !right {
            say("That is not what is wrong.");
        } else if self.drill.mended_by == MendedBy::Administrator {
            self.held.abort_all();
            self.saboteur.undo(Some(self.id)).await?;
            say("That is it, and who administers it has mended it. What it has left is yours.");
        } else {
            say("That is it.");
        }
        let recovered = if right { self.recovered(&mut database, damaged).await? } else { None };
        // Whoever is quick names orders that were not held up for long yet.
        concerned.extend(self.concerned(&mut database).await?);
        let (placed, _) = self.load.late(&mut database).await?;
        say(format!("{placed} orders were placed, {} of them were concerned.", concerned.len()));
        if right {
            answer.orders.difference(&concerned).for_each(|order| say(format!("Not concerned: {order}")));
        }
        Ok((Score::of(self.drill, &answer, &concerned, recovered), right && recovered.is_some()))
    }

    /// The first answer that can be read.
    async fn answer(&mut self) -> anyhow::Result<Answer> {
        loop {
            let line = timeout(PATIENCE, self.input.recv()).await.context("nobody has answered")?;
            let Some(line) = line else { bail!("the input ended before an answer") };
            match Answer::parse(&line) {
                Ok(answer) => return Ok(answer),
                Err(why) => say(why),
            }
        }
    }

    async fn concerned(&self, database: &mut PgConnection) -> anyhow::Result<HashSet<Uuid>> {
        match self.drill.concerns {
            Concerns::Late => Ok(self.load.late(database).await?.1),
            Concerns::Found(sql) => {
                let sql = sqlx::AssertSqlSafe(filled(sql, &self.sku));
                let found: Vec<Uuid> = sqlx::query_scalar(sql).fetch_all(database).await?;
                Ok(found.into_iter().collect())
            }
        }
    }

    /// The time from the damage until every order has ended and the audit is clean.
    async fn recovered(&self, database: &mut PgConnection, damaged: Instant) -> anyhow::Result<Option<Duration>> {
        let end = Instant::now() + RECOVERY;
        let gateway = &self.suite.addresses().gateway_url;
        while Instant::now() < end {
            if self.load.open(database).await?.is_empty() {
                let options = audit::Options { settle: Duration::from_secs(5), ..audit::Options::default() };
                // A server may be busy still.
                if audit::audit(&self.stores, gateway, &options).await.is_ok_and(|report| report.clean) {
                    return Ok(Some(damaged.elapsed()));
                }
            }
            sleep(Duration::from_millis(500)).await;
        }
        Ok(None)
    }

    /// Undoes the damage and what it has left; returns whether there was any.
    async fn clean_up(&mut self) -> anyhow::Result<bool> {
        self.held.abort_all();
        self.load_stop.cancel();
        let undone = self.saboteur.undo(Some(self.id)).await.context("the damage is not undone: --mend tries again")?;
        while self.loading.join_next().await.is_some() {}
        tidy_up(&self.suite, &self.stores, &self.sku).await?;
        Ok(self.briefed || undone.is_some())
    }
}

/// Ends what still waits of the orders of a drill's product: dead letters are replayed, or discarded; whatever has lost its event
/// would wait for its deadline, and is cancelled.
async fn tidy_up(suite: &Suite, stores: &Stores, sku: &str) -> anyhow::Result<()> {
    let mut database = audit::connect_database(&stores.database_url).await?;
    let end = Instant::now() + CLEANING;
    loop {
        let open: Vec<(Uuid, Uuid)> = load::open_orders(&mut database, sku).await?;
        for service in SERVICES {
            demo::resolve_dead_letters(suite, service, |letter| {
                open.iter().any(|(_, saga_id)| letter.saga_id == Some(*saga_id))
            })
            .await?;
        }
        if open.is_empty() || Instant::now() >= end + CLEANING {
            return Ok(());
        }
        if Instant::now() >= end {
            for (order_id, _) in open {
                // It may have ended meanwhile.
                let _ = suite.cancel(order_id, "left by a drill").await;
            }
        }
        sleep(Duration::from_millis(500)).await;
    }
}

fn brief(seed: u64, sku: &str) {
    let (places, causes) = vocabulary();
    say(format!(
        "Drill {seed}: something is wrong in the shop, where {sku} is sold. Find out where and why, and which orders it concerns:\n\
         in a browser (the desk), over MCP, with curl, or on the boards. Mend what you can, then answer on one line:\n\n  \
         PLACE CAUSE ORDER ORDER ORDER\n\n\
         PLACE  {}\nCAUSE  {}\nORDER  the ids of at least three orders concerned, or of all: held up for over a second, or ended as they should not\n",
        places.join(" "),
        causes.join(" ")
    ));
}
