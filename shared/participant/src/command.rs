//! Commands of a saga's coordinator to a participant.

use axum::http::HeaderMap;
use bootstrap::{Json, JsonResult, Problem, RequestContext, detached};
use messaging::{Context, StepError, retry_contended};

/// Takes a step on a coordinator's command. The work is not lost with the connection, and is repeated after a lost race for locks;
/// it gets the context of the saga, as far as the request names it. An error that no repeat can mend is answered 422.
pub async fn command<T, F>(
    request: RequestContext,
    headers: &HeaderMap,
    work: impl Fn(Context) -> F + Send + Sync + 'static,
) -> JsonResult<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StepError>> + Send,
{
    let baggage = headers.get("baggage").and_then(|value| value.to_str().ok());
    let context = Context::of_request(request.correlation_id, &request.traceparent);
    let context = context.with_baggage(baggage.map(Into::into));
    let done = async move { retry_contended(|| work(context.clone())).await.map_err(|error| problem(&error)) };
    detached(done).await.map(Json)
}

fn problem(error: &StepError) -> Problem {
    match error {
        StepError::Unavailable(_) | StepError::Contended(_) => {
            Problem::unavailable("The step could not be taken now; repeat the command.", 1)
        }
        StepError::Poison(error) => Problem::unprocessable(error.to_string()),
        StepError::Failed(error) => Problem::internal(&**error),
    }
}
