//! Clocks that can be stepped. A program under libfaketime reads the offset of its clock from a file.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;

const HOUR: i64 = 3_600;

/// The clock of one program.
#[derive(Debug, Clone)]
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// A correct clock. Its file lies beside the library, where programs of other users can read it, too.
    pub fn new(library: &Path, name: &str) -> anyhow::Result<Self> {
        let clock = Clock { library: library.to_owned(), file: library.with_file_name(format!("{name}.clock")) };
        clock.step(HOUR)?;
        let seconds = |command: &mut Command| -> anyhow::Result<i64> {
            Ok(String::from_utf8(command.arg("+%s").output()?.stdout)?.trim().parse()?)
        };
        let wrong = seconds(Command::new("date").envs(clock.environment()))? - seconds(&mut Command::new("date"))?;
        ensure!((wrong - HOUR).abs() < 60, "{} does not step clocks here", library.display());
        clock.step(0)?;
        Ok(clock)
    }

    /// The environment of a program that uses this clock. Only the time of day is wrong, the monotonic clock is right.
    pub fn environment(&self) -> [(String, String); 4] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// Sets the offset in seconds; it takes effect within a second.
    pub fn step(&self, seconds: i64) -> anyhow::Result<()> {
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}\n"))?;
        std::fs::set_permissions(&next, Permissions::from_mode(0o644))?;
        Ok(std::fs::rename(next, &self.file)?)
    }
}
