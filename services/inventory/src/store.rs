//! Every SQL statement of the inventory service. Rows are locked in the order of their keys, and a
//! write that changes fewer rows than expected fails.

mod products;
mod reservations;
mod sample;

pub(crate) use products::{
    find_product, insert_product, list_products, lock_products_below, save_details, save_supply,
};
pub(crate) use sample::{SAMPLED as GAUGES, read as read_gauges};

pub(crate) use reservations::{
    ReservationRow, begin_reservations, find_reservation, insert_lines, insert_tombstones, lock_products,
    lock_reservations, refuse_reservations, release_lines, release_units, reserve_units, save_reservations,
};

/// Fails when fewer rows were written than expected: then the decision is outdated.
fn all_written(written: u64, expected: usize) -> Result<(), sqlx::Error> {
    if written == expected as u64 { Ok(()) } else { Err(sqlx::Error::RowNotFound) }
}

/// The error of a value that the table's constraints should prevent.
fn unreadable(column: &str, value: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("{column} is {value:?}").into())
}
