//! The migrations are compiled in: a new migration must rebuild this crate.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations/payment");
}
