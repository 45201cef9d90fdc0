//! Queries are checked against `.sqlx`, not against a database that the environment names.

fn main() {
    println!("cargo:rerun-if-changed=.sqlx");
    println!("cargo:rustc-env=SQLX_OFFLINE=true");
}
