//! A synchronous standby. What a session has read may be lost with the primary: a commit whose wait for the standby ended early is
//! visible, and a transaction that wrote nothing does not wait at all.

use std::io;

use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

/// Where there is a synchronous standby, makes the end of this transaction (outside of one: this statement) wait until the
/// standby has all that earlier statements have read. Elsewhere it does nothing.
pub(crate) async fn barrier(conn: &mut PgConnection) -> Result<(), sqlx::Error> {
    let write =
        "select pg_logical_emit_message(true, 'barrier', '') where current_setting('synchronous_standby_names') <> ''";
    sqlx::query(write).execute(conn).await.map(drop)
}

/// Connects to a server that accepts writes.
///
/// # Errors
/// Those of the connection; [`sqlx::Error::Io`] when the server is read-only, as a standby is.
pub async fn connect_writable(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let mut connection = PgConnection::connect_with(options).await?;
    let read_only: String = sqlx::query_scalar("show transaction_read_only").fetch_one(&mut connection).await?;
    match read_only.as_str() {
        "off" => Ok(connection),
        _ => Err(sqlx::Error::Io(io::Error::other("the server is read-only"))),
    }
}
