//! The record of what operators do over the administration routes.

use saga::Service;
use sqlx::PgPool;
use uuid::Uuid;

/// An action that is about to be carried out.
#[derive(Debug)]
pub struct OperatorAction<'a> {
    pub service: Service,
    pub actor: &'a str,
    /// Method and path.
    pub action: &'a str,
    pub reason: Option<&'a str>,
    /// The request's body.
    pub request: Option<&'a str>,
}

/// Records the action before it is carried out. The status of its answer is added by [`answered`].
pub async fn begin(pool: &PgPool, action_id: Uuid, action: &OperatorAction<'_>) -> Result<(), sqlx::Error> {
    let OperatorAction { service, actor, action, reason, request } = *action;
    sqlx::query!(
        "insert into saga.operator_action (action_id, service, actor, action, reason, request)
        values ($1, $2, $3, $4, $5, $6)",
        action_id,
        service.0,
        actor,
        action,
        reason,
        request,
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Adds the status of the action's HTTP answer.
pub async fn answered(pool: &PgPool, action_id: Uuid, status: i16) -> Result<(), sqlx::Error> {
    sqlx::query!("update saga.operator_action set status = $2 where action_id = $1", action_id, status)
        .execute(pool)
        .await
        .map(drop)
}
