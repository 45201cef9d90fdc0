//! The roles of a cluster. They belong to no database, so another database's `provision` may be creating them
//! at the same moment; the loser of such a race just tries again.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection};

/// Lost races in a row before we believe that it is none.
const ATTEMPTS: u32 = 100;

/// The password of each role.
#[derive(Clone)]
pub struct Passwords {
    pub order_service: String,
    pub inventory_service: String,
    pub payment_service: String,
    pub auditor: String,
}

impl Passwords {
    /// For development and tests: each role's password is its name.
    pub fn same_as_roles() -> Self {
        Passwords {
            order_service: "order_service".to_owned(),
            inventory_service: "inventory_service".to_owned(),
            payment_service: "payment_service".to_owned(),
            auditor: "auditor".to_owned(),
        }
    }

    /// Every role with its password.
    pub fn by_role(&self) -> [(&'static str, &str); 4] {
        [
            ("order_service", &self.order_service),
            ("inventory_service", &self.inventory_service),
            ("payment_service", &self.payment_service),
            ("auditor", &self.auditor),
        ]
    }
}

/// Creates the role, or gives the one that exists the password and limit that it should have.
pub(super) async fn ensure(
    connection: &mut PgConnection,
    role: &str,
    password: &str,
    connection_limit: Option<u32>,
) -> Result<(), sqlx::Error> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match create_or_alter(connection, role, password, connection_limit).await {
            Err(error) if attempt < ATTEMPTS && is_lost_race(&error) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => return other,
        }
    }
}

async fn create_or_alter(
    connection: &mut PgConnection,
    role: &str,
    password: &str,
    connection_limit: Option<u32>,
) -> Result<(), sqlx::Error> {
    // Such statements take no parameters; the server itself quotes the name and the password.
    let statement: String = sqlx::query_scalar(
        "select format(
            '%s role %I with login connection limit %s password %L',
            case when exists (select from pg_roles where rolname = $1) then 'alter' else 'create' end,
            $1, $2, $3)",
    )
    .bind(role)
    .bind(connection_limit.map_or(-1, i64::from))
    .bind(password)
    .fetch_one(&mut *connection)
    .await?;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

/// Somebody else created or altered the role at the same moment.
fn is_lost_race(error: &sqlx::Error) -> bool {
    let Some(answer) = error.as_database_error() else { return false };
    match answer.code().as_deref() {
        // duplicate_object, unique_violation
        Some("42710" | "23505") => true,
        // internal_error, which has no code of its own for this.
        Some("XX000") => answer.message().starts_with("tuple concurrently"),
        _ => false,
    }
}
