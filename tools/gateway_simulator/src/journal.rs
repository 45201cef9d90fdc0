//! The ledger on disk: an append-only file of JSON lines, each chained to the one before it by a checksum. One thread writes all
//! queued entries and syncs once (group commit), so durability costs one sync per batch and not per charge. An entry is durable
//! when [`Written::reach`] has returned.

use std::{
    fs::{File, TryLockError},
    io::{self, BufRead, BufReader, Seek, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, watch};

use crate::{
    domain::{Entry, Inconsistency, Ledger},
    journal_line::{BadLine, Chain},
};

/// How long a start waits for the lock of a predecessor that is still writing its last batch.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The queue of the writer. After it is dropped, the writer writes the queued entries and releases the file.
#[derive(Debug)]
pub struct Journal {
    queue: mpsc::UnboundedSender<Entry>,
    appended: u64,
    progress: watch::Receiver<Progress>,
}

/// The position up to which the journal is on disk; clones are cheap.
#[derive(Debug, Clone)]
pub struct Written(watch::Receiver<Progress>);

/// The writer's counters for `/metrics`.
#[derive(Debug, Clone, Default)]
pub struct JournalCounters {
    pub entries: Counter,
    pub syncs: Counter,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot open the journal {path}: {source}")]
    Open { path: PathBuf, source: io::Error },
    #[error("the journal {0} is in use by another process")]
    InUse(PathBuf),
    #[error("cannot read the journal {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the journal {path} is corrupt at line {line}: {source}; nothing was changed")]
    Corrupt { path: PathBuf, line: u64, source: Corruption },
}

/// What is wrong with a line of the journal.
#[derive(Debug, thiserror::Error)]
pub enum Corruption {
    #[error(transparent)]
    Line(#[from] BadLine),
    #[error(transparent)]
    Entry(#[from] Inconsistency),
}

/// A write failed. The ledger in memory may be ahead of the disk, so no request may be answered any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the journal cannot be written any more")]
pub struct JournalStopped;

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    written: u64,
    stopped: bool,
}

impl Journal {
    /// Opens or creates the journal and rebuilds the ledger from it. Blocks. An incomplete last line was never answered and is
    /// cut off. With `fsync` false an entry counts as written when the operating system has it.
    pub fn open(path: &Path, fsync: bool, counters: JournalCounters) -> Result<(Self, Ledger), JournalError> {
        let open_error = |source| JournalError::Open { path: path.to_owned(), source };
        let mut file = open_file(path).map_err(open_error)?;
        lock(&file, path)?;
        let (ledger, chain) = replay(&mut file, path)?;
        let appended = chain.length();
        let (queue, entries) = mpsc::unbounded_channel();
        let (report, progress) = watch::channel(Progress { written: appended, stopped: false });
        let writer = Writer { file, fsync, chain, report, counters };
        thread::Builder::new().name("journal".to_owned()).spawn(|| writer.run(entries)).map_err(open_error)?;
        Ok((Self { queue, appended, progress }, ledger))
    }

    /// Queues an entry. The order of calls is the order on disk.
    pub fn append(&mut self, entry: Entry) {
        self.appended += 1;
        // The queue is closed when the writer has stopped; then `Written::reach` fails.
        let _ = self.queue.send(entry);
    }

    /// The number of the last entry appended so far, from 1.
    pub fn position(&self) -> u64 {
        self.appended
    }

    pub fn written(&self) -> Written {
        Written(self.progress.clone())
    }
}

impl Written {
    /// Waits until everything up to `position` is on disk.
    pub async fn reach(&self, position: u64) -> Result<(), JournalStopped> {
        let mut progress = self.0.clone();
        match progress.wait_for(|progress| progress.stopped || progress.written >= position).await {
            Ok(progress) if progress.written >= position => Ok(()),
            _ => Err(JournalStopped),
        }
    }

    /// Waits until a write fails or the journal is closed.
    pub async fn stopped(&self) -> JournalStopped {
        let mut progress = self.0.clone();
        // An error means that the writer has ended, too.
        let _ = progress.wait_for(|progress| progress.stopped).await;
        JournalStopped
    }
}

/// Appends to the file, in a thread of its own because syncing blocks.
struct Writer {
    file: File,
    fsync: bool,
    chain: Chain,
    report: watch::Sender<Progress>,
    counters: JournalCounters,
}

impl Writer {
    fn run(mut self, mut entries: mpsc::UnboundedReceiver<Entry>) {
        let mut batch = Vec::new();
        while let Some(entry) = entries.blocking_recv() {
            batch.clear();
            let before = self.chain.length();
            let outcome = self.chain.append(&entry, &mut batch).and_then(|()| {
                while let Ok(entry) = entries.try_recv() {
                    self.chain.append(&entry, &mut batch)?;
                }
                self.write(&batch)
            });
            if let Err(error) = outcome {
                tracing::error!(%error, "the journal cannot be written; no request is answered until a restart");
                self.report.send_modify(|progress| progress.stopped = true);
                return;
            }
            self.counters.entries.inc_by(self.chain.length() - before);
            self.report.send_modify(|progress| progress.written = self.chain.length());
        }
    }

    fn write(&mut self, batch: &[u8]) -> io::Result<()> {
        self.file.write_all(batch)?;
        if self.fsync {
            self.file.sync_data()?;
            self.counters.syncs.inc();
        }
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let file = File::options().read(true).append(true).create(true).open(path)?;
    // The directory entry of a new file must survive a power cut, too.
    File::open(folder)?.sync_all()?;
    Ok(file)
}

/// Prevents a second writer; the kernel releases the lock when the process ends.
fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    let pause = Duration::from_millis(20);
    for _ in 0..LOCK_TIMEOUT.as_millis() / pause.as_millis() {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => thread::sleep(pause),
            Err(TryLockError::Error(source)) => return Err(JournalError::Open { path: path.to_owned(), source }),
        }
    }
    Err(JournalError::InUse(path.to_owned()))
}

fn replay(file: &mut File, path: &Path) -> Result<(Ledger, Chain), JournalError> {
    let read_error = |source| JournalError::Read { path: path.to_owned(), source };
    let (mut ledger, mut chain) = (Ledger::default(), Chain::default());
    let (mut line, mut whole) = (Vec::new(), 0u64);
    file.rewind().map_err(read_error)?;
    let mut reader = BufReader::new(&mut *file);
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(read_error)? as u64;
        if line.pop() != Some(b'\n') {
            if length > 0 {
                tracing::warn!(path = %path.display(), bytes = length, "the journal's last line is incomplete; it is cut off");
                file.set_len(whole).and_then(|()| file.sync_all()).map_err(read_error)?;
            }
            return Ok((ledger, chain));
        }
        let number = chain.length() + 1;
        let corrupt = |source| JournalError::Corrupt { path: path.to_owned(), line: number, source };
        let entry = chain.read(&line).map_err(|source| corrupt(source.into()))?;
        ledger.replay(&entry).map_err(|source| corrupt(source.into()))?;
        whole += length;
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
