//! Embeds the migrations of each participant's folder. A new file must rebuild this crate.

#![expect(clippy::disallowed_methods, reason = "Cargo passes OUT_DIR in the environment")]

use std::{env, fmt::Write, fs, io, path::Path};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=../../migrations");
    let mut arms = String::new();
    for participant in contracts::PARTICIPANTS {
        let service = participant.service;
        let _ = writeln!(
            arms,
            "        {service:?} => sqlx::migrate!(\"../../migrations/{service}\"),",
            service = service.0
        );
    }
    let of = format!(
        "fn of(service: &str) -> Migrator {{\n    match service {{\n{arms}        _ => Migrator::DEFAULT,\n    }}\n}}\n"
    );
    fs::write(Path::new(&env::var("OUT_DIR").map_err(io::Error::other)?).join("migrations.rs"), of)
}
