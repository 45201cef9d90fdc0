//! The migrations are compiled in: a new migration must rebuild this crate. Its queries are checked against `.sqlx`, not
//! against a database that the environment names, unless `.sqlx` itself is being written.

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script what it needs in the environment")]
fn main() {
    println!("cargo:rerun-if-changed=migrations");
    println!("cargo:rerun-if-changed=.sqlx");
    println!("cargo:rerun-if-env-changed=SQLX_OFFLINE_DIR");
    if std::env::var_os("SQLX_OFFLINE_DIR").is_none() {
        println!("cargo:rustc-env=SQLX_OFFLINE=true");
    }
}
