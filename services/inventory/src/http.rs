//! The routes of the inventory service.

mod commands;
mod input;
mod products;
mod reservations;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::App;

pub(crate) fn routes(app: App) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(products::create_product, products::list_products))
        .routes(routes!(products::get_product, products::patch_product))
        .routes(routes!(products::replenish_product))
        .routes(routes!(products::product_events))
        .routes(routes!(reservations::get_reservation))
        .routes(routes!(commands::command_reserve_stock))
        .routes(routes!(commands::command_release_stock))
        .with_state(app)
}
