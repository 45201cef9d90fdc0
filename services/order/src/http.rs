//! The routes of the order service.

mod customers;
mod explain;
mod history;
mod orchestrated;
mod orders;
mod place;
mod products;
mod sagas;
mod wait;

use bootstrap::Problem;
use messaging::StepError;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::App;

pub(crate) fn routes(app: App) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(place::place_order, orders::list_orders))
        .routes(routes!(orchestrated::place_order_orchestrated))
        .routes(routes!(orders::get_order))
        .routes(routes!(orders::cancel_order))
        .routes(routes!(explain::explain_order))
        .routes(routes!(history::order_events))
        .routes(routes!(customers::create_customer, customers::list_customers))
        .routes(routes!(customers::get_customer, customers::patch_customer))
        .routes(routes!(customers::get_customer_summary))
        .routes(routes!(products::list_products))
        .routes(routes!(products::get_product))
        .routes(routes!(products::rebuild_catalogue))
        .routes(routes!(sagas::list_sagas))
        .routes(routes!(sagas::get_saga_summary))
        .routes(routes!(sagas::get_saga))
        .routes(routes!(sagas::resume_saga))
        .routes(routes!(sagas::resume_sagas))
        .with_state(app)
}

/// A step's failure as a client sees it.
fn problem(error: &StepError) -> Problem {
    match error {
        StepError::Unavailable(_) => Problem::unavailable(
            "The database cannot be reached, and the outcome is unknown; repeat the request with the same Idempotency-Key.",
            1,
        ),
        StepError::Contended(_) => {
            Problem::unavailable("Too many concurrent requests for the same rows; try again.", 1)
        }
        StepError::Failed(error) | StepError::Poison(error) => Problem::internal(&**error),
    }
}
