//! The roles of a cluster. They belong to no database, so the `provision` of another database may create them concurrently; the
//! loser of such a race retries.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection};

/// Attempts before the error counts as permanent.
const ATTEMPTS: u32 = 100;

/// The participants' and the auditor's roles with their passwords.
#[derive(Clone)]
pub struct Passwords(pub(crate) Vec<(String, String)>);

impl Passwords {
    /// For development and tests: each role's password is its name.
    pub fn same_as_roles() -> Self {
        let roles = contracts::PARTICIPANTS.iter().map(contracts::Participant::role).chain(["auditor".to_owned()]);
        Passwords(roles.map(|role| (role.clone(), role)).collect())
    }

    pub fn by_role(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(role, password)| (role.as_str(), password.as_str()))
    }

    /// The same, with another password for one role.
    pub fn with(mut self, role: &str, password: &str) -> Self {
        self.0.retain(|(other, _)| other != role);
        self.0.push((role.to_owned(), password.to_owned()));
        self
    }
}

/// Creates the role, or sets the password and connection limit of the existing one.
pub(super) async fn ensure(
    connection: &mut PgConnection,
    role: &str,
    password: &str,
    connection_limit: Option<u32>,
) -> sqlx::Result<()> {
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
) -> sqlx::Result<()> {
    // The statement takes no parameters, so the server quotes the name and the password.
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

/// Another session created or altered the role concurrently.
fn is_lost_race(error: &sqlx::Error) -> bool {
    let Some(answer) = error.as_database_error() else { return false };
    match answer.code().as_deref() {
        // duplicate_object, unique_violation
        Some("42710" | "23505") => true,
        // internal_error: this case has no code of its own.
        Some("XX000") => answer.message().starts_with("tuple concurrently"),
        _ => false,
    }
}
