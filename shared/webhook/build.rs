//! Rebuilds the crate when a migration changes, because migrations are compiled in. Queries are checked against `.sqlx`, not
//! against a database that the environment names.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=.sqlx");
    println!("cargo:rustc-env=SQLX_OFFLINE=true");
}
