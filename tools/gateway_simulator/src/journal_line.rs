//! One line of the journal: `{"sequence":1,"checksum":"…","entry":{…}}`. The checksum covers the entry and the
//! checksum of the line before it, so a changed, lost, duplicated or moved line is detected at the next start.

use std::io::{self, Write};

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::domain::Entry;

/// The end of the chain of lines.
#[derive(Debug, Default)]
pub struct Chain {
    length: u64,
    last: Checksum,
}

/// The first eight bytes of a SHA-256: enough to detect accidental corruption.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Checksum(u64);

/// Why a line is not the next one of its chain.
#[derive(Debug, thiserror::Error)]
pub enum BadLine {
    #[error("it is not a journal line ({0})")]
    Malformed(#[from] serde_json::Error),
    #[error("it has the number {found}, expected {expected}")]
    Number { found: u64, expected: u64 },
    #[error("its checksum does not match its content and the line before it")]
    Checksum,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    sequence: u64,
    checksum: &'a str,
    #[serde(borrow)]
    entry: &'a RawValue,
}

impl Chain {
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Appends a line to `batch`, with its line end.
    pub fn append(&mut self, entry: &Entry, batch: &mut Vec<u8>) -> io::Result<()> {
        let entry = serde_json::to_string(entry)?;
        self.advance(self.last.next(&entry));
        writeln!(batch, r#"{{"sequence":{},"checksum":"{:016x}","entry":{entry}}}"#, self.length, self.last.0)
    }

    /// Reads the next line, given without its line end.
    pub fn read(&mut self, line: &[u8]) -> Result<Entry, BadLine> {
        let line: Line<'_> = serde_json::from_slice(line)?;
        let expected = self.length + 1;
        if line.sequence != expected {
            return Err(BadLine::Number { found: line.sequence, expected });
        }
        let checksum = self.last.next(line.entry.get());
        if line.checksum != format!("{:016x}", checksum.0) {
            return Err(BadLine::Checksum);
        }
        let entry = serde_json::from_str(line.entry.get())?;
        self.advance(checksum);
        Ok(entry)
    }

    fn advance(&mut self, checksum: Checksum) {
        self.length += 1;
        self.last = checksum;
    }
}

impl Checksum {
    fn next(self, entry: &str) -> Self {
        let hash = Sha256::new().chain_update(self.0.to_be_bytes()).chain_update(entry).finalize();
        Self(hash.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
}
