use sqlx::{Connection, PgConnection};
use testkit::Postgres;

#[tokio::test]
async fn committed_data_survives_an_immediate_stop() {
    let mut postgres = Postgres::start().await.unwrap();
    let url = postgres.server().url("postgres");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::query("create table kept as select 42 as answer").execute(&mut connection).await.unwrap();

    postgres.stop_immediate().await.unwrap();
    assert!(sqlx::query("select 1").execute(&mut connection).await.is_err());
    assert!(PgConnection::connect(&url).await.is_err());

    postgres.start_again().await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let answer: i32 = sqlx::query_scalar("select answer from kept").fetch_one(&mut connection).await.unwrap();
    assert_eq!(answer, 42);
}
