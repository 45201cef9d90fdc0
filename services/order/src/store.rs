//! Every SQL statement of the order service.

mod obstacles;
mod orders;
mod products;
mod sample;

pub(crate) use obstacles::{AtGateway, Fact, FaultHit, SagaConsumers, at_gateway, fault_hits, obstacles};
pub(crate) use orders::{
    AcceptedOrder, KeyUse, OrderLineRow, OrderRow, delete_old_keys, end_orders, find_key, get_order, has_ended,
    insert_key, insert_order, lines_of, list_orders, lock_orders, saga_of, try_key,
};
pub(crate) use sample::{SAMPLED as DATABASE_GAUGES, read as read_database};

pub(crate) use products::{
    ProductRow, delete_products_not_in, get_product, list_products, now, products_of, upsert_products,
};
