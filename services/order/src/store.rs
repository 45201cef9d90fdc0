//! Every SQL statement of the order service.

mod customers;
mod history;
mod keys;
mod obstacles;
mod orders;
mod products;
mod sample;
mod summary;

pub(crate) use customers::{
    Customer, find_customer, insert_customer, list_customers, lock_customers, set_customer_status,
};
pub(crate) use history::events;
pub(crate) use keys::{KeyUse, StoredKey, delete_old_keys, find_keys, insert_keys, try_keys};
pub(crate) use obstacles::{AtGateway, Fact, at_gateway, obstacles};
pub(crate) use orders::{
    EndedOrder, OrderRow, end_orders, get_order, has_ended, insert_orders, lines_of, list_orders, lock_orders, saga_of,
    walk_orders,
};
pub(crate) use sample::{SAMPLED as DATABASE_GAUGES, read as read_database};
pub(crate) use summary::{
    CustomerSummary, SAMPLED as SUMMARY_GAUGES, read as read_summary_age, refresh_summary, summary_of,
};

pub(crate) use products::{
    ViewedProduct, delete_products_not_in, get_product, list_products, now, products_of, upsert_products,
};

/// The error of a value that the tables' constraints should prevent.
fn unreadable(column: &str, value: impl std::fmt::Display) -> sqlx::Error {
    sqlx::Error::Decode(format!("{column} is {value}").into())
}
