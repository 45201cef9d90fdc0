//! Rebuilds the crate when a migration changes, because migrations are compiled in. Queries are checked against `.sqlx`, not
//! against a database that the environment names, except when `.sqlx` itself is being written.

#[expect(clippy::disallowed_methods, reason = "cargo passes the inputs of a build script in the environment")]
fn main() {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=.sqlx");
    println!("cargo:rerun-if-env-changed=SQLX_OFFLINE_DIR");
    if std::env::var_os("SQLX_OFFLINE_DIR").is_none() {
        println!("cargo:rustc-env=SQLX_OFFLINE=true");
    }
}
