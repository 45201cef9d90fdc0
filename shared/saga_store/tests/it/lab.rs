//! A database per test, and a saga whose second step the tests take: a question is asked, and answered.

use std::str::FromStr;

use messaging::{Batch, Bus, Context, Delivery, Metadata, Metrics, Outbox, StepError};
use saga::{CompensationPolicy, Event, Kind, SagaDefinition, Service, Step, StepOn};
use saga_store::StepTransaction;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use testkit::{Database, Nats};
use uuid::Uuid;

pub(crate) const TOY: Service = Service("toy");

pub(crate) static SAGA: SagaDefinition = SagaDefinition {
    saga_type: "Toy",
    steps: &[&ASK, &ANSWER.step],
    deadline: Step::TIME_LIMIT,
    compensation: CompensationPolicy { deadline: Step::TIME_LIMIT, max_attempts: 5 },
    terminal: &[Answered::TYPE],
};

pub(crate) static ASK: Step = Step::on_request(0, "ask", TOY, &[Asked::TYPE], Kind::Compensatable { by: &[] });

pub(crate) static ANSWER: StepOn<Asked> =
    StepOn::new(1, "answer", TOY, &[Answered::TYPE, Declined::TYPE], Kind::Compensatable { by: &[] });

saga::event!(Asked { id: Uuid }, "question" by [TOY]);
saga::event!(Answered { id: Uuid }, "question" by [TOY]);
saga::event!(Declined { id: Uuid }, "question" by [TOY], refuses "no idea");
saga::event!(Filed { id: Uuid }, "question" by [TOY]);
saga::event!(Stamped { id: Uuid }, "question" by [Service("office")]);
saga::event!(Withdrawn { id: Uuid }, "question" by [TOY]);

pub(crate) struct Lab {
    pub(crate) outbox: Outbox,
    pub(crate) pool: PgPool,
    _database: Database,
    _nats: Nats,
}

impl Lab {
    pub(crate) async fn start() -> Self {
        let database = Database::from_template("toy", make_tables).await.unwrap();
        let nats = Nats::start().await.unwrap();
        let client = async_nats::connect(nats.url()).await.unwrap();
        let options =
            PgConnectOptions::from_str(&database.admin_url()).unwrap().options([("search_path", "toy, saga")]);
        let pool = PgPoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
        let outbox = Outbox::new(pool.clone(), Bus::new(client, TOY), Metrics::default());
        Lab { outbox, pool, _database: database, _nats: nats }
    }

    /// With running sagas, whose first events are delivered next.
    pub(crate) async fn with_questions<const N: usize>() -> (Self, [Delivery<Asked>; N]) {
        let lab = Self::start().await;
        let questions = lab.questions().await;
        (lab, questions)
    }

    /// Starts sagas, and returns their first events as deliveries.
    pub(crate) async fn questions<const N: usize>(&self) -> [Delivery<Asked>; N] {
        let mut tx = StepTransaction::begin(&self.outbox, &SAGA, &ASK).await.unwrap();
        let questions = std::array::from_fn(|_| {
            let (id, context) = (Uuid::now_v7(), Context::background("test"));
            let event = Asked { id };
            tx.start(id, id, context.clone(), &event).unwrap();
            let published_in = context.in_saga(id, SAGA.saga_type);
            Delivery { event, meta: Metadata { event_id: Uuid::now_v7(), sequence: 1, published_in } }
        });
        tx.commit().await.unwrap();
        questions
    }

    pub(crate) async fn take(
        &self,
        deliveries: &[Delivery<Asked>],
    ) -> Result<StepTransaction<Delivery<Asked>>, StepError> {
        StepTransaction::take(&self.outbox, &SAGA, &ANSWER, Batch::new(&ANSWER, deliveries.to_vec())).await
    }

    /// The events that `answer` has published about the question.
    pub(crate) async fn published(&self, question: &Delivery<Asked>) -> Vec<String> {
        let query =
            "select event_type from outbox where aggregate_id = $1 and event_type <> 'Asked.v1' order by position";
        sqlx::query_scalar(query).bind(question.event.id.to_string()).fetch_all(&self.pool).await.unwrap()
    }

    /// The journal entries of `answer`, with the saga's status after each.
    pub(crate) async fn journal(&self, question: &Delivery<Asked>) -> Vec<String> {
        let query = "select concat_ws(' ', status, event_type, status_after, reason) from saga_step
            where saga_id = $1 and step = 'answer' order by position";
        sqlx::query_scalar(query).bind(question.event.id).fetch_all(&self.pool).await.unwrap()
    }

    pub(crate) async fn inbox_size(&self) -> i64 {
        sqlx::query_scalar("select count(*) from inbox").fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn time_out(&self, question: &Delivery<Asked>) {
        let sql = "update saga_instance set status = 'TIMED_OUT', version = version + 1 where saga_id = $1";
        sqlx::query(sql).bind(question.event.id).execute(&self.pool).await.unwrap();
    }
}

async fn make_tables(url: String) -> anyhow::Result<()> {
    let options = PgConnectOptions::from_str(&url)?;
    saga_store::migrate(&options).await?;
    Ok(messaging::migrate(&options, "toy").await?)
}
