//! What a journal keeps, cuts off and refuses.
#![allow(clippy::unwrap_used)]

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::{
    charge::{ChargeRequest, Currency, IdempotencyKey},
    domain::ChargeAnswer,
};

fn key(n: usize) -> IdempotencyKey {
    IdempotencyKey::parse(&format!("key-{n}")).unwrap()
}

fn request() -> ChargeRequest {
    ChargeRequest {
        amount: 1_999,
        currency: Currency::USD,
        token: "tok_visa".to_owned(),
        order_id: Some("order-1".to_owned()),
        customer_id: None,
    }
}

fn open(path: &Path) -> Result<(Journal, Ledger), JournalError> {
    Journal::open(path, true, JournalCounters::default())
}

/// A closed journal with this many charges.
async fn journal_of(charges: usize) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.journal");
    let (mut journal, mut ledger) = open(&path).unwrap();
    for n in 0..charges {
        let change = ledger.charge(&key(n), &request(), uuid::Uuid::now_v7(), None).unwrap();
        journal.append(change.entry.unwrap());
    }
    journal.written().reach(journal.position()).await.unwrap();
    (folder, path)
}

fn charges(ledger: &Ledger) -> u64 {
    ledger.totals().map(|row| row.totals.charges).sum()
}

/// The line and the reason of the refusal, which must not change the file.
fn corruption(path: &Path) -> (u64, Corruption) {
    let before = fs::read(path).unwrap();
    let refused = open(path).unwrap_err();
    assert_eq!(fs::read(path).unwrap(), before);
    match refused {
        JournalError::Corrupt { line, source, .. } => (line, source),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_reopened_journal_gives_the_same_ledger() {
    let (_folder, path) = journal_of(3).await;
    let (mut journal, mut ledger) = open(&path).unwrap();
    assert!(matches!(ledger.outcome(key(2).as_str()), Some(ChargeAnswer::Captured(_))));
    journal.append(ledger.void(&key(99)).entry.unwrap());
    journal.written().reach(journal.position()).await.unwrap();
    drop(journal);
    let (journal, ledger) = open(&path).unwrap();
    assert_eq!((charges(&ledger), journal.position()), (3, 4));
}

#[tokio::test]
async fn an_incomplete_last_line_is_cut_off() {
    let (_folder, path) = journal_of(2).await;
    let whole = fs::read(&path).unwrap();
    let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for length in [first_line + 1, first_line + 40, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let (mut journal, mut ledger) = open(&path).unwrap();
        assert_eq!(charges(&ledger), 1);
        assert_eq!(fs::read(&path).unwrap(), &whole[..first_line]);
        journal.append(ledger.void(&key(99)).entry.unwrap());
        journal.written().reach(journal.position()).await.unwrap();
        drop(journal);
        assert_eq!(open(&path).unwrap().0.position(), 2, "it continues after the cut");
    }
}

#[tokio::test]
async fn a_changed_amount_is_refused() {
    let (_folder, path) = journal_of(3).await;
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen(":1999", ":1998", 1)).unwrap();
    assert!(matches!(corruption(&path), (1, Corruption::Line(BadLine::Checksum))));
}

#[tokio::test]
async fn a_missing_line_is_refused() {
    let (_folder, path) = journal_of(3).await;
    let text = fs::read_to_string(&path).unwrap();
    let without_second: Vec<_> = text.split_inclusive('\n').enumerate().filter(|(n, _)| *n != 1).collect();
    fs::write(&path, without_second.iter().map(|(_, line)| *line).collect::<String>()).unwrap();
    assert!(matches!(corruption(&path), (2, Corruption::Line(BadLine::Number { found: 3, expected: 2 }))));
}

#[tokio::test]
async fn queued_entries_share_a_sync() {
    let folder = tempfile::tempdir().unwrap();
    let counters = JournalCounters::default();
    let (mut journal, mut ledger) = Journal::open(&folder.path().join("j"), true, counters.clone()).unwrap();
    for n in 0..1_000 {
        journal.append(ledger.charge(&key(n), &request(), uuid::Uuid::now_v7(), None).unwrap().entry.unwrap());
    }
    journal.written().reach(journal.position()).await.unwrap();
    assert_eq!(counters.entries.get(), 1_000);
    assert!(counters.syncs.get() < 500, "{} syncs", counters.syncs.get());
}

#[tokio::test]
async fn after_a_failed_write_every_wait_fails() {
    let counters = JournalCounters::default();
    let (report, progress) = watch::channel(Progress::default());
    let (queue, entries) = mpsc::unbounded_channel();
    // Writing to this device always fails with "no space left".
    let file = File::options().write(true).open("/dev/full").unwrap();
    let writer = Writer { file, fsync: false, chain: Chain::default(), report, counters };
    let thread = thread::spawn(|| writer.run(entries));
    let mut journal = Journal { queue, appended: 0, progress };
    journal.append(Entry::Voided { idempotency_key: key(1) });
    assert_eq!(journal.written().reach(journal.position()).await, Err(JournalStopped));
    assert_eq!(journal.written().stopped().await, JournalStopped);
    thread.join().unwrap();
}
